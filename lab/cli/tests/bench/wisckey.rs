//! The store's benchmark: every variant, workload and peer gets rows, and a peer that is not
//! installed says how it can be.

use crate::{
    assert_nothing_is_left, assert_row,
    common::{self, Sandbox},
    is_figure, rows_of_peer,
};
use serde_json::Value;

#[test]
fn every_variant_and_the_peer_get_a_row() {
    let sandbox = Sandbox::new();
    let line = "wisckey --quick --json --peers=rocksdb --dir . --ops 500 --variants fsync,nosync,single,double,buffers=4";
    let report = sandbox.json(line);
    assert_eq!(report["bench"], "wisckey");
    assert!(
        is_figure(&report["device"]["seq_write_mb_s"]) && is_figure(&report["device"]["fsync_us"])
    );
    let rows = report["rows"].as_array().unwrap();
    let variants: Vec<_> = rows
        .iter()
        .map(|row| row["variant"].as_str().unwrap())
        .collect();
    assert_eq!(
        variants,
        ["fsync", "nosync", "single", "double", "buffers=4"]
    );
    for row in rows {
        assert_row(row);
        assert_eq!(
            (&row["workload"], &row["ops"]),
            (&"put".into(), &500.into())
        );
        assert!(is_figure(&row["fsync_cpu_share"]), "{row}");
    }
    let peers = report["peers"].as_array().unwrap();
    if peers.len() == 1 {
        assert!(
            peers[0]["error"]
                .as_str()
                .unwrap()
                .contains("apt-get install rocksdb-tools")
        );
    } else {
        let modes: Vec<_> = peers
            .iter()
            .map(|peer| peer["mode"].as_str().unwrap())
            .collect();
        assert_eq!(modes, ["sync", "nosync", "disable_wal"]);
        peers.iter().for_each(assert_row);
        assert!(is_figure(
            &report["ratios"]["put_double_4096_over_rocksdb_disable_wal"]
        ));
    }
    assert!(is_figure(&report["ratios"]["put_double_4096_over_fsync"]));
    assert_nothing_is_left(&sandbox);
}

