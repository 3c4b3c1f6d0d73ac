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
fn a_driven_store_prints_a_line_for_each_workload() {
    for (store, mode) in [("fjall", "synced"), ("redb", "unsynced")] {
        let dir = tempfile::tempdir().unwrap();
        let order = serde_json::json!({
            "store": store, "dir": dir.path(), "pool": null, "library": null, "mode": mode,
            "workloads": ["A", "F", "D", "E"], "distribution": null, "records": 200,
            "value_bytes": 1024, "ops_max": 101, "seconds_max": null, "threads": 2,
            "cache_bytes": 1 << 20, "buffer_bytes": 1 << 20, "seed": 7,
        });
        let ran = run(&["ycsb", &order.to_string()]);
        assert!(ran.status.success(), "{ran:?}");
        let printed = String::from_utf8(ran.stdout).unwrap();
        let lines: Vec<serde_json::Value> = printed
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let workloads: Vec<&str> = lines
            .iter()
            .map(|line| line["workload"].as_str().unwrap())
            .collect();
        assert_eq!(workloads, ["A", "F", "D", "E"]);
        assert!(lines.iter().all(|line| line["ops"] == 101), "{printed}");
        let inserted = lines[2]["kinds"]["insert"]["ops"].as_u64().unwrap();
        assert_eq!(lines[2]["records"], 200 + inserted, "{printed}");
    }
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
