//! Lanes and segments changing hands: what was whose is never taken for, or lent over, another's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pool::{
    ClaimOptions, Lane, LaneCheck, Pool, PoolErrorKind, PoolGeometry, PoolOptions,
    format::layout::START_MAX, format::record::HEADER, media::SimMedia,
};
use std::{
    io::IoSlice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use uuid::Uuid;

const OWNER: Uuid = Uuid::from_u128(0x4A9D);
const OTHER: Uuid = Uuid::from_u128(0x07E2);
const BYTES: usize = 128 << 10;

/// A pool of four segments of 16 KiB and four lanes.
fn pool() -> (Arc<SimMedia>, Pool) {
    let sim = Arc::new(SimMedia::new(BYTES));
    let pool = PoolOptions::new()
        .size(PoolGeometry::bytes_for(4, 16 << 10, 4))
        .segment_size(16 << 10)
        .lanes(4)
        .create_on("sim", sim.clone())
        .unwrap();
    assert_eq!(pool.geometry().segments, 4);
    (sim, pool)
}

fn open(image: Vec<u8>) -> Pool {
    PoolOptions::new()
        .open_on("sim", Arc::new(SimMedia::from_image(image)))
        .unwrap()
}

fn buffers(buffers: u16) -> ClaimOptions {
    ClaimOptions::new().segments(buffers)
}

fn drain(lane: &Lane) {
    lane.seal();
    while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
        sealed.release();
    }
}

/// Promise (pool): A lane that was given back is empty for its next owner, also if that is the same
/// owner again.
#[test]
fn an_owner_that_gave_its_lane_back_finds_no_old_records() {
    let (sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &buffers(2)).unwrap();
    for i in 0..10u8 {
        lane.append(1, &[IoSlice::new(&[i; 100])]).unwrap();
    }
    drain(&lane);
    assert!(lane.remove());
    let (lane, recovered) = pool.claim(OWNER, &buffers(2)).unwrap();
    assert_eq!(recovered.records().count(), 0);
    drop((lane, recovered));
    // Nor takes them for evidence that something new was lost.
    let (_lane, recovered) = open(sim.image()).claim(OWNER, &buffers(2)).unwrap();
    assert_eq!(recovered.records().count(), 0);
}

#[test]
fn an_append_to_a_lane_given_back_is_refused_without_waiting() {
    let (_sim, pool) = pool();
    let (lane, recovered) = pool.claim(OWNER, &buffers(2)).unwrap();
    drop(recovered);
    assert!(lane.segment().is_some());
    let end = lane.usage().tail;
    assert!(lane.give_back());
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let refused = lane.append(1, &[IoSlice::new(b"late")]);
        done.send((refused, lane.seal(), lane.usage()))
    });
    let (refused, sealed, usage) = is_done
        .recv_timeout(Duration::from_secs(30))
        .expect("it waits");
    assert_eq!(refused, Err(forebay_pool::AppendError::Closed));
    assert_eq!((sealed, usage.tail, usage.segments_used), (end, end, 0));
}

/// Promise (pool): Bytes that are lent to a reader never change, whichever thread or process
/// drains, closes, gives back or claims the lane meanwhile.
#[test]
fn lent_bytes_keep_the_lane_and_its_segments_from_all_others() {
    let (_sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &buffers(4)).unwrap();
    let lsn = lane.append(1, &[IoSlice::new(&[7; 500])]).unwrap();
    let bytes = lane.read(lsn + HEADER as u64, 500).unwrap();
    drop(lane);
    let error = pool.claim(OWNER, &buffers(4)).err().unwrap();
    assert!(matches!(error.kind, PoolErrorKind::InUse { .. }), "{error}");
    assert_eq!(&bytes[..], [7; 500]);
    drop(bytes);
    let (lane, recovered) = pool.claim(OWNER, &buffers(4)).unwrap();
    drain(&lane);
    assert!(lane.remove());
    // Given back, but what was recovered is still looked at: no other owner gets these segments
    // yet.
    let error = pool.claim(OTHER, &buffers(1)).err().unwrap();
    assert!(matches!(error.kind, PoolErrorKind::Full { .. }), "{error}");
    assert_eq!(recovered.records().next().unwrap().payload, [7; 500]);
    drop(recovered);
    pool.claim(OTHER, &buffers(4)).unwrap();
}

