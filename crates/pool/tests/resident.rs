//! Memory that a pool adds to a process: the lane that it has, not the pool that the lane is in. A
//! file of its own, since the figures are those of the whole process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_pool::{ClaimOptions, Pool, PoolOptions, media::open_emulated};
use std::{
    fs,
    io::IoSlice,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use uuid::Uuid;

const POOL: u64 = 1 << 30;
const SEGMENT: u64 = 8 << 20;

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .strip_suffix(" kB")
        .unwrap()
        .parse()
        .unwrap();
    kib * 1024
}

/// Page faults of this thread that needed no disk.
fn faults() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(7).unwrap().parse().unwrap()
}

/// A pool of 1 GiB without the memory for it, in memory if the system has such a directory.
fn sparse(dir: &Path) -> (PathBuf, Pool) {
    let path = dir.join("sparse.pool");
    fs::File::create(&path).unwrap().set_len(POOL).unwrap();
    let media = Arc::new(open_emulated(&path).unwrap());
    let pool = PoolOptions::new()
        .size(POOL)
        .segment_size(SEGMENT)
        .lanes(4)
        .emulated(true)
        .create_on(&path, media)
        .unwrap();
    (path, pool)
}

#[test]
fn a_lane_maps_only_its_own_segments_and_appends_without_faults() {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    };
    let dir = tempfile::tempdir_in(parent).unwrap();
    let before = resident();
    let (path, pool) = sparse(dir.path());
    let owner = Uuid::from_u128(0x5E5);
    let (lane, recovered) = pool.claim(owner, &ClaimOptions::new()).unwrap();
    drop(recovered);
    let fill = |lane: &forebay_pool::Lane| {
        let payload = vec![7; 64 << 10];
        let faulted = faults();
        for _ in 0..100 {
            lane.append(1, &[IoSlice::new(&payload)]).unwrap();
        }
        // Of each of 1,600 pages otherwise; a few are the stack's.
        assert!(faults() - faulted < 50, "{} faults", faults() - faulted);
    };
    fill(&lane);
    // Claimed again with what is in it, by another mapping.
    drop((lane, pool));
    let pool = PoolOptions::new().open(&path).unwrap();
    let (lane, recovered) = pool.claim(owner, &ClaimOptions::new()).unwrap();
    assert_eq!(recovered.records().count(), 100);
    drop(recovered);
    fill(&lane);
    lane.seal();
    while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
        sealed.release();
    }
    let added = resident() - before;
    assert!(added > SEGMENT, "{added} bytes: it is not measured");
    assert!(
        added < 4 * SEGMENT,
        "{added} bytes for a lane of {} in a pool of {POOL}",
        2 * SEGMENT
    );
}
