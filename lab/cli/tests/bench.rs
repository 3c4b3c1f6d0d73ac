//! `forebay-lab`: complete and sane reports. Not how fast.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::Sandbox;
use serde_json::Value;
use std::fs;

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

#[test]
fn the_pool_is_measured_beside_its_floor() {
    let sandbox = Sandbox::new();
    let report = sandbox.run("pool --quick --json").ok().json();
    assert_eq!(report["bench"], "pool");
    assert!(
        report["survives"]
            .as_str()
            .unwrap()
            .contains("process crash only")
    );
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 20);
    for row in rows {
        for field in [
            "bytes",
            "threads",
            "append_ns",
            "of_one_thread",
            "append_p999_us",
            "floor_ns",
            "ratio",
        ] {
            assert!(is_figure(&row[field]), "{field} in {row}");
        }
    }
    let table = sandbox
        .run("pool --quick --sizes 64 --threads 1")
        .ok()
        .text();
    assert!(table.contains("append/floor"), "{table}");
    let report = sandbox
        .run("pool --quick --sizes 100,4k --threads 1 --processes 1,3 --json")
        .ok()
        .json();
    let rows = report["rows"].as_array().unwrap();
    // Of each size a thread, three threads of one process, one process, three processes.
    assert_eq!(rows.len(), 8);
    for row in rows.iter().filter(|row| !row["processes"].is_null()) {
        let (threads, processes) = (row["threads"].as_u64(), row["processes"].as_u64());
        assert!(matches!(
            (threads, processes),
            (Some(1 | 3), Some(1)) | (Some(1), Some(3))
        ));
        for field in ["append_ns", "of_one_thread", "floor_ns", "ratio"] {
            assert!(is_figure(&row[field]), "{field} in {row}");
        }
    }
    // Its lanes and processes are gone: no note says otherwise.
    let notes = report["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
}

#[test]
fn a_slowed_pool_is_slower_than_the_devices_latency() {
    let sandbox = Sandbox::new();
    let report = sandbox
        .run("pool --quick --json --sizes 64 --threads 1 --profile pcm")
        .ok()
        .json();
    assert!(
        report["rows"][0]["append_ns"].as_f64().unwrap() > 450.0,
        "{report}"
    );
    sandbox
        .run("pool --profile tape")
        .fails(2, &["no such device", "nvdimm-n"]);
}