#[test]
fn whoever_looks_at_a_pool_never_makes_a_claim_fail() {
    let (_sim, pool) = pool();
    drop(pool.claim(OWNER, &buffers(2)).unwrap());
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                let _ = (pool.lanes(), pool.check_lane(0), pool.segments_free());
            }
        });
        for _ in 0..3000 {
            let claimed = pool.claim(OWNER, &buffers(2));
            ended.store(claimed.is_err(), Relaxed);
            drop(claimed.unwrap());
        }
        ended.store(true, Relaxed);
    });
}

#[test]
fn a_lane_given_back_is_whole_and_one_that_is_not_there_is_not() {
    let (_sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &buffers(2)).unwrap();
    let number = lane.number();
    assert!(matches!(pool.check_lane(number), LaneCheck::InUse));
    assert!(lane.remove());
    assert!(matches!(
        pool.check_lane(number),
        LaneCheck::Whole { records: 0, .. }
    ));
    assert!(matches!(
        pool.check_lane(3),
        LaneCheck::Whole { records: 0, .. }
    ));
    assert!(matches!(pool.check_lane(4), LaneCheck::Damaged(_)));
}

#[test]
fn a_log_starts_at_a_page_it_can_count_on_from_or_not_at_all() {
    let (_sim, pool) = pool();
    for start in [64, 4095, u64::MAX - 4095, START_MAX + 4096] {
        let options = ClaimOptions::new().start(start);
        let error = pool.claim(OWNER, &options).err().unwrap();
        assert!(error.to_string().contains("cannot start a log"), "{error}");
        assert!(!pool.has_lane(OWNER).unwrap());
    }
    let options = ClaimOptions::new().start(START_MAX);
    let (lane, _) = pool.claim(OWNER, &options).unwrap();
    for _ in 0..3 {
        lane.append(1, &[IoSlice::new(&[1; 6000])]).unwrap();
    }
    drop(lane);
    let (_, recovered) = pool.claim(OWNER, &options).unwrap();
    assert_eq!(recovered.records().count(), 3);
}

#[test]
fn an_unreadable_lane_stops_new_owners_and_no_other_lanes_owner() {
    let (sim, pool) = pool();
    for owner in [OTHER, OWNER] {
        pool.claim(owner, &buffers(1)).unwrap();
    }
    let mut image = sim.image();
    let entry = pool.geometry().lane_entry(0) as usize;
    image[entry + 40] ^= 1;
    image[entry + 64 + 40] ^= 1;
    let pool = open(image);
    pool.claim(OWNER, &buffers(1)).unwrap();
    for owner in [OTHER, Uuid::from_u128(1)] {
        let error = pool.claim(owner, &buffers(1)).err().unwrap();
        assert!(
            matches!(error.kind, PoolErrorKind::Damaged { .. }),
            "{error}"
        );
    }
    assert!(matches!(pool.check_lane(0), LaneCheck::Damaged(_)));
    assert!(matches!(pool.check_lane(1), LaneCheck::Whole { .. }));
}

#[test]
fn an_error_while_claiming_leaves_no_lock_behind() {
    let (sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &buffers(2)).unwrap();
    for i in 0..5u8 {
        lane.append(1, &[IoSlice::new(&[i; 500])]).unwrap();
    }
    drop(lane);
    let mut image = sim.image();
    let second = image.windows(500).position(|w| w == [1; 500]).unwrap();
    image[second] ^= 1;
    let pool = open(image);
    for _ in 0..3 {
        let error = pool.claim(OWNER, &buffers(2)).err().unwrap();
        assert!(
            matches!(error.kind, PoolErrorKind::LostRecords { .. }),
            "{error}"
        );
        let error = pool.claim(OTHER, &buffers(3)).err().unwrap();
        assert!(matches!(error.kind, PoolErrorKind::Full { .. }), "{error}");
    }
    let options = ClaimOptions::new().salvage(true);
    pool.claim(OWNER, &options).unwrap();
    pool.claim(OTHER, &buffers(2)).unwrap();
}

