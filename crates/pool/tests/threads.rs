//! Writers, readers and drains that meet at the edges of segments.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pool::{
    ClaimOptions, Lane, Pool,
    layout::Geometry,
    media::{Media, Profile, Sim, Timed},
    record::{self, HEADER},
    segment::{Records, SegmentHeader},
};
use std::{
    collections::HashSet,
    io::IoSlice,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use uuid::Uuid;

const OWNER: Uuid = Uuid::from_u128(0x7EAD);

/// A lane on a medium whose every store takes 20 µs, so that a segment's opening and closing are long enough to meet.
fn slow_lane(segment_bytes: u64, buffers: u16, latency_us: u32) -> Lane {
    let profile = Profile {
        write_latency_ns: latency_us * 1000,
        ..Profile::named("dram").unwrap()
    };
    let media: Arc<dyn Media> = Arc::new(Timed::new(Arc::new(Sim::new(1 << 20)), profile));
    let geometry = Geometry::fit(1 << 20, segment_bytes, 1).unwrap();
    let pool = Pool::format(Path::new("sim"), media, geometry, false).unwrap();
    let options = ClaimOptions {
        buffers,
        ..Default::default()
    };
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
                        for record in Records::new(sealed.bytes(), header, lane.epoch()) {
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

#[test]
fn writers_that_meet_while_a_single_buffer_is_reopened_never_share_a_place() {
    storm(&slow_lane(4096, 1, 50), 6, 1, 300);
}

#[test]
fn several_drains_release_out_of_order_and_nothing_is_lost_or_drained_twice() {
    storm(&slow_lane(4096, 3, 20), 3, 3, 400);
}

#[test]
fn a_record_behind_an_early_seal_is_read_and_not_what_the_sealed_segment_holds_at_its_address() {
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

#[test]
fn a_drain_may_wait_for_ever() {
    let lane = slow_lane(4096, 2, 0);
    lane.append(1, &[IoSlice::new(b"x")]).unwrap();
    lane.seal();
    assert!(lane.take_sealed(Duration::MAX).is_some());
}
