//! Pools on legs: a member's commits are recovered by the pool's file alone.

use super::{
    BYTES, LEG_BYTES,
    server::{FakeServer, until},
};
use crate::{ClaimOptions, Member, Pool, PoolError, PoolOptions, SharedLane, Uuid};
use std::{
    fs::{self, File},
    io::IoSlice,
    path::Path,
};

fn create(path: &Path, servers: &[FakeServer]) -> Pool {
    create_on(path, servers.iter().map(FakeServer::url).collect()).unwrap()
}

pub(super) fn create_on(path: &Path, urls: Vec<String>) -> Result<Pool, PoolError> {
    let options = PoolOptions::new().size(BYTES as u64).segment_size(64 << 10);
    options.lanes(4).legs(urls).create(path)
}

/// Another process's part in the lane, as far as one process can have it.
pub(super) fn join(path: &Path, pool: &Pool, lane: &SharedLane) -> Member {
    let file = rustix::io::dup(pool.descriptor().unwrap()).unwrap();
    let memory = rustix::io::dup(pool.shared_memory().unwrap()).unwrap();
    let joined = PoolOptions::new().open_shared(path, File::from(file), Some(memory));
    joined
        .unwrap()
        .join(lane.state_fd(), 1)
        .unwrap()
        .asking(|| false)
}

pub(super) fn log(member: &Member, text: &str) -> bool {
    let appended = member.append(1, &[IoSlice::new(text.as_bytes())]);
    appended.is_ok() && member.end().and_then(|end| member.commit(end)).is_ok()
}

pub(super) fn recovered(path: &Path, owner: Uuid) -> Vec<String> {
    let pool = PoolOptions::new().open(path).unwrap();
    let (_lane, recovered) = pool.claim(owner, &ClaimOptions::new()).unwrap();
    let text = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
    recovered
        .records()
        .map(|record| text(record.payload))
        .collect()
}

/// Promise (pool): What a member committed is recovered on another machine by the pool's file
/// alone, and the machine before acknowledges nothing more.
#[test]
fn what_a_member_committed_is_recovered_on_another_machine() {
    let servers = [FakeServer::start(LEG_BYTES), FakeServer::start(LEG_BYTES)];
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
    let pool = create(&path, &servers);
    let owner = Uuid::new_v4();
    let lane = pool.claim_shared(owner, &ClaimOptions::new()).unwrap();
    let member = join(&path, &pool, &lane);
    for text in ["one", "two", "three"] {
        assert!(log(&member, text));
    }
    member.append(1, &[IoSlice::new(b"not committed")]).unwrap();
    // Another process of this machine may look, and not write.
    let looking = PoolOptions::new().open(&path).unwrap();
    assert!(
        looking
            .lanes()
            .iter()
            .any(|lane| lane.owner == owner && lane.in_use)
    );
    let refused = looking
        .claim(Uuid::new_v4(), &ClaimOptions::new())
        .map(drop)
        .unwrap_err();
    assert!(refused.to_string().contains("one writer"), "{refused}");
    // The old machine lives on, and has its legs.
    fs::copy(&path, &copy).unwrap();
    assert_eq!(recovered(&copy, owner), ["one", "two", "three"]);
    // It finds out by itself, before it writes anything.
    until("the old writer's end", || {
        pool.describe().contains("another machine")
    });
    assert!(!log(&member, "late"));
    assert_eq!(recovered(&copy, owner), ["one", "two", "three"]);
}

/// A user who says that a leg is lost says it once, also of a pool that has nothing to recover.
#[test]
fn a_leg_that_was_given_up_is_not_asked_for_again() {
    let servers = [FakeServer::start(LEG_BYTES), FakeServer::start(LEG_BYTES)];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    drop(create(&path, &servers));
    servers[1].stop(true);
    let refused = PoolOptions::new().open(&path).map(drop).unwrap_err();
    assert!(refused.to_string().contains("--lost-leg"), "{refused}");
    let given_up = PoolOptions::new()
        .lost_legs(vec![servers[1].url()])
        .open(&path);
    given_up.unwrap().leave_lost_legs().unwrap();
    let pool = PoolOptions::new().open(&path).unwrap();
    assert!(pool.degradation().is_some(), "{}", pool.describe());
}

/// Promise (pool): A leg that fails under a member's commits costs none of them, and one without
/// any leg fails.
#[test]
fn a_member_is_told_when_its_pool_has_fewer_copies() {
    let servers = [FakeServer::start(LEG_BYTES), FakeServer::start(LEG_BYTES)];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = create(&path, &servers);
    let owner = Uuid::new_v4();
    let lane = pool.claim_shared(owner, &ClaimOptions::new()).unwrap();
    let member = join(&path, &pool, &lane);
    assert!(log(&member, "on both") && !member.is_degraded());
    servers[0].stop(true);
    assert!(log(&member, "on one") && member.is_degraded());
    let told = pool.degradation().unwrap();
    assert!(told.contains(&servers[0].url()), "{told}");
    servers[0].go_on();
    until("a complete leg", || pool.degradation().is_none());
    until("word of it", || !member.is_degraded());
    assert!(log(&member, "on both again"));
    drop((member, lane));
    drop(pool);
    // By the leg that had been lost.
    servers[1].stop(false);
    let open = |lost: &[String]| PoolOptions::new().lost_legs(lost.to_vec()).open(&path);
    let refused = open(&[]).map(drop).unwrap_err().to_string();
    assert!(refused.contains(&servers[1].url()), "{refused}");
    let pool = open(&[servers[1].url()]).unwrap();
    let (_lane, recovered) = pool.claim(owner, &ClaimOptions::new()).unwrap();
    assert_eq!(recovered.records().count(), 3);
    assert!(open(&["nbd://127.0.0.1:9/x".to_owned()]).is_err());
}
