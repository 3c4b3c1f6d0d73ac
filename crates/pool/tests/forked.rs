//! A forked child gets errors from a pool and a lane that it inherited, and changes nothing of its
//! parent's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(unsafe_code, reason = "forks")]

use forebay_pool::{AheadBytes, AppendError, ClaimOptions, Lane, Pool, PoolErrorKind, PoolOptions};
use std::{
    io::IoSlice,
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    ptr,
    time::Duration,
};
use tempfile::TempDir;
use uuid::Uuid;

const OWNER: Uuid = Uuid::from_u128(7);
/// What a child ends with in which all was as it should be.
const WELL: i32 = 42;

fn options(on_disk: bool) -> PoolOptions {
    let options = PoolOptions::new().size(16 << 20).segment_size(1 << 20);
    match on_disk {
        true => options.lanes(4).on_disk(true),
        false => options.lanes(4).emulated(true),
    }
}

fn new_pool(on_disk: bool) -> (TempDir, PathBuf, Pool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = options(on_disk).create(&path).unwrap();
    (dir, path, pool)
}

fn claim(pool: &Pool) -> (Lane, Vec<Vec<u8>>) {
    let options = ClaimOptions::new().segments(4);
    let (lane, recovered) = pool.claim(OWNER, &options).unwrap();
    let found = recovered.records().map(|r| r.payload.to_vec()).collect();
    (lane, found)
}

fn append(lane: &Lane, number: u8) -> Result<(), AppendError> {
    let lsn = lane.append(1, &[IoSlice::new(&[number; 3000])])?;
    lane.commit(lsn + 1)
}

/// Runs `what` in a forked child, which neither hangs nor ends otherwise than it should.
fn in_child(what: impl FnOnce()) {
    // SAFETY: the child uses what it has of the C library's memory, whose locks `fork` looks after,
    // and ends without any of the parent's destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: they end the child.
        unsafe {
            libc::alarm(20);
            let done = catch_unwind(AssertUnwindSafe(what));
            libc::_exit(done.map_or(1, |()| WELL));
        }
    }
    let mut status = 0;
    // SAFETY: it is a child of ours, and `status` is there.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child was killed: {status}");
    assert_eq!(libc::WEXITSTATUS(status), WELL, "the child failed");
}

fn refuses_everything(pool: &Pool, lane: &Lane) {
    let forked = Err(AppendError::Forked);
    assert_eq!(append(lane, 9), forked);
    assert_eq!(lane.append_in(0, 1, &[]), Err(AppendError::Forked));
    assert_eq!(lane.next_segment(None), Err(AppendError::Forked));
    assert_eq!(lane.commit(u64::MAX), forked);
    assert_eq!(lane.wait_drained(lane.seal()), forked);
    assert_eq!(lane.segment(), None);
    assert!(lane.read(64, 100).is_none());
    let ahead = AheadBytes { min: 1, max: 1 };
    assert!(lane.take(Some(ahead), Duration::MAX).is_none());
    lane.drain_goes_on();
    lane.forget_ahead();
    lane.close();
    assert!(!lane.give_back());
    assert!(lane.failure().unwrap().contains("forked"));
    assert_eq!(lane.usage().segments_used, 0);
    assert!(lane.relabel("the child's").is_err());
    let refused = pool.claim(OWNER, &ClaimOptions::new()).err().unwrap();
    assert!(matches!(refused.kind, PoolErrorKind::Forked), "{refused}");
    assert!(refused.to_string().contains("open it again"), "{refused}");
    assert!(pool.lanes().is_empty());
    assert!(pool.last_session(OWNER).is_err());
    assert!(pool.segments_free().is_err());
}

