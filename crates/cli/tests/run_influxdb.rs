//! InfluxDB under `forebay run`: a Go program, which syncs its log before it answers a write.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    agents::{Served, absorbed_paths, copied, no_disk, under_forebay, was_served, write_and_cut},
    cut::put_back,
    databases::{PATIENCE, absorbed_writes, random, small_pool},
    installed,
};
use forebay_measure::processes::find_programs;
use rustix::process::Signal;
use std::{
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Points that are written at least before a cut, each by a request.
const POINTS: u64 = 60;

/// Where it keeps what.
const DIRECTORIES: [&str; 3] = ["meta", "data", "wal"];

/// The server of InfluxDB 1: later ones bear the same name and are another program.
fn program() -> Result<PathBuf, String> {
    let is_first = |program: &PathBuf| {
        let said = Command::new(program).arg("version").output();
        said.is_ok_and(|said| {
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            said.contains(" v1.") || said.contains(" 1.")
        })
    };
    find_programs("influxd")
        .find(is_first)
        .ok_or_else(|| "influxd 1 is not installed: scripts/setup.sh test".to_owned())
}

/// Starts a server with its files in a directory.
fn start(dir: &Path, errors: &Path, before: impl Fn() -> Command) -> Served {
    let command = |[port, other]: [u16; 2]| {
        let mut command = before();
        for (name, sub) in ["META", "DATA", "DATA_WAL"].into_iter().zip(DIRECTORIES) {
            command.env(format!("INFLUXDB_{name}_DIR"), dir.join(sub));
        }
        command
            .env("HOME", dir)
            .env("INFLUXDB_HTTP_BIND_ADDRESS", format!("127.0.0.1:{port}"))
            .env("INFLUXDB_BIND_ADDRESS", format!("127.0.0.1:{other}"))
            .env("INFLUXDB_REPORTING_DISABLED", "true")
            .env("INFLUXDB_MONITOR_STORE_ENABLED", "false")
            .current_dir(dir);
        command
    };
    Served::start(command, errors, |port| {
        ask(port, "GET", "/ping", "").is_ok()
    })
}

fn start_under_forebay(sandbox: &Sandbox, pool: &Path, boot: usize) -> Served {
    let program = program().unwrap();
    start(sandbox.path(), &sandbox.file("errors"), || {
        under_forebay(sandbox, pool, boot, &program)
    })
}

/// What the server answers to a request, if it succeeds.
fn ask(port: u16, method: &str, path: &str, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split(' ').nth(1) {
        Some("200" | "204") => Ok(answer),
        _ => Err(io::Error::other(answer)),
    }
}

fn make_database(port: u16) {
    ask(port, "POST", "/query?q=CREATE%20DATABASE%20d", "").unwrap();
}

/// Writes points until the server is gone, one after the other; the last that was acknowledged.
fn write(port: u16, last: u64, acknowledged: &AtomicU64) -> u64 {
    let mut last = last;
    let point = |number: u64| format!("m v={}i {number}", number * 7);
    while ask(port, "POST", "/write?db=d", &point(last + 1)).is_ok() {
        last += 1;
        acknowledged.fetch_add(1, Relaxed);
    }
    last
}

/// How many points there are: all from the first one on, each with the value that it was given.
fn points(port: u16) -> u64 {
    let query = "/query?db=d&epoch=ns&q=SELECT%20v%20FROM%20m";
    let answer = ask(port, "GET", query, "").unwrap();
    let (_, json) = answer.split_once("\r\n\r\n").unwrap();
    let answer: serde_json::Value = serde_json::from_str(json).unwrap();
    let rows = answer.pointer("/results/0/series/0/values");
    let rows = rows.and_then(|rows| rows.as_array()).cloned();
    let rows = rows.unwrap_or_default();
    for (row, number) in rows.iter().zip(1u64..) {
        assert_eq!(row[0].as_u64(), Some(number), "{row}");
        assert_eq!(row[1].as_u64(), Some(number * 7), "{row}");
    }
    rows.len() as u64
}

/// Promise (programs): What InfluxDB acknowledged is there after a power cut that took the page
/// cache.
#[test]
fn influxdb_has_what_it_acknowledged_after_a_cut() {
    let Some(program) = installed(program()) else {
        return;
    };
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let mut random = random("influxdb_has_what_it_acknowledged_after_a_cut");
    let mut acknowledged = 0;
    let mut has_lost = false;
    let mut boot = 0;
    // On a busy machine a cut may come when the disk has all of it.
    while boot < 3 || !has_lost && boot < 12 {
        let influx = start_under_forebay(&sandbox, pool.path(), boot);
        let port = influx.port;
        if boot == 0 {
            make_database(port);
        }
        let there = points(port);
        // One more may have been written that nobody was told of.
        let expected = acknowledged..=acknowledged + 1;
        assert!(expected.contains(&there), "{there} of {acknowledged}");
        acknowledged = write_and_cut(influx, no_disk, (POINTS, &mut random), |count| {
            write(port, there, count)
        });
        was_served(&sandbox.file("errors"), "influxdb");
        put_back(&sandbox.file("synced"));
        // What this test is about: without a recovery they are not there.
        let without = copied(&sandbox, &DIRECTORIES, &format!("without{boot}"));
        let plain = start(&without, &sandbox.file("plain"), || Command::new(&program));
        has_lost |= points(plain.port) < acknowledged;
        plain.cut();
        boot += 1;
    }
    assert!(has_lost, "all {acknowledged} were there without a recovery");
    let influx = start_under_forebay(&sandbox, pool.path(), boot);
    let there = points(influx.port);
    assert!(there >= acknowledged, "{there} of {acknowledged}");
}

#[test]
fn a_shards_log_is_absorbed_and_nothing_beside_it() {
    if installed(program()).is_none() {
        return;
    }
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let influx = start_under_forebay(&sandbox, pool.path(), 0);
    make_database(influx.port);
    for number in 1..=20 {
        let point = format!("m v=1i {number}");
        ask(influx.port, "POST", "/write?db=d", &point).unwrap();
    }
    assert!(influx.end(Signal::TERM).success());
    let said = fs::read_to_string(sandbox.file("errors")).unwrap();
    assert!(absorbed_writes(&said, "_00001.wal") >= 20, "{said}");
    for path in absorbed_paths(&said) {
        assert!(path.ends_with(".wal"), "{path}: {said}");
    }
}
