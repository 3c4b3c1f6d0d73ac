//! The process as `forebay-lab wisckey` starts it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay-peers"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_run_prints_one_line_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let ran = run(&["redb", path, "put", "20", "0", "4096", "9", "0", "1048576"]);
    assert!(ran.status.success(), "{ran:?}");
    let line: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&line["name"], &line["ops"]), (&"redb".into(), &20.into()));
}

#[test]
fn what_is_wrong_is_said_and_the_exit_status_tells_which_kind() {
    let usage = run(&["redb"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&usage.stderr).contains("STORE DIR put OPS"));
    let nowhere = run(&[
        "fjall",
        "/proc/none",
        "put",
        "1",
        "0",
        "1",
        "1",
        "0",
        "1048576",
    ]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nowhere.stderr).starts_with("fjall: "));
}
