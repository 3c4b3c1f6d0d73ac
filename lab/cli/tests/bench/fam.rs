//! The benchmark of the resident store and LevelDB on fabric memory: a row of each store, size,
//! cache policy and workload.

use crate::{assert_nothing_is_left, common::Sandbox};
use serde_json::Value;

#[test]
fn the_resident_store_and_leveldb_are_measured_on_fabric_memory() {
    let sandbox = Sandbox::new();
    let line = "fam --quick --json --dir . --sizes 16,1k --pairs 100";
    let report = sandbox.json(line);
    assert_eq!(report["bench"], "fam");
    let rows = report["rows"].as_array().unwrap();
    let missing = report["missing"].as_array().unwrap();
    let mut stores = vec!["forebay"];
    match &missing[..] {
        [] => stores.push("leveldb"),
        [one] => {
            assert_eq!(one["store"], "leveldb");
            let error = one["error"].as_str().unwrap();
            assert!(error.starts_with("not "), "{error}");
            println!("skipped: leveldb: {error}");
        }
        more => panic!("{more:?}"),
    }
    let workloads = [
        "sequential_put",
        "random_put",
        "random_put_sync",
        "sequential_get",
        "random_get",
    ];
    for store in &stores {
        for size in [16, 1024] {
            for policy in ["uc", "wt", "wc"] {
                for workload in workloads {
                    let found: Vec<&Value> = rows
                        .iter()
                        .filter(|row| {
                            row["store"] == *store
                                && row["pair_bytes"] == size
                                && row["policy"] == policy
                                && row["workload"] == workload
                        })
                        .collect();
                    let [row] = found[..] else {
                        panic!("{} rows of {store} {size} {policy} {workload}", found.len());
                    };
                    let us = row["us_per_op"].as_f64().unwrap();
                    assert!(us > 0.0, "{row}");
                    // No access to the device is faster than the device: 11.4 us for a write, 9.6
                    // us for a read, unless it is cached.
                    if *store == "forebay" && (workload.contains("put") || policy == "uc") {
                        assert!(us >= 9.6, "{row}");
                    }
                }
            }
        }
    }
    assert_eq!(rows.len(), stores.len() * 2 * 3 * workloads.len());
    let is_uc = |row: &Value| row["policy"] == "uc";
    let told = |row: &Value| row["percent_below_uc"].is_null() == is_uc(row);
    assert!(rows.iter().all(told), "{report}");
    assert_nothing_is_left(&sandbox);
    let table = sandbox
        .run("fam --quick --dir . --sizes 64 --pairs 20 --policies uc,wc")
        .ok()
        .text();
    assert!(
        table.contains("random_put_sync") && table.contains("% below uc"),
        "{table}"
    );
    for (line, words) in [
        (
            "fam --policies wb",
            ["no such cache policy", "uc, wt and wc"],
        ),
        ("fam --sizes 8", ["pairs of 8 bytes", "9 to"]),
        ("fam --pairs 10000000", ["Take fewer pairs", "resident"]),
    ] {
        sandbox.run(line).fails(2, &words);
    }
}
