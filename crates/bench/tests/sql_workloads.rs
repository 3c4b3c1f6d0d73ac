//! LinkBench and TPC-C (`bench/`) on a real MariaDB: they load, run the mix that they promise, and leave a consistent database; an
//! inconsistent one is told.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_bench::mariadb::server::{self, Launch, Server};
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

/// A server with a database `bench`, reached by a socket only; it is killed and removed in the end.
struct MariaDb {
    server: Server,
    dir: TempDir,
}

impl MariaDb {
    /// None where MariaDB or sysbench is not installed, which `scripts/setup.sh test` does.
    fn start() -> Option<Self> {
        let programs = ["mariadbd", "mariadb-install-db", "mariadb", "sysbench"];
        let missing = programs.iter().find_map(|name| server::program(name).err());
        if let Some(missing) = missing {
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            println!("skipped: {missing}");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let launch = Launch::new(dir.path()).unwrap();
        server::create(&launch.data()).unwrap();
        let server = Server::start(&launch).unwrap();
        server.sql("CREATE DATABASE bench", "").unwrap();
        Some(Self { server, dir })
    }

    fn sysbench(&self, script: &str, words: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../bench")
            .join(script);
        Command::new(server::program("sysbench").unwrap())
            .arg(script)
            .args(["--mysql-user=root", "--mysql-db=bench"])
            .arg(format!("--mysql-socket={}", self.server.socket().display()))
            .args(words)
            .output()
            .unwrap()
    }

    /// As [`sysbench`](Self::sysbench), which must succeed. sysbench's exit status says nothing of errors in a parallel command.
    fn must(&self, script: &str, words: &[&str]) -> String {
        let done = self.sysbench(script, words);
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(
            done.status.success() && !said.contains("FATAL"),
            "{words:?}: {said}"
        );
        said
    }

    /// The report of a run of two seconds by four threads.
    fn run(&self, script: &str, size: &str) -> Value {
        let report = self.dir.path().join("report.json");
        let to = format!("--json_file={}", report.display());
        self.must(script, &[size, "--threads=4", "--time=2", &to, "run"]);
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap()
    }
}

/// Each operation's share of all, in percent.
fn shares(report: &Value) -> Vec<(String, f64)> {
    let operations = report["operations"].as_array().unwrap();
    let count = |of: &Value| of["count"].as_f64().unwrap();
    let all: f64 = operations.iter().map(count).sum();
    operations
        .iter()
        .map(|of| {
            let name = of["operation"].as_str().unwrap().to_owned();
            (name, 100.0 * count(of) / all)
        })
        .collect()
}

#[test]
fn linkbench_runs_its_published_mix_and_keeps_its_counts() {
    let Some(database) = MariaDb::start() else {
        return;
    };
    let (script, size) = ("linkbench/linkbench.lua", "--ids=3000");
    database.must(script, &[size, "--threads=2", "prepare"]);
    let links = database
        .server
        .sql("SELECT COUNT(*) FROM linktable", "bench");
    let links: f64 = links.unwrap().trim().parse().unwrap();
    // 4.74 on average, with a long tail, and a few to the same node.
    assert!((3.0..6.0).contains(&(links / 3000.0)), "{links} links");
    let report = database.run(script, size);
    for (name, share) in shares(&report) {
        let published = match name.as_str() {
            "getlinklist" => 50.71,
            "getnode" => 12.93,
            "addlink" => 8.99,
            "updatelink" => 8.01,
            "updatenode" => 7.37,
            "countlink" => 4.89,
            "deletelink" => 2.99,
            "addnode" => 2.57,
            "deletenode" => 1.01,
            "getlink" => 0.53,
            other => panic!("an operation that LinkBench has not: {other}"),
        };
        assert!((share - published).abs() < 2.0, "{name}: {share} %");
    }
    database.must(script, &["check"]);
    let spoil = "UPDATE counttable SET count = count + 1 LIMIT 1";
    database.server.sql(spoil, "bench").unwrap();
    assert!(!database.sysbench(script, &["check"]).status.success());
    database.must(script, &["cleanup"]);
}

#[test]
fn tpcc_deals_its_deck_and_keeps_its_consistency_conditions() {
    let Some(database) = MariaDb::start() else {
        return;
    };
    let (script, size) = ("tpcc/tpcc.lua", "--warehouses=1");
    database.must(script, &[size, "prepare"]);
    database.must(script, &["check"]);
    let report = database.run(script, size);
    for (name, share) in shares(&report) {
        let dealt = if matches!(name.as_str(), "new_order" | "payment") {
            1000.0 / 23.0
        } else {
            100.0 / 23.0
        };
        assert!((share - dealt).abs() < 5.0, "{name}: {share} %");
    }
    assert!(report["tpmC"].as_f64().unwrap() > 0.0);
    database.must(script, &["check"]);
    let spoil = "UPDATE warehouse SET w_ytd = w_ytd + 1 LIMIT 1";
    database.server.sql(spoil, "bench").unwrap();
    assert!(!database.sysbench(script, &["check"]).status.success());
}