#[test]
fn every_variant_and_the_peer_get_a_row() {
    let sandbox = Sandbox::new();
    let line = "wisckey --quick --json --peers=rocksdb --dir . --ops 500 --variants fsync,nosync,single,double,buffers=4";
    let report = sandbox.run(line).ok().json();
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
    let report = sandbox.run(line).ok().json();
    let peers = report["peers"].as_array().unwrap();
    for name in [
        "rocksdb",
        "rocksdb_blob",
        "leveldb",
        "lmdb",
        "fjall",
        "redb",
    ] {
        let of_peer: Vec<&Value> = peers.iter().filter(|peer| peer["name"] == name).collect();
        if let [only] = of_peer[..] {
            let error = only["error"].as_str().unwrap();
            assert!(error.starts_with("not installed: "), "{only}");
            println!("skipped: {name} is {error}");
            continue;
        }
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
fn the_resident_store_and_leveldb_are_measured_on_fabric_memory() {
    let sandbox = Sandbox::new();
    let line = "fam --quick --json --dir . --sizes 16,1k --pairs 100";
    let report = sandbox.run(line).ok().json();
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
                    // No access to the device is faster than the device: 11.4 us for a write, 9.6 us for a read, unless it is cached.
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

#[test]
fn the_other_workloads_get_their_rows() {
    let sandbox = Sandbox::new();
    let line =
        "wisckey --quick --json --peers=rocksdb --no-puts --reads --overwrite --reopen --dir .";
    let report = sandbox.run(line).ok().json();
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
fn stalls_deletes_and_scans_get_their_rows() {
    let sandbox = Sandbox::new();
    let line = "wisckey --quick --json --no-puts --stalls --queue --scans --dir .";
    let report = sandbox.run(line).ok().json();
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
    let report = sandbox.run(line).ok().json();
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

#[test]
fn a_run_that_measures_nothing_is_refused() {
    let sandbox = Sandbox::new();
    for (line, words) in [
        ("wisckey --no-puts", "nothing to measure"),
        ("wisckey --ops 0", "more than 0"),
        ("wisckey --variants twice", "unknown variant"),
        ("pool --rounds 0", "more than 0"),
        ("pool --processes 2 --profile pcm", "cannot be used with"),
    ] {
        sandbox.run(line).fails(2, &[words]);
    }
}

/// True if the report says that the server, or libeatmydata, is not installed.
fn is_missing(report: &Value, name: &str) -> bool {
    let missing = report["missing"].as_array().unwrap();
    missing
        .iter()
        .any(|m| m["name"] == name && m["error"].as_str().unwrap().contains("not installed"))
}

#[test]
fn redis_is_measured_in_every_mode() {
    let sandbox = Sandbox::new();
    let line = "redis --quick --json --dir . --server redis,valkey --sizes 32,8k --clients 1,5 --requests 200";
    let report = sandbox.run(line).ok().json();
    assert_eq!(report["bench"], "redis");
    let modes: Vec<&str> = ["off", "no", "everysec", "always", "eatmydata", "forebay"]
        .into_iter()
        .filter(|mode| !is_missing(&report, mode))
        .collect();
    let rows = report["rows"].as_array().unwrap();
    for server in ["redis", "valkey"] {
        if is_missing(&report, server) {
            println!("skipped: {server} is not installed");
            continue;
        }
        for (size, clients) in [(32, 1), (32, 5), (8192, 1), (8192, 5)] {
            let of_cell: Vec<&Value> = rows
                .iter()
                .filter(|row| {
                    row["server"] == server
                        && row["value_bytes"] == size
                        && row["clients"] == clients
                })
                .collect();
            let found: Vec<_> = of_cell
                .iter()
                .map(|row| row["mode"].as_str().unwrap())
                .collect();
            assert_eq!(found, modes, "{server} {size} {clients}");
            for row in of_cell {
                for field in ["ops_per_s", "p50_us", "p99_us", "max_us", "requests"] {
                    assert!(is_figure(&row[field]), "{field} in {row}");
                }
                let pool = &row["nvm_bytes_peak"];
                assert_eq!(row["mode"] == "forebay", is_figure(pool), "{row}");
                assert!(pool.as_u64().unwrap_or(0) <= 16 << 20, "{row}");
            }
            let ratio = format!("forebay_over_everysec_{server}_{size}_{clients}");
            assert!(is_figure(&report["ratios"][&ratio]), "{ratio}");
        }
    }
    assert_nothing_is_left(&sandbox);
}

#[test]
fn redis_is_measured_while_it_rewrites() {
    let sandbox = Sandbox::new();
    let line = "redis --quick --json --dir . --server redis --sizes 32 --clients 1 --modes off,everysec,forebay --during-rewrite";
    let report = sandbox.run(line).ok().json();
    if is_missing(&report, "redis") {
        println!("skipped: redis is not installed");
        return;
    }
    let rewriting: Vec<_> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["during_rewrite"] == true)
        .map(|row| {
            (
                row["mode"].as_str().unwrap(),
                row["value_bytes"].as_u64().unwrap(),
                row["rewrites"].as_u64().unwrap() > 0,
            )
        })
        .collect();
    assert_eq!(
        rewriting,
        [("everysec", 8192, true), ("forebay", 8192, true)]
    );
}

#[test]
fn rocksdb_is_measured_in_every_mode() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(
        "rocksdb --quick --json --dir . --puts 500 --sizes 100 --modes no_sync,no_wal,forebay",
    );
    if ran.stderr.contains("not installed") {
        println!("skipped: rocksdb-tools is not installed");
        return;
    }
    let report = ran.ok().json();
    let rows = report["rows"].as_array().unwrap();
    let modes: Vec<_> = rows
        .iter()
        .map(|row| row["mode"].as_str().unwrap())
        .collect();
    assert_eq!(modes, ["no_sync", "no_wal", "forebay"]);
    for row in rows {
        assert_eq!(row["ops"], 500);
        for field in ["ops_per_s", "p50_us", "p99_us"] {
            assert!(is_figure(&row[field]), "{field} in {row}");
        }
    }
    assert!(is_figure(&report["ratios"]["forebay_over_no_sync_100"]));
    assert_eq!(rows[2]["nvm_bytes_peak"], 16 << 20);
    assert_nothing_is_left(&sandbox);
}

#[test]
fn mariadb_is_measured_in_every_mode() {
    measured_in_every_mode("mariadb");
}

#[test]
fn postgresql_is_measured_in_every_mode() {
    measured_in_every_mode("postgres");
}

/// An SQL server's benchmark at toy size: each mode, in order, with figures, and nothing left behind.
fn measured_in_every_mode(database: &str) {
    let sandbox = Sandbox::new();
    sandbox.let_in();
    let ran = sandbox.run(&format!("{database} --quick --json --dir . --clients 1,3"));
    if ran.stderr.contains("not installed") {
        assert!(std::env::var_os("CI").is_none(), "{}", ran.stderr);
        println!("skipped: {}", ran.stderr.trim());
        return;
    }
    let report = ran.ok().json();
    assert_eq!(report["bench"], database);
    let rows = report["rows"].as_array().unwrap();
    let measured: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["mode"].as_str().unwrap(),
                row["clients"].as_u64().unwrap(),
            )
        })
        .collect();
    let modes = ["plain", "no_sync", "eatmydata", "forebay"];
    let all: Vec<_> = [1, 3]
        .into_iter()
        .flat_map(|clients| modes.map(|mode| (mode, clients)))
        .collect();
    assert_eq!(measured, all);
    for row in rows {
        for field in ["ops_per_s", "p50_us", "p99_us"] {
            assert!(is_figure(&row[field]), "{field} in {row}");
        }
    }
    for ratio in ["forebay_over_eatmydata_1", "forebay_over_no_sync_3"] {
        assert!(is_figure(&report["ratios"][ratio]), "{ratio}");
    }
    assert_nothing_is_left(&sandbox);
}

