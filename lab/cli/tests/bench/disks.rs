//! Pools on disks, measured beside the emulated one: each has its row, and none pays for the device
//! of the data.

use crate::common::Sandbox;
use serde_json::Value;
use std::fs;

/// On an emulated hard disk every sync costs milliseconds, a commit of a pool on this disk does
/// not: were the pool's own file charged as well, it would be as slow as the log.
#[test]
fn a_pool_on_a_disk_is_not_charged_for_the_datas_device() {
    // What MariaDB does in this differs from PostgreSQL in nothing.
    for (line, synced, tag, disks) in [
        (
            "redis --server redis --sizes 32 --requests 300 --modes always,eatmydata,forebay --clients 1",
            "always",
            "redis_32_1",
            2,
        ),
        (
            "rocksdb --sizes 100 --puts 300 --modes sync,forebay",
            "sync",
            "100",
            1,
        ),
        ("sqlite --modes plain,eatmydata,forebay", "plain", "wal", 1),
        (
            "postgres --modes plain,forebay --clients 1",
            "plain",
            "1",
            1,
        ),
    ] {
        // The disk under the pool is shared with what else this machine does: a sync of its may
        // take as long.
        let is_faster = (0..4).any(|_| match measured_on_disks(line, disks) {
            Some(report) => are_faster(line, &report, &format!("over_{synced}_{tag}"), disks),
            None => true,
        });
        assert!(is_faster, "{line}: a pool's file is charged as the data's");
    }
}

/// The report of a run with this many pools on disks. None where the database is not installed.
fn measured_on_disks(line: &str, disks: usize) -> Option<Value> {
    let sandbox = Sandbox::on_disk();
    sandbox.let_in();
    fs::create_dir(sandbox.file("pools")).unwrap();
    let on_disks = ["--pool-disk pools", "--pool-disk ."][..disks].join(" ");
    let ran = sandbox.run(&format!(
        "{line} --quick --json --dir . --device hdd-7200 {on_disks}"
    ));
    if ran.stderr.contains("not installed") {
        assert!(std::env::var_os("CI").is_none(), "{}", ran.stderr);
        println!("skipped: {}", ran.stderr.trim());
        return None;
    }
    let report = ran.ok().json();
    let left: Vec<_> = fs::read_dir(sandbox.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let pools = sandbox.file("pools");
    assert_eq!(fs::read_dir(pools).unwrap().count(), 0);
    Some(report)
}

/// True if Forebay is faster than the synced rows with each of its pools, all of which have a row.
fn are_faster(line: &str, report: &Value, than: &str, disks: usize) -> bool {
    let rows = report["rows"].as_array().unwrap();
    let modes: Vec<_> = rows
        .iter()
        .map(|row| row["mode"].as_str().unwrap())
        .collect();
    let forebay = &["forebay", "forebay_disk", "forebay_disk_2"][..=disks];
    let ours = modes.iter().position(|mode| *mode == "forebay").unwrap();
    assert_eq!(&modes[ours..], forebay, "{line}");
    assert!(rows[ours + 1]["nvm_bytes_peak"].is_null(), "{line}");
    forebay.iter().all(|ours| {
        let faster = report["ratios"][&format!("{ours}_{than}")].as_f64();
        println!("{line}: {ours} {than} is {faster:?}");
        faster.unwrap() > 1.3
    })
}
