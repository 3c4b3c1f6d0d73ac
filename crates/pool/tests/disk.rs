//! A pool on a disk, in an ordinary file.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_pool::{ClaimOptions, Pool, PoolOptions, media::PoolPersistence};
use std::{fs::File, io::IoSlice, os::fd::AsFd, path::Path};
use uuid::Uuid;

fn create(path: &Path) -> Pool {
    let options = PoolOptions::new().size(2 << 20).segment_size(64 << 10);
    options.lanes(4).on_disk(true).create(path).unwrap()
}

fn payloads(path: &Path, owner: Uuid) -> Vec<Vec<u8>> {
    let (_, recovered) = PoolOptions::new()
        .open(path)
        .unwrap()
        .claim(owner, &ClaimOptions::default())
        .unwrap();
    recovered.records().map(|r| r.payload.to_vec()).collect()
}

/// Promise (pool): Recovery returns every record that was committed to a disk, whichever process
/// appended or committed it, and none that was not, after a power cut.
#[test]
fn committed_records_are_recovered_and_others_go_with_memory() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("pool");
    let pool = create(&path);
    assert!(pool.needs_commit());
    assert_eq!(pool.durability(), PoolPersistence::PowerCutOnceCommitted);
    drop(pool);
    let pool = PoolOptions::new().open(&path).unwrap();
    let owner = Uuid::new_v4();
    let lane = pool.claim_shared(owner, &ClaimOptions::default()).unwrap();
    let member = lane.member();
    let mut expected = Vec::new();
    // Over several segments, which are prepared but not released.
    for turn in 0..40_u32 {
        let payload = vec![turn as u8; 100 + turn as usize * 20];
        let lsn = member.append(1, &[IoSlice::new(&payload)]).unwrap();
        expected.push(payload);
        if turn % 3 == 0 {
            member.commit(lsn + 1).unwrap();
        }
    }
    member.append(1, &[IoSlice::new(b"lost")]).unwrap();
    drop((lane, pool));
    assert_eq!(payloads(&path, owner), expected[..40]);
}

/// Promise: as `committed_records_are_recovered_and_others_go_with_memory`.
#[test]
fn a_process_sent_the_pools_memory_commits_anothers_appends() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("pool");
    let pool = create(&path);
    let owner = Uuid::new_v4();
    let lane = pool.claim_shared(owner, &ClaimOptions::default()).unwrap();
    let send = |fd: Option<std::os::fd::BorrowedFd<'_>>| fd.unwrap().try_clone_to_owned().unwrap();
    let file = File::from(send(pool.descriptor()));
    let memory = send(pool.shared_memory());
    let theirs = PoolOptions::new()
        .open_shared(&path, file, Some(memory))
        .unwrap();
    let member = theirs.join(lane.state_fd().as_fd(), 1).unwrap();
    let lsn = lane.member().append(1, &[IoSlice::new(b"ours")]).unwrap();
    member.commit(lsn + 1).unwrap();
    member.append(1, &[IoSlice::new(b"theirs")]).unwrap();
    lane.commit().unwrap();
    drop((member, theirs, lane, pool));
    assert_eq!(payloads(&path, owner), [&b"ours"[..], b"theirs"]);
}

#[test]
fn an_open_pool_sees_what_another_process_did_with_a_lane() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("pool");
    drop(create(&path));
    let (ours, theirs) = (
        PoolOptions::new().open(&path).unwrap(),
        PoolOptions::new().open(&path).unwrap(),
    );
    let owner = Uuid::new_v4();
    assert!(!ours.has_lane(owner).unwrap());
    let (lane, _) = theirs.claim(owner, &ClaimOptions::new()).unwrap();
    assert!(ours.has_lane(owner).unwrap());
    assert_eq!(ours.last_session(owner).unwrap(), Some(lane.epoch()));
}

#[test]
fn a_label_that_the_disk_does_not_take_is_a_failure() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("pool");
    let pool = create(&path);
    let owner = Uuid::new_v4();
    let (lane, _) = pool.claim(owner, &ClaimOptions::default()).unwrap();
    lane.relabel("taken").unwrap();
    // Its tables are gone.
    let cut = File::options().write(true).open(&path).unwrap();
    cut.set_len(4096).unwrap();
    let error = lane.relabel("refused").unwrap_err().to_string();
    assert!(error.contains("writing the pool's tables"), "{error}");
}