/// On an emulated hard disk every sync costs milliseconds, a commit of a pool on this disk does not: were the pool's own file charged as
/// well, it would be as slow as the log.
#[test]
fn a_pool_on_a_disk_is_measured_beside_the_emulated_one_and_pays_nothing_for_the_datas_device() {
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
        // The disk under the pool is shared with what else this machine does: a sync of its may take as long.
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

#[test]
fn a_database_benchmark_that_cannot_be_run_says_why() {
    let sandbox = Sandbox::new();
    for (line, words) in [
        ("redis --modes sometimes", ["no such mode", "everysec"]),
        ("redis --server mongo", ["there are", "redis and valkey"]),
        ("redis --rounds 0", ["0 is not in 1..", "--rounds"]),
        ("rocksdb --modes always", ["no such mode", "no_wal"]),
        ("mariadb --clients 0", ["client", "measures nothing"]),
        ("postgres --modes everysec", ["no such mode", "no_sync"]),
        (
            "mariadb --quick --dir /dev/shm",
            ["persistent memory", "--dir"],
        ),
    ] {
        sandbox.run(line).fails(2, &words);
    }
    let mut bench = sandbox.command("rocksdb --quick");
    common::Ran::of(bench.env("PATH", "/nowhere").output().unwrap())
        .fails(2, &["not installed: apt-get install rocksdb-tools"]);
}
