//! Appends to a pool and their commits, beside a synced write and the disk's own: figures for each,
//! and the user's pool is given back.

use crate::common::Sandbox;
use forebay_pool::PoolOptions;
use serde_json::Value;
use std::fs;

fn is_figure(value: &Value) -> bool {
    value.as_f64().is_some_and(|v| v.is_finite() && v > 0.0)
}

/// A pool `p`, which is the user's: in memory, or on a disk.
fn users_pool(sandbox: &Sandbox, is_emulated: bool) {
    let options = PoolOptions::new().size(32 << 20).segment_size(1 << 20);
    let options = options.emulated(is_emulated).on_disk(!is_emulated);
    options.create(sandbox.file("p")).unwrap();
}

/// Nothing but the pool is left, and that has no lane any more.
#[track_caller]
fn assert_given_back(sandbox: &Sandbox) {
    let pool = PoolOptions::new().open(sandbox.file("p")).unwrap();
    assert!(pool.lanes().is_empty());
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 1);
}

#[test]
fn an_append_is_measured_and_the_users_pool_given_back() {
    let sandbox = Sandbox::on_disk();
    users_pool(&sandbox, true);
    let line = "commit --quick --json --dir . --pool p --pool-disk . --sizes 64,4k";
    let report = sandbox.json(line);
    let rows = report["rows"].as_array().unwrap();
    let of: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["bytes"].as_u64().unwrap(),
                row["mode"].as_str().unwrap(),
            )
        })
        .collect();
    let modes = ["file", "forebay", "forebay_disk"];
    let all: Vec<_> = [64, 4096]
        .into_iter()
        .flat_map(|bytes| modes.map(|mode| (bytes, mode)))
        .collect();
    assert_eq!(of, all);
    for row in rows {
        assert!(is_figure(&row["us"]) && is_figure(&row["faster"]), "{row}");
    }
    let commits = report["commits"].as_array().unwrap();
    let of: Vec<_> = commits.iter().map(|row| &row["mode"]).collect();
    assert_eq!(of, ["forebay_disk"], "an emulated pool has no commits");
    let figure = |name: &str| commits[0][name].as_f64().unwrap();
    for what in ["write", "commit"] {
        let (half, most) = (format!("{what}_p50_us"), format!("{what}_p99_us"));
        assert!(
            0.0 < figure(&half) && figure(&half) <= figure(&most),
            "{report}"
        );
    }
    let ratio = figure("commit_p99_us") / figure("write_p99_us");
    assert!((figure("p99_over_write") - ratio).abs() < 1e-9 * ratio);
    assert_eq!(report["notes"], serde_json::json!([]));
    assert_given_back(&sandbox);
    let line = "commit --quick --dir . --sizes 64";
    let table = sandbox.run(line).ok().text();
    assert!(
        table.contains("x the file") && table.contains("power cut"),
        "{table}"
    );
    assert!(!table.contains("own write"), "{table}");
}

#[test]
fn a_pool_on_a_disk_is_measured_beside_a_write_there() {
    let sandbox = Sandbox::on_disk();
    users_pool(&sandbox, false);
    let line = "commit --quick --dir . --pool p --sizes 64";
    let table = sandbox.run(line).ok().text();
    assert!(
        table.contains("own write p50") && table.contains("x own p99"),
        "{table}"
    );
    assert_given_back(&sandbox);
}