/// Promise: as `what_a_child_drops_stays_its_parents`.
#[test]
fn a_forked_child_gets_an_error_from_every_call() {
    for on_disk in [false, true] {
        let (_dir, path, pool) = new_pool(on_disk);
        let (lane, _) = claim(&pool);
        for number in 0..50 {
            append(&lane, number).unwrap();
        }
        in_child(|| refuses_everything(&pool, &lane));
        for number in 50..100 {
            append(&lane, number).unwrap();
        }
        drop((lane, pool));
        let (_lane, found) = claim(&PoolOptions::new().open(path).unwrap());
        let numbers: Vec<u8> = found.iter().map(|payload| payload[0]).collect();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn a_child_forked_while_threads_append_does_not_wait_for_them() {
    let (_dir, _, pool) = new_pool(true);
    let (lane, _) = claim(&pool);
    lane.set_stalled("there is no drain".into());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| while append(&lane, 1).is_ok() {});
        }
        for _ in 0..20 {
            in_child(|| refuses_everything(&pool, &lane));
        }
    });
}

/// A copy of what the parent keeps, for a child to drop.
fn inherited<T>(kept: &ManuallyDrop<T>) -> T {
    // SAFETY: this process has its own copy of the bytes, and ends without dropping the original.
    unsafe { ptr::read(&raw const **kept) }
}

/// Promise (pool): A forked child gets an error from every call on an inherited pool or lane, and
/// its drops give back nothing of its parent's.
#[test]
fn what_a_child_drops_stays_its_parents() {
    for on_disk in [false, true] {
        let (_dir, path, pool) = new_pool(on_disk);
        let (lane, _) = claim(&pool);
        append(&lane, 1).unwrap();
        lane.seal();
        append(&lane, 2).unwrap();
        {
            let sealed = ManuallyDrop::new(lane.take_sealed(Duration::ZERO).unwrap());
            let read = ManuallyDrop::new(lane.read(lane.segment().unwrap() + 64, 64).unwrap());
            in_child(|| {
                drop((inherited(&sealed), inherited(&read)));
                is_in_use(&path);
            });
            in_child(|| inherited(&sealed).release());
            drop(ManuallyDrop::into_inner(read));
            append(&lane, 3).unwrap();
            ManuallyDrop::into_inner(sealed).release();
        }
        let kept = ManuallyDrop::new((lane, pool));
        in_child(|| {
            drop(inherited(&kept));
            is_in_use(&path);
        });
        is_in_use(&path);
        append(&kept.0, 4).unwrap();
        drop(ManuallyDrop::into_inner(kept));
        let (_lane, found) = claim(&PoolOptions::new().open(path).unwrap());
        let numbers: Vec<u8> = found.iter().map(|payload| payload[0]).collect();
        assert_eq!(numbers, [2, 3, 4]);
    }
}

/// Also in a child a pool that it opens itself is as good as any: it sees that the lane is taken.
fn is_in_use(path: &Path) {
    let own = PoolOptions::new().open(path).unwrap();
    let refused = own.claim(OWNER, &ClaimOptions::new()).err().unwrap();
    assert!(matches!(refused.kind, PoolErrorKind::InUse { .. }));
    let (other, _) = own
        .claim(Uuid::new_v4(), &ClaimOptions::new())
        .expect("there are other lanes");
    append(&other, 4).unwrap();
    assert!(other.read(64, 64).is_some());
    drop(other);
}

#[test]
fn a_child_that_gave_up_its_copy_keeps_no_lane_taken() {
    let (_dir, path, pool) = new_pool(false);
    drop(pool);
    let (said, say) = std::io::pipe().unwrap();
    let (until, end) = std::io::pipe().unwrap();
    let kept = ManuallyDrop::new((say, end));
    // Its child lives on when it is dead.
    in_child(|| {
        let pool = PoolOptions::new().open(&path).unwrap();
        let (lane, _) = claim(&pool);
        append(&lane, 1).unwrap();
        // In the owner it does nothing.
        lane.abandon();
        is_in_use(&path);
        // SAFETY: see `in_child`.
        if unsafe { libc::fork() } == 0 {
            lane.abandon();
            let (say, end) = inherited(&kept);
            drop((say, end));
            // SAFETY: it ends the child, if nothing else does.
            unsafe { libc::alarm(20) };
            std::io::read_to_string(until).unwrap();
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        std::mem::forget((lane, pool));
    });
    let (say, end) = ManuallyDrop::into_inner(kept);
    drop(say);
    std::io::read_to_string(said).unwrap();
    let (_lane, found) = claim(&PoolOptions::new().open(&path).unwrap());
    assert_eq!(found.len(), 1);
    drop(end);
}
