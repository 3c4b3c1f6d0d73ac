//! A benchmark that measures nothing, or cannot be run, is refused and says why.

use crate::common::{self, Sandbox};

#[test]
fn a_run_that_measures_nothing_is_refused() {
    let sandbox = Sandbox::new();
    for (line, words) in [
        ("wisckey --no-puts", "nothing to measure"),
        ("wisckey --ops 0", "more than 0"),
        ("wisckey --variants twice", "unknown durability"),
        ("ycsb --records 0", "more than 0"),
        ("ycsb --workloads G", "unknown workload"),
        ("ycsb --variants floppy", "unknown durability"),
        (
            "ycsb --modes unsynced --variants fsync",
            "nothing to measure",
        ),
        ("pool --rounds 0", "more than 0"),
        ("commit --sizes 1G", "too many"),
        ("redis --seconds 0", "more than 0"),
        ("rocksdb --seconds 1 --puts 5", "cannot be used with"),
        ("pool --processes 2 --profile pcm", "cannot be used with"),
    ] {
        sandbox.run(line).fails(2, &[words]);
    }
}

#[test]
fn a_database_benchmark_that_cannot_be_run_says_why() {
    let sandbox = Sandbox::new();
    for (line, words) in [
        ("redis --modes sometimes", ["no such mode", "everysec"]),
        ("redis --server mongo", ["there are", "redis and valkey"]),
        ("redis --clients 0", ["client", "measures nothing"]),
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
    for (database, remedy) in [
        ("redis", "redis-server redis-tools"),
        ("rocksdb", "apt-get install rocksdb-tools"),
        ("sqlite", "apt-get install sqlite3"),
        ("tenants", "apt-get install python3"),
        ("mariadb", "apt-get install mariadb-server sysbench"),
    ] {
        let mut bench = sandbox.command(&format!("{database} --quick"));
        common::Ran::of(bench.env("PATH", "/nowhere").output().unwrap())
            .fails(2, &["not installed", remedy]);
    }
}
