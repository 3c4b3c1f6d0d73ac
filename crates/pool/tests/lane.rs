//! A lane's life: appending, sealing, draining, recovering.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pool::{
    AppendError, ClaimOptions, Lane, Pool, PoolOptions,
    format::record::HEADER,
    media::{Media, SimMedia},
};
use std::{
    io::IoSlice,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use uuid::Uuid;

const OWNER: Uuid = Uuid::from_u128(0xF0BE);
const SEGMENT: u64 = 16 << 10;

fn pool() -> (Arc<SimMedia>, Pool) {
    let sim = Arc::new(SimMedia::new(1 << 20));
    let pool = PoolOptions::new()
        .size(1 << 20)
        .segment_size(SEGMENT)
        .lanes(4)
        .create_on("sim", sim.clone())
        .unwrap();
    (sim, pool)
}

fn reopen(sim: &SimMedia) -> Pool {
    PoolOptions::new()
        .open_on("sim", Arc::new(SimMedia::from_image(sim.image())))
        .unwrap()
}

fn append(lane: &Lane, bytes: &[u8]) -> u64 {
    lane.append(1, &[IoSlice::new(bytes)]).unwrap()
}

fn payloads(pool: &Pool) -> Vec<Vec<u8>> {
    let (_lane, recovered) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    recovered.records().map(|r| r.payload.to_vec()).collect()
}

#[test]
fn records_are_recovered_in_order_across_segments_and_sessions() {
    let (sim, pool) = pool();
    let (lane, recovered) = pool.claim(OWNER, &ClaimOptions::new().segments(8)).unwrap();
    assert_eq!(recovered.records().count(), 0);
    let mut expected = Vec::new();
    for i in 0..60u8 {
        let payload = vec![i; 1000 + usize::from(i)];
        append(&lane, &payload);
        expected.push(payload);
    }
    drop((lane, recovered));
    let second = reopen(&sim);
    assert_eq!(payloads(&second), expected);
    // And once more from there: a session that only recovered changed nothing.
    assert_eq!(payloads(&second), expected);
}

#[test]
fn a_released_segment_is_not_recovered_and_its_slot_is_reused() {
    let (sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    for round in 0..20u8 {
        let lsn = append(&lane, &[round; 3000]);
        assert_eq!(
            &lane.read(lsn + HEADER as u64, 3000).unwrap()[..],
            &[round; 3000]
        );
        let end = lane.seal();
        let sealed = lane.take_sealed(Duration::ZERO).unwrap();
        assert!(sealed.start() <= lsn && lsn < sealed.end());
        assert_eq!(sealed.start() % 4096, 0);
        assert_eq!(sealed.bytes().len() % 4096, 0);
        sealed.release();
        lane.wait_drained(end).unwrap();
        assert!(lane.read(lsn, 64).is_none());
    }
    append(&lane, b"the last one");
    drop(lane);
    assert_eq!(payloads(&reopen(&sim)), [b"the last one"]);
}

#[test]
fn a_sealed_segment_dropped_unreleased_comes_back_to_the_drain() {
    let (_sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    append(&lane, b"x");
    lane.seal();
    let first = lane.take_sealed(Duration::ZERO).unwrap();
    let start = first.start();
    assert!(lane.take_sealed(Duration::ZERO).is_none());
    drop(first);
    assert_eq!(lane.take_sealed(Duration::ZERO).unwrap().start(), start);
}

#[test]
fn a_record_of_half_a_segment_fits_and_a_larger_one_is_refused() {
    let (_sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    let most = lane.payload_max();
    assert_eq!(most as u64, SEGMENT / 2 - 32);
    append(&lane, &vec![1; most]);
    let refused = lane.append(1, &[IoSlice::new(&vec![1; most + 1])]);
    assert_eq!(
        refused,
        Err(AppendError::TooLarge {
            bytes: most + 1,
            bytes_max: most
        })
    );
}

#[test]
fn a_full_lane_waits_for_the_drain_and_fails_only_once_stalled() {
    let (_sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &ClaimOptions::new().segments(1)).unwrap();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| {
            let mut drained = 0;
            while let Some(sealed) = lane.take_sealed(Duration::from_secs(10)) {
                drained += sealed.bytes().len();
                sealed.release();
            }
            drained
        });
        for i in 0..100u8 {
            append(&lane, &[i; 2000]);
        }
        lane.wait_drained(lane.seal()).unwrap();
        lane.close();
        assert!(drain.join().unwrap() > 200_000);
    });
    let (lane, _) = pool
        .claim(Uuid::from_u128(2), &ClaimOptions::new())
        .unwrap();
    lane.set_stalled("no space left".into());
    let error = (0..100)
        .find_map(|_| lane.append(1, &[IoSlice::new(&[0; 4000])]).err())
        .unwrap();
    assert_eq!(error, AppendError::Stalled("no space left".into()));
}

#[test]
fn a_flush_is_told_only_of_a_drain_that_failed_after_its_call() {
    let (_sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    let earlier = Instant::now();
    lane.append(1, &[IoSlice::new(b"record")]).unwrap();
    let sealed = lane.take_sealed(Duration::ZERO);
    assert!(sealed.is_none(), "nothing is sealed yet");
    let end = lane.seal();
    // Two drains: one that failed is late to say so, the other has gone on meanwhile.
    lane.drain_failed(earlier, "the disk was full".into());
    thread::scope(|scope| {
        let flush = scope.spawn(|| lane.wait_drained(end));
        thread::sleep(Duration::from_millis(20));
        assert!(!flush.is_finished());
        lane.take_sealed(Duration::from_secs(1)).unwrap().release();
        flush.join().unwrap().unwrap();
        lane.append(1, &[IoSlice::new(b"record")]).unwrap();
        let flush = scope.spawn(|| lane.wait_drained(lane.seal()));
        // Only a drain that failed after the wait had begun ends it.
        while !flush.is_finished() {
            lane.drain_failed(Instant::now(), "the disk is full".into());
            thread::sleep(Duration::from_millis(1));
        }
        let full = AppendError::Stalled("the disk is full".into());
        assert_eq!(flush.join().unwrap(), Err(full));
    });
}

#[test]
fn several_writers_see_their_records_durable_in_one_order() {
    let (sim, pool) = pool();
    let (lane, _) = pool
        .claim(OWNER, &ClaimOptions::new().segments(32))
        .unwrap();
    let lane = &lane;
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            scope.spawn(move || {
                for i in 0..100u8 {
                    append(
                        lane,
                        &[&[writer, i][..], &vec![i; usize::from(i) * 7]].concat(),
                    );
                }
            });
        }
    });
    let recovered = payloads(&reopen(&sim));
    assert_eq!(recovered.len(), 400);
    for writer in 0..4 {
        let own: Vec<u8> = recovered
            .iter()
            .filter(|p| p[0] == writer)
            .map(|p| p[1])
            .collect();
        assert_eq!(own, (0..100).collect::<Vec<u8>>());
    }
}

