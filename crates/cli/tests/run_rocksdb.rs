//! RocksDB's own programs (Debian's rocksdb-tools) under `forebay run`: whole after SIGKILL, and
//! with every Put that was acknowledged.
//!
//! Promise (programs): RocksDB has every acknowledged put after SIGKILL.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    databases::{PATIENCE, Strike, forebay_run, moment, random, small_pool},
    have,
};
use forebay_bench::processes::Process;
use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

fn is_installed() -> bool {
    have("db_bench") && have("ldb")
}

/// Synced Puts of new keys in order, telling how far it is every hundred.
fn fill(pool: &Path, db: &Path, puts: u64) -> Command {
    let line = forebay_run(pool);
    let mut command = Command::new(&line[0]);
    command
        .args(&line[1..])
        .args(["db_bench", "--benchmarks=fillseq", "--sync=1", "--compression_type=none", "--value_size=400"])
        // Small, so that logs come and go.
        .args(["--write_buffer_size=262144", "--stats_interval=100"])
        .arg(format!("--num={puts}"))
        .arg(format!("--db={}", db.display()));
    command
}

/// The number of keys, from a database that ldb finds consistent.
fn keys(db: &Path) -> u64 {
    let ldb = |words: &[&str]| {
        let said = Ran::of(
            Command::new("ldb")
                .arg(format!("--db={}", db.display()))
                .args(words)
                .output()
                .unwrap(),
        )
        .ok();
        said.text() + &said.stderr
    };
    let consistent = ldb(&["checkconsistency"]);
    assert!(consistent.contains("OK"), "{consistent}");
    let counted = ldb(&["dump", "--count_only"]);
    let line = counted
        .lines()
        .find(|line| line.contains("Keys in range"))
        .unwrap_or_else(|| panic!("{counted}"));
    line.split_whitespace().last().unwrap().parse().unwrap()
}

/// How many Puts it says that it has done.
fn acknowledged(said: &Path) -> u64 {
    // "... thread 0: (100,1200) ops and (…) ops/second in (…) seconds"
    let number = |line: &str| {
        let (_, counts) = line.split_once(": (")?;
        let (counts, _) = counts.split_once(") ops")?;
        counts.split_once(',')?.1.parse().ok()
    };
    let said = fs::read_to_string(said).unwrap();
    said.lines().filter_map(number).max().unwrap_or(0)
}

#[test]
fn a_killed_db_bench_has_every_acknowledged_put_in_9_kills() {
    if !is_installed() {
        return;
    }
    let mut random = random("rocksdb");
    let sandbox = Sandbox::new();
    let pool = small_pool();
    for number in 0..9 {
        let db = sandbox.file(&format!("db{number}"));
        let said = sandbox.file("said");
        let mut process = Process::spawn(
            fill(pool.path(), &db, 10_000_000)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(File::create(&said).unwrap()),
        )
        .unwrap();
        let database = process
            .first_child(PATIENCE)
            .expect("db_bench did not start");
        let strike = Strike::number(number);
        let until = Instant::now() + PATIENCE;
        while acknowledged(&said) == 0 {
            assert!(Instant::now() < until, "db_bench wrote nothing");
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(moment(&mut random, 600));
        strike.strike(&database, process.handle(), || {
            thread::sleep(Duration::from_millis(200))
        });
        strike.check(process.wait(PATIENCE).unwrap());
        sandbox
            .run(&format!("recover --pool {}", pool.path().display()))
            .ok();
        let acknowledged = acknowledged(&said);
        let there = keys(&db);
        println!(
            "strike {number}, {strike:?}: at least {acknowledged} acknowledged, {there} there"
        );
        assert!(there >= acknowledged && acknowledged > 0);
        fs::remove_dir_all(&db).unwrap();
    }
}

#[test]
fn a_finished_db_bench_leaves_its_keys_and_an_empty_pool() {
    if !is_installed() {
        return;
    }
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let db = sandbox.file("db");
    let ran = Ran::of(fill(pool.path(), &db, 20_000).output().unwrap()).ok();
    assert!(
        ran.stderr.contains("profile rocksdb") && ran.stderr.contains(".log"),
        "{}",
        ran.stderr
    );
    assert!(ran.text().contains("fillseq"), "{}", ran.text());
    let report = sandbox
        .run(&format!("recover --pool {} --json", pool.path().display()))
        .ok()
        .json();
    assert_eq!(report["lanes"], serde_json::json!([]), "{report}");
    assert_eq!(keys(&db), 20_000);
}
