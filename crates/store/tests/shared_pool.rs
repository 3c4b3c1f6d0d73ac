//! One pool, several processes, one of which dies: examples/shared-pool, run as a user would.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::{fs, process::Command};

#[test]
fn a_node_takes_a_killed_nodes_lane_over_and_misses_nothing() {
    let Some(example) = common::example("shared-pool") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    // It ends its nodes when it ends.
    let ran = Command::new("timeout")
        .args(["--kill-after=5", "240"])
        .arg(example)
        .arg(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}{complained}");
    for words in [
        "refused: ",
        "killed with SIGKILL",
        "takes node 1's store over: last ",
        "Nothing that was acknowledged is missing.",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
