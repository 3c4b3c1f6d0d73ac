//! LinkBench and TPC-C (`lab/sysbench/`) on a real MariaDB: they load, run the mix that they
//! promise, and leave a consistent database; an inconsistent one is told.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_databases::mariadb::server::{self, DATABASE, Launch, Server};
use forebay_sysbench::{Measured, Scripts, Workload};
use tempfile::TempDir;

const THREADS: u64 = 4;

/// A server, reached by a socket only, and the workload that it is to run; both are removed in the
/// end.
struct MariaDb {
    server: Server,
    scripts: Scripts,
    _dir: TempDir,
}

impl MariaDb {
    /// Loads the workload. None where MariaDB or sysbench is not installed, which `scripts/setup.sh
    /// test` does.
    fn load(workload: Workload) -> Option<Self> {
        if let Some(lacking) = server::lacking() {
            assert!(std::env::var_os("CI").is_none(), "{lacking}");
            println!("skipped: {lacking}");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let launch = Launch::new(dir.path()).unwrap();
        server::create(&launch.data()).unwrap();
        let server = Server::start(&launch).unwrap();
        let unpacked = Scripts::unpack(&dir.path().join("scripts"), "innodb", workload);
        let scripts = unpacked.unwrap();
        scripts.prepare(&server).unwrap();
        Some(Self {
            server,
            scripts,
            _dir: dir,
        })
    }

    /// A run of two seconds.
    fn run(&self) -> Measured {
        let ran = self.scripts.run(&self.server, THREADS, 2);
        ran.unwrap()
    }

    fn check(&self) {
        self.scripts.check(&self.server).unwrap();
    }

    /// Changes a row behind the workload's back: the check fails.
    fn spoiled(&self, statement: &str) {
        self.server.sql(statement, DATABASE).unwrap();
        let told = self.scripts.check(&self.server);
        let told = told.unwrap_err().to_string();
        assert!(told.contains("(sysbench) ended with"), "{told}");
    }
}

/// Each operation's share of all, in percent.
fn shares(report: &Measured) -> Vec<(&str, f64)> {
    let all: u64 = report.operations.iter().map(|of| of.count).sum();
    let share = |count: u64| 100.0 * count as f64 / all as f64;
    let operations = report.operations.iter();
    operations
        .map(|of| (of.operation.as_str(), share(of.count)))
        .collect()
}

#[test]
fn linkbench_runs_its_published_mix_and_keeps_its_counts() {
    let Some(database) = MariaDb::load(Workload::LinkBench { ids: 3000 }) else {
        return;
    };
    let links = database
        .server
        .sql("SELECT COUNT(*) FROM linktable", DATABASE);
    let links: f64 = links.unwrap().trim().parse().unwrap();
    // 4.74 on average, with a long tail, and a few to the same node.
    assert!((3.0..6.0).contains(&(links / 3000.0)), "{links} links");
    let report = database.run();
    let all: u64 = report.operations.iter().map(|of| of.count).sum();
    for (name, share) in shares(&report) {
        let published = match name {
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
        // Each operation is drawn: six standard deviations of so many.
        let allowed = 6.0 * (published * (100.0 - published) / all as f64).sqrt();
        assert!(
            (share - published).abs() < allowed,
            "{name}: {share} % of {all}"
        );
    }
    database.check();
    database.spoiled("UPDATE counttable SET count = count + 1 LIMIT 1");
    database.scripts.clean_up(&database.server).unwrap();
}

#[test]
fn tpcc_deals_its_deck_and_keeps_its_consistency_conditions() {
    let Some(database) = MariaDb::load(Workload::Tpcc {
        warehouses: 1,
        roam: true,
    }) else {
        return;
    };
    database.check();
    let report = database.run();
    let all: u64 = report.operations.iter().map(|of| of.count).sum();
    for of in &report.operations {
        let cards = match of.operation.as_str() {
            "new_order" | "payment" => 10,
            _ => 1,
        };
        let dealt = (all * cards) as f64 / 23.0;
        // Each thread ends in the middle of a deck, and a transaction that ran into another's is
        // not counted.
        let allowed = (THREADS * cards) as f64 + 0.05 * all as f64;
        assert!(
            (of.count as f64 - dealt).abs() < allowed,
            "{}: {} of {all}",
            of.operation,
            of.count
        );
    }
    let new_orders = report.operation("new_order").unwrap();
    let in_time: u64 = new_orders.by_second.iter().sum();
    // What ends after the second second is counted, but in none.
    let late = new_orders.count - in_time;
    assert!(
        late <= THREADS && new_orders.by_second.len() == 2,
        "{new_orders:?}"
    );
    assert!(report.tpmc.unwrap() > 0.0);
    database.check();
    database.spoiled("UPDATE warehouse SET w_ytd = w_ytd + 1 LIMIT 1");
}

#[test]
fn what_a_report_says_is_not_as_wanted_is_named() {
    let report = r#"{"threads":1,"seconds":2.0,"operations_per_s":3.5,"tpmC":90.5,"retried":0,"payment_share_ok":true,
        "delivery_90_%_in_time":false,"operations":[{"operation":"new_order","count":3,"per_s":1.5,"p99_us":7.5,"by_second":[1,2]}]}"#;
    let measured: Measured = serde_json::from_str(report).unwrap();
    assert_eq!(measured.failed(), ["delivery 90 % in time"]);
    assert_eq!(measured.tpmc, Some(90.5));
    let new_orders = measured.operation("new_order").unwrap();
    assert_eq!(
        (new_orders.count, &new_orders.by_second[..]),
        (3, &[1, 2][..])
    );
    assert!(measured.operation("payment").is_none());
}
