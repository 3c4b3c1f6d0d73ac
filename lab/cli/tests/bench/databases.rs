//! The databases' benchmarks: Redis, RocksDB, SQLite, MariaDB and PostgreSQL get rows in every
//! mode.

use crate::{assert_nothing_is_left, common::Sandbox, is_figure};
use serde_json::Value;

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
    let report = sandbox.json(line);
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
    let report = sandbox.json(line);
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
fn rounds_take_the_time_that_is_asked_for() {
    let sandbox = Sandbox::on_disk();
    for (line, modes) in [
        (
            "redis --server redis --sizes 512 --clients 2 --seconds 0.2",
            ["always", "forebay"],
        ),
        ("rocksdb --sizes 512 --seconds 1", ["sync", "forebay"]),
        ("sqlite --journals delete --seconds 1", ["plain", "forebay"]),
    ] {
        let modes = modes.join(",");
        let ran = sandbox.run(&format!("{line} --quick --json --dir . --modes {modes}"));
        if ran.stderr.contains("not installed") {
            println!("skipped: {}", ran.stderr.trim());
            continue;
        }
        let report = ran.ok().json();
        let rows = report["rows"].as_array().unwrap();
        let measured: Vec<_> = rows
            .iter()
            .map(|row| row["mode"].as_str().unwrap())
            .collect();
        assert_eq!(measured.join(","), modes, "{line}");
        for row in rows {
            assert!(is_figure(&row["ops_per_s"]), "{row}");
            assert!(is_figure(&row["p99_us"]), "{row}");
        }
    }
    assert_nothing_is_left(&sandbox);
}

#[test]
fn tenants_are_measured_opened_and_kept_open() {
    let sandbox = Sandbox::on_disk();
    let line = "tenants --quick --json --dir . --tenants 1,30 --modes plain,forebay --journals wal,truncate";
    let report = sandbox.json(line);
    assert_eq!(report["bench"], "tenants");
    let rows = report["rows"].as_array().unwrap();
    let mut expected = Vec::new();
    for journal in ["wal", "truncate"] {
        for kind in ["opened", "kept"] {
            for tenants in [1, 30] {
                expected.extend(["plain", "forebay"].map(|mode| (journal, kind, tenants, mode)));
            }
        }
    }
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            let [journal, kind, mode] = ["journal_mode", "use", "mode"].map(|of| text(&row[of]));
            (journal, kind, row["tenants"].as_u64().unwrap(), mode)
        })
        .collect();
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(journal, kind, tenants, mode)| {
            (
                journal.to_owned(),
                kind.to_owned(),
                tenants,
                mode.to_owned(),
            )
        })
        .collect();
    assert_eq!(found, expected);
    for row in rows {
        for field in ["ops_per_s", "p50_us", "p99_us", "ops"] {
            assert!(is_figure(&row[field]), "{field} in {row}");
        }
    }
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

/// An SQL server's benchmark at toy size: each mode, in order, with figures, and nothing left
/// behind.
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