/// Promise (pool): A claim refuses damage to an acknowledged record that anything was appended
/// behind, and does not take the damage for the end of the log.
#[test]
fn a_flipped_bit_is_refused_and_a_salvage_keeps_all_before_it() {
    let (sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    for i in 0..5u8 {
        append(&lane, &[i; 500]);
    }
    let at = lane.read(0, 64).unwrap().len(); // the header line is published
    assert_eq!(at, 64);
    drop(lane);
    let mut image = sim.image();
    let third = image.windows(500).position(|w| w == [2; 500]).unwrap();
    image[third + 77] ^= 4;
    let open = || {
        PoolOptions::new()
            .open_on("sim", Arc::new(SimMedia::from_image(image.clone())))
            .unwrap()
    };
    let error = open()
        .claim(OWNER, &ClaimOptions::new())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("had been acknowledged"), "{error}");
    let (_lane, recovered) = open()
        .claim(OWNER, &ClaimOptions::new().salvage(true))
        .unwrap();
    assert_eq!(recovered.records().count(), 2);
    assert!(recovered.lost().is_some());
}

/// Promise (pool): Salvage keeps the records before the damage, and a later opening does not report
/// the given-up records as damage.
#[test]
fn records_a_salvage_gave_up_prove_no_loss_after_a_release() {
    for medium in [SimMedia::new(1 << 20), SimMedia::disk(vec![0; 1 << 20])] {
        let sim = Arc::new(medium);
        let options = PoolOptions::new().size(1 << 20).segment_size(4 * SEGMENT);
        let pool = options.create_on("sim", sim.clone()).unwrap();
        let (lane, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
        for i in 0..16u8 {
            let lsn = append(&lane, &[i; 500]);
            lane.commit(lsn + 1).unwrap();
        }
        drop((lane, pool));
        let mut image = sim.image();
        let third = image.windows(500).position(|w| w == [2; 500]).unwrap();
        image[third + 77] ^= 4;
        let open = |sim: &Arc<SimMedia>| PoolOptions::new().open_on("sim", sim.clone()).unwrap();
        let sim = Arc::new(sim.of_its_kind(image));
        let salvage = ClaimOptions::new().salvage(true);
        let (lane, recovered) = open(&sim).claim(OWNER, &salvage).unwrap();
        assert_eq!(recovered.records().count(), 2);
        drop(recovered);
        append(&lane, b"a later one");
        let end = lane.seal();
        while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
            sealed.release();
        }
        lane.wait_drained(end).unwrap();
        drop(lane);
        let sim = Arc::new(sim.of_its_kind(sim.image()));
        assert_eq!(payloads(&open(&sim)), [[0; 0]; 0]);
    }
}

