//! A process of several threads that write to a log forks while they wait for each other: its
//! child's threads do the same, and none waits for one of its parent's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    recovered::{Disk, RUN, run_and_recovered, same},
};

/// Promise (processes): Threads of a forked child wait for no thread of its parent.
#[test]
fn threads_of_a_forked_child_wait_for_none_of_its_parents() {
    let sandbox = Sandbox::new();
    common::build("forks", sandbox.path());
    let run = sandbox.command(RUN);
    let found = run_and_recovered(Disk::Synced, &sandbox, run, &["./forks"]);
    assert_eq!(same(found), [b'a'; 100]);
}