#[test]
fn a_pool_in_the_way_of_a_new_one_is_named_and_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("there.pool");
    let options = PoolOptions::new()
        .size(BYTES as u64)
        .segment_size(16 << 10)
        .lanes(4)
        .emulated(true);
    drop(options.create(&path).unwrap());
    let mut image = std::fs::read(&path).unwrap();
    image[4096 + 20] ^= 1;
    std::fs::write(&path, &image).unwrap();
    let error = options.create(&path).err().unwrap().to_string();
    assert!(error.contains("exists already (a pool, uuid"), "{error}");
    assert!(std::fs::read(&path).unwrap() == image);
    let pool = PoolOptions::new().open(&path).unwrap();
    assert_eq!(pool.repaired().len(), 1);
    assert!(
        PoolOptions::new()
            .open(&path)
            .unwrap()
            .repaired()
            .is_empty()
    );
}

/// Promise: as `a_path_without_a_pool_is_refused_for_what_it_is_unchanged`.
#[test]
fn a_pool_moved_off_persistent_memory_opens_only_as_emulated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("moved.pool");
    let (sim, pool) = pool(); // made as persistent memory
    drop(pool);
    let mut image = sim.image();
    image[4096 + 20] ^= 1;
    std::fs::write(&path, &image).unwrap();
    let error = PoolOptions::new().open(&path).err().unwrap();
    assert!(
        matches!(error.kind, PoolErrorKind::MovedOffPersistentMemory { .. }),
        "{error}"
    );
    assert!(std::fs::read(&path).unwrap() == image);
    let pool = PoolOptions::new().emulated(true).open(&path).unwrap();
    assert!(pool.durability().to_string().contains("process crash only"));
}

#[test]
#[should_panic(expected = "the kind is the pool's own")]
fn a_record_of_the_pools_own_kind_is_not_appended() {
    let (_sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &buffers(1)).unwrap();
    let _ = lane.append(0, &[IoSlice::new(b"would end the segment")]);
}

/// Promise (pool): A power cut while a pool is formatted again leaves no pool or a whole one.
#[test]
fn formatting_takes_the_old_pool_away_before_anything_else() {
    let (sim, pool) = pool();
    let again = Arc::new(SimMedia::from_image(sim.image()));
    PoolOptions::new()
        .size(pool.geometry().pool_bytes)
        .segment_size(16 << 10)
        .lanes(4)
        .create_on("sim", again.clone())
        .unwrap();
    let images = again.crash_images();
    let mut coin = 0;
    for point in 0..images.points() {
        let image = images.at(point, || {
            coin += 1;
            coin % 3 == 0
        });
        if let Ok(found) = PoolOptions::new().open_on("sim", Arc::new(SimMedia::from_image(image)))
        {
            for lane in 0..4 {
                let check = found.check_lane(lane);
                assert!(
                    matches!(check, LaneCheck::Whole { .. }),
                    "{point}: {check:?}"
                );
            }
        }
    }
}

/// Promise (pool): A session's seal proves every record before it: a claim refuses a flipped bit in
/// the last of them from then on.
#[test]
fn a_flipped_bit_in_the_last_record_is_a_torn_end_until_a_seal() {
    let (sim, pool) = pool();
    let (lane, _) = pool.claim(OWNER, &buffers(2)).unwrap();
    for i in 0..3u8 {
        lane.append(1, &[IoSlice::new(&[i; 500])]).unwrap();
    }
    drop(lane);
    let flip_last = |mut image: Vec<u8>| {
        let last = image.windows(500).position(|w| w == [2; 500]).unwrap();
        image[last + 9] ^= 1;
        open(image)
    };
    let (_lane, recovered) = flip_last(sim.image()).claim(OWNER, &buffers(2)).unwrap();
    assert_eq!(recovered.records().count(), 2);
    drop(pool.claim(OWNER, &buffers(2)).unwrap());
    let error = flip_last(sim.image()).claim(OWNER, &buffers(2)).err();
    let kind = error.unwrap().kind;
    assert!(matches!(kind, PoolErrorKind::LostRecords { .. }), "{kind}");
}
