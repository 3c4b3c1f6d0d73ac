//! The cost of a write: plain, of a file that is absorbed, and of one that is not, in a program
//! under `forebay run`.
//!
//! Here it only shows that it works. To measure, on a quiet machine: `WRITES=200000 cargo test
//! --release -p forebay -p forebay-preload --test write_cost -- --nocapture`
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    FOREBAY, Sandbox,
    databases::{PATIENCE, small_pool},
};
use forebay_bench::{processes::Process, rounds::median};
use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

/// Set for the worker: the file to write to.
const FILE: &str = "FOREBAY_TEST_WRITE_COST_FILE";
/// Set for the worker: where it puts its figure.
const FIGURE: &str = "FOREBAY_TEST_WRITE_COST_FIGURE";
/// A small record, as of a write-ahead log.
const BYTES: usize = 100;
const ROUNDS: usize = 5;

fn writes() -> u32 {
    std::env::var("WRITES").map_or(2000, |writes| writes.parse().unwrap())
}

/// Not a test: what the other runs in processes of its own. Nanoseconds of a write.
#[test]
fn worker() {
    let Some(file) = std::env::var_os(FILE) else {
        return;
    };
    // Appends: the kernel alone knows where, as of Redis's log.
    let append = std::env::var_os("APPEND").is_some();
    let flags = if append { append_flag() } else { 0 };
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .custom_flags(flags)
        .open(file)
        .unwrap();
    let record = [b'x'; BYTES];
    let count = writes();
    // The first writes grow tables and fault pages in.
    for _ in 0..count / 10 {
        file.write_all(&record).unwrap();
    }
    let begun = Instant::now();
    for _ in 0..count {
        file.write_all(&record).unwrap();
    }
    let nanoseconds = begun.elapsed().as_nanos() as f64 / f64::from(count);
    fs::write(std::env::var_os(FIGURE).unwrap(), nanoseconds.to_string()).unwrap();
}

fn append_flag() -> i32 {
    rustix::fs::OFlags::APPEND.bits().try_into().unwrap()
}

/// One run of the worker.
fn measure(before: &[&str], pool: &Path, sandbox: &Sandbox, name: &str, append: bool) -> f64 {
    let mut line: Vec<std::ffi::OsString> = before.iter().map(|word| word.into()).collect();
    if !line.is_empty() {
        line.extend(["--pool".into(), pool.into(), "--".into()]);
    }
    line.push(std::env::current_exe().unwrap().into());
    let figure = sandbox.file("figure");
    let mut command = Command::new(&line[0]);
    command
        .args(&line[1..])
        .args(["worker", "--exact", "--test-threads=1"])
        .env(FILE, sandbox.file(name))
        .env(FIGURE, &figure)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if append {
        command.env("APPEND", "1");
    }
    let status = Process::spawn(&mut command)
        .and_then(|mut process| process.wait(PATIENCE))
        .unwrap();
    assert!(status.success(), "{name}: {status}");
    fs::remove_file(sandbox.file(name)).unwrap();
    let found = fs::read_to_string(&figure).unwrap().parse().unwrap();
    fs::remove_file(&figure).unwrap();
    found
}

#[test]
fn writes_of_absorbed_and_other_files_are_measured_beside_plain() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let under = [FOREBAY, "run", "--profile", "generic", "--absorb", "*.log"];
    let contestants: [(&str, &[&str], &str, bool); 5] = [
        ("plain", &[], "x.log", false),
        ("absorbed", &under, "x.log", false),
        ("other file under forebay run", &under, "x.dat", false),
        ("plain, appending", &[], "x.log", true),
        ("absorbed, appending", &under, "x.log", true),
    ];
    let mut rounds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (number, (_, before, name, append)) in contestants.iter().enumerate() {
            let nanoseconds = measure(before, pool.path(), &sandbox, name, *append);
            assert!(nanoseconds > 0.0);
            rounds.entry(number).or_default().push(nanoseconds);
        }
    }
    for (number, (what, ..)) in contestants.iter().enumerate() {
        println!(
            "{what}: {:.0} ns a write of {BYTES} bytes",
            median(&rounds[&number])
        );
    }
    assert!(rounds.values().all(|figures| figures.len() == ROUNDS));
}