#[test]
fn a_peer_that_is_not_installed_is_reported_and_the_run_goes_on() {
    let sandbox = Sandbox::new();
    let mut bench = sandbox.command(
        "wisckey --quick --json --peers=rocksdb,leveldb --dir . --ops 200 --variants nosync",
    );
    let report = common::Ran::of(bench.env("PATH", "/nowhere").output().unwrap())
        .ok()
        .json();
    assert_eq!(
        report["peers"],
        serde_json::json!([
            {"name": "rocksdb", "error": "not installed: apt-get install rocksdb-tools"},
            {"name": "leveldb", "error": "not installed: apt-get install libleveldb-dev build-essential"}
        ])
    );
    assert_eq!(report["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn every_peer_gets_rows_or_says_how_to_install_it() {
    let sandbox = Sandbox::new();
    let line =
        "wisckey --quick --json --peers --dir . --ops 200 --value-size 1000 --variants double";
    let report = sandbox.json(line);
    let peers = report["peers"].as_array().unwrap();
    for name in [
        "rocksdb",
        "rocksdb_blob",
        "leveldb",
        "lmdb",
        "fjall",
        "redb",
    ] {
        let Some(of_peer) = rows_of_peer(peers, name) else {
            continue;
        };
        let modes: Vec<_> = of_peer
            .iter()
            .map(|peer| peer["mode"].as_str().unwrap())
            .collect();
        assert_eq!(modes[..2], ["sync", "nosync"], "{name}");
        for peer in of_peer {
            assert_row(peer);
            assert_eq!(
                (&peer["ops"], &peer["value_bytes"]),
                (&200.into(), &1000.into())
            );
        }
        let ratio = format!("put_double_1000_over_{name}_nosync");
        assert!(is_figure(&report["ratios"][&ratio]), "{ratio}");
    }
    assert_nothing_is_left(&sandbox);
    sandbox
        .run("wisckey --peers=oracle")
        .fails(2, &["no such peer", "lmdb"]);
}

#[test]
fn the_other_workloads_get_their_rows() {
    let sandbox = Sandbox::new();
    let line =
        "wisckey --quick --json --peers=rocksdb --no-puts --reads --overwrite --reopen --dir .";
    let report = sandbox.json(line);
    let rows = report["rows"].as_array().unwrap();
    let find = |workload: &str| rows.iter().find(|row| row["workload"] == workload).unwrap();
    for workload in ["get", "scan_100", "get_cold", "scan_100_cold", "overwrite"] {
        assert_row(find(workload));
    }
    assert!(
        find("overwrite")["space_amplification_max"]
            .as_f64()
            .unwrap()
            >= 1.0
    );
    assert!(is_figure(&find("reopen")["open_seconds"]));
}

#[test]
fn reads_of_one_store_after_the_other_have_its_space() {
    let sandbox = Sandbox::new();
    let line = "wisckey --quick --json --no-puts --reads --one-by-one --peers=rocksdb,rocksdb_blob --read-ops 300 --dir .";
    let report = sandbox.json(line);
    let rows = ["rows", "peers"].map(|of| report[of].as_array().unwrap());
    let measured = rows
        .into_iter()
        .flatten()
        .filter(|row| row["error"].is_null());
    let rows: Vec<&Value> = measured.collect();
    // Two of the small data set, and four of the whole one.
    assert!(rows.len() == 6 || rows.len() == 18, "{}", rows.len());
    for row in rows {
        assert_row(row);
        let wanted: u64 = if row["workload"].as_str().unwrap().starts_with("get") {
            300
        } else {
            15
        };
        assert_eq!(row["ops"], wanted, "{row}");
        let space = row["space_amplification_final"].as_f64().unwrap();
        assert!((0.9..50.0).contains(&space), "{row}");
    }
    assert_nothing_is_left(&sandbox);
}

#[test]
fn stalls_deletes_and_scans_get_their_rows() {
    let sandbox = Sandbox::new();
    let line = "wisckey --quick --json --no-puts --stalls --queue --scans --dir .";
    let report = sandbox.json(line);
    let rows = report["rows"].as_array().unwrap();
    let find = |workload: &str| rows.iter().find(|row| row["workload"] == workload).unwrap();
    let steps = find("stalls")["histogram"].as_array().unwrap();
    let counted: u64 = steps.iter().map(|step| step["ops"].as_u64().unwrap()).sum();
    assert_eq!(counted, find("stalls")["ops"]);
    assert!(is_figure(&find("queue")["slowest_pops_us"]));
    assert!(is_figure(&find("delete_all")["empty_scan_us"]));
    assert_eq!(find("delete_all")["index_entries"], 0);
    assert!(is_figure(&find("stalls")["floor"]["max_us"]));
    let waits = find("stalls")["waits"].as_object().unwrap();
    assert!(waits.contains_key("index") && waits.contains_key("segment"));
    let scanned: Vec<_> = rows
        .iter()
        .filter(|row| row["workload"] == "scans")
        .map(|row| row["scans"].as_u64().unwrap())
        .collect();
    assert!(scanned.len() == 2 && scanned[0] == 0 && scanned[1] > 0);
}

#[test]
fn values_of_several_sizes_and_threads_are_measured_in_one_run() {
    let sandbox = Sandbox::new();
    let line = "wisckey --quick --json --dir . --value-size 0,100,1M --variants double --threads 2 --ops 101";
    let report = sandbox.json(line);
    let sizes: Vec<_> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["value_bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [0, 100, 1 << 20]);
    for row in report["rows"].as_array().unwrap() {
        assert_eq!((&row["ops"], &row["threads"]), (&101.into(), &2.into()));
    }
    let table = sandbox
        .run("wisckey --quick --dir . --variants nosync --preload 1M --no-latencies")
        .ok()
        .text();
    assert!(
        table.contains("of device") && table.contains("nosync"),
        "{table}"
    );
}
