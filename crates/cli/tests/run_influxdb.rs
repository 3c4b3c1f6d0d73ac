//! InfluxDB under `forebay run`: a Go program, which syncs its log before it answers a write.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    cut::put_back,
    databases::{PATIENCE, ProcessGroup, boot_anew, small_pool},
    have,
};
use forebay_bench::processes::find_program;
use forebay_measure::server::free_port;
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Points of a boot, a write each.
const POINTS: u64 = 60;

struct Influx {
    run: ProcessGroup,
    port: u16,
}

/// A server with its files in `dir`, to be started by `command`.
fn start(dir: &Path, mut command: Command, errors: &Path) -> Influx {
    let (port, other) = (free_port().unwrap(), free_port().unwrap());
    for (name, sub) in [("META", "meta"), ("DATA", "data"), ("DATA_WAL", "wal")] {
        command.env(format!("INFLUXDB_{name}_DIR"), dir.join(sub));
    }
    command
        .env("HOME", dir)
        .env("INFLUXDB_HTTP_BIND_ADDRESS", format!("127.0.0.1:{port}"))
        .env("INFLUXDB_BIND_ADDRESS", format!("127.0.0.1:{other}"))
        .env("INFLUXDB_REPORTING_DISABLED", "true")
        .env("INFLUXDB_MONITOR_STORE_ENABLED", "false")
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(errors).unwrap());
    let influx = Influx {
        run: ProcessGroup::start(&mut command),
        port,
    };
    let begun = Instant::now();
    while influx.ask("GET", "/ping", "").is_err() {
        let errors = || fs::read_to_string(errors).unwrap();
        assert!(begun.elapsed() < PATIENCE, "{}", errors());
        thread::sleep(Duration::from_millis(50));
    }
    influx
}

/// The same under Forebay, which believes that the machine was booted anew.
fn under_forebay(sandbox: &Sandbox, pool: &Path, boot: usize) -> Influx {
    let mut environment = Vec::new();
    boot_anew(&mut environment, boot);
    let mut command =
        sandbox.command("run --front-end notify --absorb-preallocated --explain --pool");
    command
        .arg(pool)
        .arg("--")
        .arg(find_program("influxd").unwrap())
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_TEST_SYNCED", sandbox.file("synced"))
        .envs(environment);
    start(sandbox.path(), command, &sandbox.file("errors"))
}

impl Influx {
    /// What it answers to a request, if it succeeds.
    fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
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

    fn write(&self, point: u64) {
        let line = format!("m v={}i {point}", point * 7);
        self.ask("POST", "/write?db=d", &line).unwrap();
    }

    /// The points that are there and have the value that they were written with.
    fn right_points(&self) -> u64 {
        let query = "/query?db=d&epoch=ns&q=SELECT%20v%20FROM%20m";
        let answer = self.ask("GET", query, "").unwrap();
        let (_, json) = answer.split_once("\r\n\r\n").unwrap();
        let answer: serde_json::Value = serde_json::from_str(json).unwrap();
        let rows = answer.pointer("/results/0/series/0/values");
        let rows = rows
            .and_then(|rows| rows.as_array())
            .cloned()
            .unwrap_or_default();
        let is_right = |row: &&serde_json::Value| {
            row[0].as_u64().map(|point| point * 7) == row[1].as_u64() && row[0].is_u64()
        };
        rows.iter().filter(is_right).count() as u64
    }

    /// Kills the server, what does its calls, and its supervisor.
    fn cut(mut self) {
        self.run.kill();
    }
}

/// Promise (programs): What InfluxDB acknowledged is there after a power cut that took the page
/// cache.
#[test]
fn influxdb_has_what_it_acknowledged_after_a_cut() {
    if !have("influxd") {
        return;
    }
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let mut written = 0;
    for boot in 0..3 {
        let influx = under_forebay(&sandbox, pool.path(), boot);
        if boot == 0 {
            let query = "/query?q=CREATE%20DATABASE%20d";
            influx.ask("POST", query, "").unwrap();
        }
        assert_eq!(influx.right_points(), written);
        for point in written + 1..=written + POINTS {
            influx.write(point);
        }
        written += POINTS;
        influx.cut();
        let said = fs::read_to_string(sandbox.file("errors")).unwrap();
        assert!(said.contains("profile influxdb"), "{said}");
        put_back(&sandbox.file("synced"));
    }
    // What this test is about: without a recovery they are not there.
    let without = sandbox.file("without");
    fs::create_dir(&without).unwrap();
    for sub in ["meta", "data", "wal"] {
        let mut copy = Command::new("cp");
        let copied = copy.arg("-a").arg(sandbox.file(sub)).arg(&without).status();
        assert!(copied.unwrap().success());
    }
    let plain = Command::new(find_program("influxd").unwrap());
    let influx = start(&without, plain, &sandbox.file("plain"));
    let there = influx.right_points();
    assert!(
        there < written,
        "the cuts took nothing: {there} of {written}"
    );
    influx.cut();
    let influx = under_forebay(&sandbox, pool.path(), 3);
    assert_eq!(influx.right_points(), written);
}
