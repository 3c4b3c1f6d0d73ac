//! Writers, readers and drains that meet at the edges of segments.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_device::memory::{Profile, Timed};
use forebay_pool::{
    Checksum, ClaimOptions, Lane, PoolOptions,
    format::{
        record::{self, HEADER},
        segment::{RecordWalk, SegmentHeader},
    },
    media::{Media, PoolPersistence, SimMedia},
};
use std::{
    collections::HashSet,
    fs,
    io::{self, IoSlice},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc,
    },
    thread,
    time::Duration,
};
use uuid::Uuid;

const OWNER: Uuid = Uuid::from_u128(0x7EAD);

/// A lane on a medium whose every store takes 20 µs, so that a segment's opening and closing are
/// long enough to meet.
fn slow_lane(segment_bytes: u64, buffers: u16, latency_us: u32) -> Lane {
    let profile = Profile {
        write_latency_ns: latency_us * 1000,
        ..Profile::named("dram").unwrap()
    };
    let media: Arc<dyn Media> = Arc::new(Timed::new(Arc::new(SimMedia::new(1 << 20)), profile));
    let pool = PoolOptions::new()
        .size(1 << 20)
        .segment_size(segment_bytes)
        .lanes(1)
        .create_on("sim", media)
        .unwrap();
    let options = ClaimOptions::new().segments(buffers);
    pool.claim(OWNER, &options).unwrap().0
}

/// Several writers and drains, early seals and readers of old addresses: every record must reach
/// the drain exactly once, whole, and at the address that its writer was told.
fn storm(lane: &Lane, writers: u64, drains: usize, records_each: u64) {
    let ended = AtomicBool::new(false);
    let newest = AtomicU64::new(0);
    let mut drained = HashSet::new();
    let mut told = HashSet::new();
    thread::scope(|scope| {
        let drains: Vec<_> = (0..drains)
            .map(|_| {
                scope.spawn(|| {
                    let mut found = Vec::new();
                    while let Some(sealed) = lane.take_sealed(Duration::from_secs(20)) {
                        let header = SegmentHeader::decode(sealed.bytes()).unwrap();
                        assert_eq!(header.start, sealed.start());
                        for record in RecordWalk::new(sealed.bytes(), header, lane.epoch()) {
                            let payload = record.payload.to_vec();
                            found.push((record.header.lsn, payload));
                        }
                        sealed.release();
                    }
                    found
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            while !ended.load(Relaxed) {
                let lsn = newest.load(Relaxed);
                for lsn in [lsn, lsn.saturating_sub(4096), lsn.saturating_sub(8192)] {
                    if let Some(bytes) = lane.read(lsn, HEADER) {
                        // Some record or header, or a stale one behind a seal, but always at rest.
                        assert_eq!(bytes.to_vec(), bytes.to_vec());
                    }
                }
            }
        });
        let writers: Vec<_> = (0..writers)
            .map(|writer| {
                let newest = &newest;
                scope.spawn(move || {
                    let mut told = Vec::new();
                    for i in 0..records_each {
                        let mut payload = vec![writer as u8; 16 + (i as usize * 97) % 1500];
                        payload[..8].copy_from_slice(&i.to_le_bytes());
                        let lsn = lane.append(1, &[IoSlice::new(&payload)]).unwrap();
                        newest.fetch_max(lsn, Relaxed);
                        told.push((lsn, payload));
                        // Arrives anew at any phase of the others' work.
                        thread::sleep(Duration::from_micros((i * 61 + writer * 17) % 200));
                        if (i + writer) % 3 == 0 {
                            lane.seal();
                        }
                    }
                    told
                })
            })
            .collect();
        for writer in writers {
            told.extend(writer.join().unwrap());
        }
        lane.wait_drained(lane.seal()).unwrap();
        ended.store(true, Relaxed);
        lane.close();
        reader.join().unwrap();
        for drain in drains {
            for record in drain.join().unwrap() {
                assert!(drained.insert(record), "a record was drained twice");
            }
        }
    });
    assert!(drained == told);
}

/// Promise (pool): Every record reaches the drain exactly as it was appended, with any number of
/// writers, drains and segments, one segment included.
/// Promise (pool): Writers wait while the drain makes no progress, and never wait forever once it
/// goes on.
#[test]
fn writers_that_meet_at_a_reopened_buffer_never_share_a_place() {
    storm(&slow_lane(4096, 1, 50), 6, 1, 300);
}

/// Promise: as `writers_that_meet_at_a_reopened_buffer_never_share_a_place`.
#[test]
fn drains_that_release_out_of_order_lose_and_repeat_nothing() {
    storm(&slow_lane(4096, 3, 20), 3, 3, 400);
}

#[test]
fn a_record_behind_an_early_seal_is_read_from_its_own_segment() {
    let lane = slow_lane(16 << 10, 4, 0);
    lane.append(1, &[IoSlice::new(&[0xAA; 8000])]).unwrap();
    lane.append(1, &[IoSlice::new(&[0xBB; 100])]).unwrap();
    let early = lane.seal();
    assert!(early < lane.segment_bytes());
    for i in 0..20u8 {
        let lsn = lane.append(2, &[IoSlice::new(&[i; 200])]).unwrap();
        let bytes = lane.read(lsn, HEADER + 200).unwrap();
        let found = record::read(&bytes, lsn, OWNER).unwrap();
        assert_eq!(found.payload, [i; 200]);
    }
}

/// A medium on which a thread named `late` stays in its fence while `held`, as if it had lost its
/// processor there.
struct Late {
    memory: SimMedia,
    held: AtomicBool,
    reached: AtomicBool,
}

#[expect(unsafe_code, reason = "implements the trait's unsafe methods")]
impl Media for Late {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn durability(&self) -> PoolPersistence {
        self.memory.durability()
    }

    fn describe(&self) -> String {
        self.memory.describe()
    }

    unsafe fn stream(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.memory.stream(offset, parts, skip) };
    }

    unsafe fn stream_once(&self, at: u64, parts: &[IoSlice<'_>], skip: usize, sum: &mut Checksum) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.memory.stream_once(at, parts, skip, sum) };
    }

    fn fence(&self) {
        if thread::current().name() == Some("late") {
            self.reached.store(true, SeqCst);
            while self.held.load(SeqCst) {
                thread::sleep(Duration::from_micros(100));
            }
        }
        self.memory.fence();
    }

    fn load(&self, offset: u64, to: &mut [u8]) {
        self.memory.load(offset, to);
    }

    unsafe fn slice(&self, offset: u64, bytes: usize) -> &[u8] {
        // SAFETY: the caller's promise is the same.
        unsafe { self.memory.slice(offset, bytes) }
    }

    fn lock(&self, lock: u32, wait: bool) -> io::Result<()> {
        self.memory.lock(lock, wait)
    }

    unsafe fn unlock(&self, lock: u32) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.memory.unlock(lock) };
    }
}