/// Promise: as `a_flipped_bit_is_refused_and_a_salvage_keeps_all_before_it`.
#[test]
fn a_damaged_segment_header_is_not_taken_for_an_empty_lane() {
    let (sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    append(&lane, b"acknowledged");
    drop(lane);
    let mut image = sim.image();
    let header = image.windows(4).position(|w| w == b"FSEG").unwrap();
    image[header + 9] ^= 1;
    let pool = PoolOptions::new()
        .open_on("sim", Arc::new(SimMedia::from_image(image)))
        .unwrap();
    assert!(pool.claim(OWNER, &ClaimOptions::new()).is_err());
}

#[test]
fn two_owners_have_separate_lanes_and_each_has_one_session() {
    let (_sim, pool) = pool();
    let (first, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    let (second, _) = pool
        .claim(Uuid::from_u128(2), &ClaimOptions::new())
        .unwrap();
    assert_ne!(first.number(), second.number());
    let error = pool
        .claim(OWNER, &ClaimOptions::new())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("in use"), "{error}");
    drop(first);
    let (_first, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
}

#[test]
fn a_lane_given_back_frees_its_segments_unless_it_has_records() {
    let (_sim, pool) = pool();
    let free = pool.segments_free().unwrap();
    let (lane, _) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    assert_eq!(pool.segments_free().unwrap(), free - 2);
    append(&lane, b"keep me");
    assert!(!lane.remove());
    assert_eq!(pool.lanes().len(), 1);
    let (lane, recovered) = pool.claim(OWNER, &ClaimOptions::new()).unwrap();
    assert_eq!(recovered.records().count(), 1);
    drop(recovered);
    lane.take_sealed(Duration::ZERO).unwrap().release();
    assert!(lane.remove());
    assert_eq!(pool.segments_free().unwrap(), free);
    let used = pool.claim(Uuid::from_u128(5), &ClaimOptions::new().segments(64));
    let error = used.err().unwrap().to_string();
    assert!(error.contains("segments wanted"), "{error}");
}

#[test]
fn a_pool_is_seen_by_another_medium_over_the_same_bytes() {
    let (sim, pool) = pool();
    assert_eq!(reopen(&sim).uuid(), pool.uuid());
    assert_eq!(reopen(&sim).geometry(), pool.geometry());
    assert_eq!(sim.bytes(), 1 << 20);
}

#[test]
fn a_lane_is_crowded_in_its_last_free_segment_until_drained() {
    for buffers in [1, 2, 3] {
        let (_sim, pool) = pool();
        let options = ClaimOptions::new().segments(buffers);
        let (lane, recovered) = pool.claim(OWNER, &options).unwrap();
        drop(recovered);
        let mut sealed = Vec::new();
        for segment in 1..=buffers {
            let start = lane.segment();
            let (mut crowded, mut ahead) = (0, Vec::new());
            while lane.usage().tail + 2 * 64 < start.unwrap() + SEGMENT {
                let lsn = append(&lane, b"a line");
                match lane.crowding(lsn, 64) {
                    Some(crowded) => ahead.push(crowded.ahead),
                    None => assert!(ahead.is_empty(), "{ahead:?}"),
                }
                crowded += u64::from(!ahead.is_empty());
            }
            if segment < buffers || buffers == 1 {
                assert!(ahead.is_empty());
                lane.seal();
                sealed.push(lane.take_sealed(Duration::ZERO).unwrap());
            } else {
                let share = crowded as f64 * 64.0 / SEGMENT as f64;
                assert!((0.6..0.8).contains(&share), "{share} of the segment");
                assert!(ahead.last() > Some(&Duration::ZERO), "{ahead:?}");
            }
            if segment < buffers {
                append(&lane, b"opens the next");
            }
        }
        if buffers > 1 {
            // Nothing comes free, and it is not waited for longer than that.
            lane.wait_free(Duration::from_millis(1));
            let last = lane.usage().tail;
            assert!(lane.crowding(last, 64).is_some());
            // Writers are held back, so the drain is behind: for them the segment stays crowded
            // until another one comes free.
            sealed.remove(0).release();
            assert!(lane.crowding(last, 64).is_some());
            lane.wait_free(Duration::MAX);
            if let Some(another) = sealed.pop() {
                another.release();
                assert!(lane.crowding(last, 64).is_none());
            }
        }
        assert_eq!(lane.blocked().times, 0);
    }
}
