//! Pools that are opened for reading alone, beside their owners.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_pool::{ClaimOptions, LaneCheck, Pool, PoolError, PoolErrorKind, PoolOptions, Uuid};
use std::{fs, io::IoSlice, os::unix::fs::FileExt, path::Path};

/// One in memory, and one on a disk.
fn each_kind(test: impl Fn(&Path, &Pool)) {
    for on_disk in [false, true] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("pool");
        let options = PoolOptions::new().size(1 << 20).segment_size(64 << 10);
        let options = options.lanes(4).emulated(!on_disk).on_disk(on_disk);
        test(&path, &options.create(&path).unwrap());
    }
}

fn assert_refused<T>(result: Result<T, PoolError>) {
    let refused = result.err().unwrap();
    assert!(
        matches!(refused.kind, PoolErrorKind::OpenedToRead),
        "{refused}"
    );
}

/// How the file is mapped in this process, as in `r--s`.
fn protections(path: &Path) -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = path.to_str().unwrap();
    let lines = maps.lines().filter(|line| line.ends_with(path));
    lines
        .map(|line| line.split(' ').nth(1).unwrap().to_owned())
        .collect()
}

/// Promise (pool): A pool that is opened for reading is mapped so, stays as it is, damage included,
/// and refuses whatever would change or lock it.
#[test]
fn a_pool_opened_for_reading_is_not_changed_or_locked() {
    each_kind(|path, pool| {
        let owner = Uuid::new_v4();
        let (lane, _) = pool.claim(owner, &ClaimOptions::new()).unwrap();
        lane.append(7, &[IoSlice::new(b"record")]).unwrap();
        lane.commit(u64::MAX).unwrap();
        // The first superblock.
        let file = fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&[0xa5; 64], 0).unwrap();
        let before = fs::read(path).unwrap();

        let mapped = protections(path);
        let reading = PoolOptions::new().open_read_only(path).unwrap();
        let own = protections(path).len() - mapped.len();
        // What is on a disk is read into memory.
        assert_eq!(own, usize::from(!pool.needs_commit()));
        if own == 1 {
            assert!(protections(path).contains(&"r--s".to_owned()));
            assert!(!mapped.contains(&"r--s".to_owned()));
        }
        assert_eq!(reading.uuid(), pool.uuid());
        assert!(reading.repaired().is_empty());
        assert_refused(reading.claim(owner, &ClaimOptions::new()));
        assert_refused(reading.claim(Uuid::new_v4(), &ClaimOptions::new()));
        assert_refused(reading.claim_shared(Uuid::new_v4(), &ClaimOptions::new()));
        assert_refused(reading.relabel(owner, "another"));
        assert_refused(reading.lock());
        assert_refused(reading.lock_recovery(0));
        assert!(matches!(reading.check_lane(0), LaneCheck::Damaged(_)));
        assert!(reading.has_lane(owner).unwrap());
        let lanes = reading.lanes();
        assert_eq!(
            (lanes.len(), lanes[0].owner, lanes[0].in_use),
            (1, owner, true)
        );
        let copy = reading.copy_lane(owner).unwrap().unwrap();
        assert_eq!(copy.records().count(), 1);
        assert!(fs::read(path).unwrap() == before);

        drop(lane);
        assert!(!reading.lanes()[0].in_use);
        let repaired = PoolOptions::new().open(path).unwrap();
        assert_eq!(repaired.repaired().len(), 1);
    });
}

/// Promise (pool): Who reads a pool waits for no lock of it, and keeps no owner from one.
#[test]
fn readers_and_owners_do_not_wait_for_each_other() {
    each_kind(|path, pool| {
        let owner = Uuid::new_v4();
        let (lane, _) = pool.claim(owner, &ClaimOptions::new()).unwrap();
        let reading = PoolOptions::new().open_read_only(path).unwrap();
        // As an owner that was stopped while it claimed a lane.
        let held = pool.lock().unwrap();
        assert!(reading.copy_lane(owner).unwrap().is_some());
        assert!(reading.lanes()[0].in_use);
        drop(held);
        // Lanes change hands meanwhile.
        for round in 0..20 {
            lane.append(7, &[IoSlice::new(&[round; 100])]).unwrap();
            lane.commit(u64::MAX).unwrap();
            let other = Uuid::new_v4();
            let (others, recovered) = pool.claim(other, &ClaimOptions::new()).unwrap();
            assert!(reading.copy_lane(other).unwrap().is_some());
            drop(recovered);
            assert!(others.remove());
            assert!(reading.copy_lane(other).unwrap().is_none());
            let copy = reading.copy_lane(owner).unwrap().unwrap();
            assert_eq!(copy.records().count(), usize::from(round) + 1);
        }
    });
}

#[test]
fn a_fifo_in_the_pools_place_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let refused = PoolOptions::new().open_read_only(&path).err().unwrap();
    assert!(matches!(refused.kind, PoolErrorKind::NotAFile), "{refused}");
}
