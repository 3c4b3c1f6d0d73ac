//! Programs that change a buffer while it is appended: databases do so with the tail block of their
//! logs.
//!
//! What the record holds is then any mixture of old and new bytes, but it is a record: what was
//! stored is what was checksummed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pool::{ClaimOptions, Lane, Lsn, Pool, PoolOptions, media::SimMedia};
use std::{
    io::IoSlice,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
};
use uuid::Uuid;

const OWNER: Uuid = Uuid::from_u128(0xC4A6);
const SEGMENT: u64 = 4 << 20;
const POOL: u64 = 4 * SEGMENT;

/// Memory that one thread appends and others change.
struct Hammered(Box<[AtomicU64]>);

impl Hammered {
    fn new(bytes: usize) -> Self {
        Self((0..bytes / 8).map(|_| AtomicU64::new(0)).collect())
    }

    #[expect(
        unsafe_code,
        reason = "a program's buffer, which its other threads write to"
    )]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the words are there as long as `self` is. That they change is what is tested: the
        // pool loads them through `persist` only, which expects it.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 8) }
    }

    /// Changes all of it, again and again, until `done`.
    fn hammer(&self, seed: u64, done: &AtomicBool) {
        let mut value = seed;
        while !done.load(Relaxed) {
            for word in &self.0 {
                value = value
                    .wrapping_mul(0x5851_F42D_4C95_7F2D)
                    .wrapping_add(seed | 1);
                word.store(value, Relaxed);
            }
        }
    }
}

/// Appends `buffer` and pieces of it until the lane is full, while two threads change it. Where
/// each record went, and its length.
fn append_while_it_changes(lane: &Lane, buffer: &Hammered) -> Vec<(Lsn, usize)> {
    lane.set_stalled("there is no drain".into());
    let (running, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for seed in 1..=2 {
            let (running, done) = (&running, &done);
            scope.spawn(move || {
                running.fetch_add(1, SeqCst);
                buffer.hammer(seed, done);
            });
        }
        while running.load(SeqCst) < 2 {
            thread::yield_now();
        }
        let mut told = Vec::new();
        for length in (0..).map(|i| 1 + i * 7919 % buffer.bytes().len()) {
            // As the files tier does: what is its own, then what is the program's, in pieces.
            let (first, second) = buffer.bytes()[..length].split_at(length / 3);
            let parts = [&b"head"[..], first, second].map(IoSlice::new);
            let Ok(lsn) = lane.append(1, &parts) else {
                break;
            };
            told.push((lsn, 4 + length));
        }
        done.store(true, SeqCst);
        told
    })
}

/// Every record is whole when the lane is claimed again.
fn all_are_found(pool: &Pool, told: &[(Lsn, usize)]) {
    let (_lane, recovered) = pool.claim(OWNER, &ClaimOptions::new()).expect("no damage");
    let found: Vec<(Lsn, usize)> = recovered
        .records()
        .map(|record| (record.header.lsn, record.payload.len()))
        .collect();
    assert!(told.len() > 10);
    assert_eq!(found, told);
}

/// Promise (pool): A record is whole although another thread changes the buffer during the append:
/// each byte has one of the values that it had.
#[test]
fn a_buffer_changing_during_its_append_makes_a_whole_record() {
    for bytes in [32, 96, 256, 4096, 100_000] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("changing.pool");
        let options = PoolOptions::new()
            .size(POOL)
            .segment_size(SEGMENT)
            .lanes(1)
            .emulated(true);
        let pool = options.create(&path).unwrap();
        let (lane, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
        let told = append_while_it_changes(&lane, &Hammered::new(bytes));
        // As after a crash: nothing is sealed or given back.
        drop((lane, pool));
        all_are_found(&PoolOptions::new().open(&path).unwrap(), &told);
    }
}

#[test]
fn a_changing_buffer_makes_a_whole_record_in_simulated_memory() {
    let sim = Arc::new(SimMedia::new(POOL as usize));
    sim.stop_recording();
    let pool = PoolOptions::new()
        .size(POOL)
        .segment_size(SEGMENT)
        .lanes(1)
        .create_on("sim", sim.clone())
        .unwrap();
    let (lane, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    let told = append_while_it_changes(&lane, &Hammered::new(8192));
    drop((lane, pool));
    let after = Arc::new(SimMedia::from_image(sim.image()));
    all_are_found(&PoolOptions::new().open_on("sim", after).unwrap(), &told);
}
