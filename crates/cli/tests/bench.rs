//! `forebay bench`: plain and under Forebay in turns, a figure for each, and nothing left behind.
//! Not how fast.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox};
use forebay_bench::processes::{Process, find_eatmydata};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};

fn is_figure(value: &Value) -> bool {
    value.as_f64().is_some_and(|v| v.is_finite() && v > 0.0)
}

/// Nothing is left but the directory `pools`, which is empty.
#[track_caller]
fn assert_clean(sandbox: &Sandbox) {
    let left: Vec<_> = fs::read_dir(sandbox.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let pools = sandbox.file("pools");
    assert_eq!(fs::read_dir(pools).unwrap().count(), 0);
}

#[test]
fn every_database_is_measured_plain_and_with_each_pool() {
    for line in [
        "redis --clients 2",
        "rocksdb",
        "postgres --clients 2",
        "mariadb --clients 2",
        "sqlite",
        "sqlite --journal delete",
    ] {
        let sandbox = Sandbox::on_disk();
        sandbox.let_in();
        fs::create_dir(sandbox.file("pools")).unwrap();
        let ran = sandbox.run(&format!(
            "bench {line} --quick --json --dir . --pool-disk pools"
        ));
        if ran.stderr.contains("not installed") {
            assert!(std::env::var_os("CI").is_none(), "{}", ran.stderr);
            println!("skipped: {}", ran.stderr.trim());
            continue;
        }
        let report = ran.ok().json();
        assert!(line.starts_with(report["bench"].as_str().unwrap()));
        assert!(is_figure(&report["device"]["fsync_us"]), "{report}");
        let rows = report["rows"].as_array().unwrap();
        let modes: Vec<_> = rows
            .iter()
            .map(|row| row["mode"].as_str().unwrap())
            .collect();
        let eaten = find_eatmydata().map(|_| "eatmydata");
        let expected: Vec<_> = ["plain"]
            .into_iter()
            .chain(eaten)
            .chain(["forebay", "forebay_disk"])
            .collect();
        assert_eq!(modes, expected, "{line}");
        for row in rows {
            assert!(
                is_figure(&row["ops_per_s"]) && is_figure(&row["mean_us"]),
                "{row}"
            );
            assert!(!row["survives"].as_str().unwrap().is_empty(), "{row}");
        }
        for (mode, row) in modes.iter().zip(rows) {
            assert_eq!(mode.starts_with("forebay"), !row["pool"].is_null(), "{row}");
        }
        let figure = |at: usize| rows[at]["ops_per_s"].as_f64().unwrap();
        let ratio = report["ratios"]["forebay_disk_over_plain"]
            .as_f64()
            .unwrap();
        assert!((ratio - figure(rows.len() - 1) / figure(0)).abs() < 1e-9 * ratio);
        assert_clean(&sandbox);
    }
}

#[test]
fn an_append_is_measured_beside_a_synced_write_and_the_users_pool_is_given_back() {
    let sandbox = Sandbox::on_disk();
    sandbox.pool();
    let line = "bench pool --quick --json --dir . --pool p --pool-disk . --sizes 64,4k";
    let report = sandbox.run(line).ok().json();
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
    let status = sandbox.run("pool status p --json").ok().json();
    assert_eq!(status["owners"], serde_json::json!([]));
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 1);
    let table = sandbox
        .run("bench pool --quick --dir . --sizes 64")
        .ok()
        .text();
    assert!(
        table.contains("x the file") && table.contains("power cut"),
        "{table}"
    );
    assert!(!table.contains("own write"), "{table}");
}

#[test]
fn the_users_pool_on_a_disk_is_measured_beside_the_disks_own_write() {
    let sandbox = Sandbox::on_disk();
    sandbox.run("pool create p --disk --size 32MiB").ok();
    let line = "bench pool --quick --dir . --pool p --sizes 64";
    let table = sandbox.run(line).ok().text();
    assert!(
        table.contains("own write p50") && table.contains("x own p99"),
        "{table}"
    );
    let status = sandbox.run("pool status p --json").ok().json();
    assert_eq!(status["owners"], serde_json::json!([]));
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 1);
}

/// Processes whose command lines have `text`.
fn processes_with(text: &str) -> Vec<String> {
    let lines = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&line).replace('\0', " "))
        });
    lines.filter(|line| line.contains(text)).collect()
}

#[test]
fn a_benchmark_that_is_interrupted_leaves_no_server_and_no_file() {
    let sandbox = Sandbox::on_disk();
    fs::create_dir(sandbox.file("pools")).unwrap();
    let here = sandbox.path().to_str().unwrap();
    let line = format!("bench mariadb --quick --rounds 1000 --dir {here} --pool-disk {here}/pools");
    let mut bench = Process::spawn(sandbox.command(&line).stderr(Stdio::piped())).unwrap();
    let mut said = BufReader::new(bench.child().stderr.take().unwrap()).lines();
    let mut last = String::new();
    while !last.contains("forebay_disk") {
        match said.next() {
            Some(next) => last = next.unwrap(),
            None if last.contains("not installed") => {
                assert!(std::env::var_os("CI").is_none(), "{last}");
                println!("skipped: {last}");
                return;
            }
            None => panic!("it ended: {last}"),
        }
    }
    let until = Instant::now() + Duration::from_secs(60);
    while !processes_with(here)
        .iter()
        .any(|line| line.contains("mariadbd"))
    {
        assert!(Instant::now() < until, "no server was started");
        std::thread::sleep(Duration::from_millis(10));
    }
    bench.handle().signal(Signal::INT);
    let status = bench.wait(Duration::from_secs(60)).unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(processes_with(here), [""; 0]);
    assert_clean(&sandbox);
}

#[test]
fn a_benchmark_that_cannot_be_run_says_why() {
    let sandbox = Sandbox::new();
    for (line, words) in [
        ("bench pool --sizes 1G", ["too many", "at most"]),
        ("bench redis --rounds 0", ["0", "--rounds"]),
        ("bench redis --clients 0", ["0", "--clients"]),
        ("bench wisckey", ["unrecognized subcommand", "wisckey"]),
    ] {
        sandbox.run(line).fails(2, &words);
    }
    for (line, remedy) in [
        ("redis", "redis-server redis-tools"),
        ("rocksdb", "apt-get install rocksdb-tools"),
        ("sqlite", "apt-get install sqlite3"),
        ("mariadb", "apt-get install mariadb-server sysbench"),
    ] {
        let mut bench = sandbox.command(&format!("bench {line} --quick"));
        Ran::of(bench.env("PATH", "/nowhere").output().unwrap())
            .fails(2, &["not installed", remedy]);
    }
}
