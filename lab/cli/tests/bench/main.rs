//! `forebay-lab`: complete and sane reports. Not how fast.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod commit;
#[path = "../common/mod.rs"]
mod common;
mod databases;
mod disks;
mod fam;
mod interrupted;
mod pool;
mod refused;
mod wisckey;
mod ycsb;

use common::Sandbox;
use serde_json::Value;
use std::fs;

/// The rows of a peer; none if it is not installed, as they say then.
fn rows_of_peer<'a>(peers: &'a [Value], name: &str) -> Option<Vec<&'a Value>> {
    let rows: Vec<&Value> = peers.iter().filter(|peer| peer["name"] == name).collect();
    if let [only] = rows[..] {
        let error = only["error"].as_str().unwrap();
        assert!(error.starts_with("not installed: "), "{only}");
        println!("skipped: {name} is {error}");
        return None;
    }
    Some(rows)
}

fn is_figure(value: &Value) -> bool {
    value.as_f64().is_some_and(|v| v.is_finite() && v >= 0.0)
}

#[track_caller]
fn assert_nothing_is_left(sandbox: &Sandbox) {
    let left: Vec<_> = fs::read_dir(sandbox.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[track_caller]
fn assert_row(row: &Value) {
    for field in [
        "value_bytes",
        "threads",
        "ops",
        "seconds",
        "ops_per_s",
        "mb_per_s",
        "p50_us",
        "p99_us",
        "p999_us",
    ] {
        assert!(is_figure(&row[field]), "{field} in {row}");
    }
    let (ops, seconds, rate) = (&row["ops"], &row["seconds"], &row["ops_per_s"]);
    let ratio = ops.as_f64().unwrap() / seconds.as_f64().unwrap() / rate.as_f64().unwrap();
    assert!((0.999..1.001).contains(&ratio), "{row}");
    let (p50, p999) = (
        row["p50_us"].as_f64().unwrap(),
        row["p999_us"].as_f64().unwrap(),
    );
    assert!(p50 > 0.0 && p50 <= p999, "{row}");
    for field in ["fsync_cpu_share", "write_amplification"] {
        assert!(row.get(field).is_some(), "{field} is missing in {row}");
    }
}