/// State of a thread of this process, as the kernel has it: `S` asleep, `R` on a processor or
/// waiting for one.
fn state_of(thread: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.chars().next().unwrap()
}

/// Promise (pool): A writer that loses its processor during an append stops no writer behind it,
/// and publishes the records that those finished meanwhile.
#[test]
fn a_writer_that_lost_its_processor_publishes_those_behind_it() {
    let late = Arc::new(Late {
        memory: SimMedia::new(1 << 20),
        held: AtomicBool::new(true),
        reached: AtomicBool::new(false),
    });
    let pool = PoolOptions::new()
        .size(1 << 20)
        .segment_size(64 << 10)
        .lanes(1)
        .create_on("sim", late.clone())
        .unwrap();
    let lane = pool.claim(OWNER, &ClaimOptions::new()).unwrap().0;
    let append = |byte: u8| lane.append(1, &[IoSlice::new(&[byte; 100])]).unwrap();
    thread::scope(|scope| {
        let first = thread::Builder::new().name("late".to_owned());
        let first = first.spawn_scoped(scope, || append(0)).unwrap();
        while !late.reached.load(SeqCst) {
            thread::yield_now();
        }
        let (told, tids) = mpsc::channel();
        let behind: Vec<_> = (1..=4)
            .map(|byte| {
                let (told, append) = (told.clone(), &append);
                scope.spawn(move || {
                    told.send(rustix::thread::gettid().as_raw_nonzero().get())
                        .unwrap();
                    append(byte)
                })
            })
            .collect();
        let tids: Vec<i32> = tids.iter().take(4).collect();
        // Asleep at every look, not just at one between two turns of a loop.
        let mut looks = 0;
        for _ in 0..1000 {
            thread::sleep(Duration::from_millis(5));
            let asleep = tids.iter().all(|tid| state_of(*tid) == 'S');
            looks = if asleep { looks + 1 } else { 0 };
            if looks == 5 {
                break;
            }
        }
        let waiting = behind.iter().all(|writer| !writer.is_finished());
        // First, or nothing here would ever end.
        late.held.store(false, SeqCst);
        assert!(
            waiting,
            "an append returned before an earlier one was durable"
        );
        assert_eq!(looks, 5, "writers use a processor while they wait");
        first.join().unwrap();
        for writer in behind {
            let lsn = writer.join().unwrap();
            assert!(lane.read(lsn, HEADER + 100).is_some());
        }
    });
}

#[test]
fn a_drain_may_wait_for_ever() {
    let lane = slow_lane(4096, 2, 0);
    lane.append(1, &[IoSlice::new(b"x")]).unwrap();
    lane.seal();
    assert!(lane.take_sealed(Duration::MAX).is_some());
}
