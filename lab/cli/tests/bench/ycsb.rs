//! YCSB's core workloads: every store gets a row of each, with its operations, and a peer that is
//! not installed says how it can be.

use crate::{
    assert_nothing_is_left,
    common::{self, Sandbox},
    is_figure, rows_of_peer,
};
use serde_json::Value;

/// The operations of each workload.
const KINDS: [(&str, [&str; 2]); 6] = [
    ("A", ["read", "update"]),
    ("B", ["read", "update"]),
    ("C", ["read", "read"]),
    ("F", ["read", "read_modify_write"]),
    ("D", ["read", "insert"]),
    ("E", ["scan", "insert"]),
];

/// A row of each workload, of one store.
#[track_caller]
fn assert_workloads(rows: &[&Value], ops: u64) {
    assert_eq!(rows.len(), KINDS.len(), "{rows:?}");
    for (row, (workload, kinds)) in rows.iter().zip(KINDS) {
        assert_eq!(
            (&row["workload"], &row["ops"]),
            (&workload.into(), &ops.into())
        );
        let mut counted = 0;
        for kind in kinds {
            for field in ["p50_us", "p99_us", "p999_us", "max_us"] {
                assert!(is_figure(&row[kind][field]), "{kind} {field} in {row}");
            }
            counted += row[kind]["ops"].as_u64().unwrap();
        }
        let twice = if workload == "C" { 2 } else { 1 };
        assert_eq!(counted, ops * twice, "{row}");
        // A store that has less than what is live has lost it.
        assert!(row["space_amplification"].as_f64().unwrap() > 0.9, "{row}");
        assert!(is_figure(&row["ops_per_s"]), "{row}");
    }
    let records = |nth: usize| rows[nth]["records"].as_u64().unwrap();
    assert!(
        records(3) < records(4) && records(4) < records(5),
        "{rows:?}"
    );
}

#[test]
fn every_store_gets_a_row_of_each_workload() {
    let sandbox = Sandbox::new();
    let report = sandbox.json("ycsb --quick --json --peers --dir . --threads 2 --ops 301");
    assert_eq!(report["bench"], "ycsb");
    assert!(is_figure(&report["device"]["fsync_us"]));
    let rows = report["rows"].as_array().unwrap();
    for variant in ["single", "double", "disk", "fsync", "nosync"] {
        let ours: Vec<&Value> = rows
            .iter()
            .filter(|row| row["variant"] == variant)
            .collect();
        assert_workloads(&ours, 301);
    }
    let peers = report["peers"].as_array().unwrap();
    for name in ["rocksdb", "rocksdb_blob", "fjall", "redb", "lmdb"] {
        let Some(of_peer) = rows_of_peer(peers, name) else {
            continue;
        };
        for mode in ["synced", "unsynced"] {
            let rows = of_peer.iter().filter(|row| row["mode"] == mode);
            assert_workloads(&rows.copied().collect::<Vec<_>>(), 301);
            let ratio = format!("A_double_by_2_over_{name}_{mode}");
            assert!(is_figure(&report["ratios"][&ratio]), "{ratio}");
        }
    }
    assert_nothing_is_left(&sandbox);
}

#[test]
fn a_workload_ends_when_its_time_is_over() {
    let sandbox = Sandbox::new();
    let line =
        "ycsb --quick --dir . --variants double --workloads b --seconds 0.1 --distribution uniform";
    let table = sandbox.run(line).ok().text();
    assert!(
        table.contains("p99.9") && table.contains("as the pool"),
        "{table}"
    );
    let line = "ycsb --quick --json --dir . --variants fsync --workloads E --seconds 0.1";
    let report = sandbox.json(line);
    let seconds = report["rows"][0]["seconds"].as_f64().unwrap();
    assert!((0.1..30.0).contains(&seconds), "{seconds}");
}

#[test]
fn a_peer_of_ycsb_that_is_not_there_says_why() {
    let sandbox = Sandbox::new();
    let line = "ycsb --quick --json --dir . --variants nosync --workloads C --peers=leveldb,lmdb";
    let mut bench = sandbox.command(line);
    let ran = common::Ran::of(bench.env("PATH", "/nowhere").output().unwrap());
    let report = ran.ok().json();
    let error = |nth: usize| report["peers"][nth]["error"].as_str().unwrap().to_owned();
    assert!(error(0).contains("no driver"), "{}", error(0));
    assert!(error(1).starts_with("not installed: "), "{}", error(1));
    assert_eq!(report["rows"].as_array().unwrap().len(), 1);
}
