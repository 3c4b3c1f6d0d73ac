//! The lane breathes: while the disk is behind, it takes what is free in the pool, and a burst of
//! synced writes waits for no disk. What has lost its last name is dropped and never synced.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use clap::Parser;
use common::{FOREBAY, Ran, Sandbox};
use forebay_cli::{RunCommand, RunLayer, failure::Failure};
use forebay_files::supervisor;
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// A disk whose syncs, once there is a file `burst`, return when there is a file `go`, or after
/// some time. It writes what it synced then to `synced`.
struct Held {
    dir: PathBuf,
    longest: Duration,
}

impl supervisor::SyncLayer for Held {
    fn sync(
        &self,
        file: &File,
        _data_only: bool,
        real: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        if self.dir.join("burst").exists() {
            let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
            let mut list = File::options()
                .append(true)
                .create(true)
                .open(self.dir.join("synced"))?;
            writeln!(list, "{}", path.display())?;
            let begun = Instant::now();
            while !self.dir.join("go").exists() && begun.elapsed() < self.longest {
                thread::sleep(Duration::from_millis(1));
            }
        }
        real()
    }

    fn is_elsewhere(&self, _path: &Path) -> bool {
        false
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    run: RunCommand,
}

/// `forebay run` with such a disk under its supervisor. The environment says what to run.
#[test]
#[ignore = "the other tests start it as a program"]
fn a_run_on_a_held_disk() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let layer = RunLayer {
        supervisor: Some(Arc::new(Held {
            dir: variable("HELD_DIR").into(),
            longest: Duration::from_millis(variable("HELD_MS").parse().unwrap()),
        })),
        ..RunLayer::default()
    };
    let mut words: Vec<OsString> = ["run", "--absorb", "*.log", "--pool", "p", "--"]
        .map(OsString::from)
        .into();
    words.extend(["python3", "-c", BURST].map(OsString::from));
    match Line::parse_from(words).run.run_on(&layer) {
        Ok(()) => {}
        Err(Failure::Passed(status)) => panic!("the program ended with {status}"),
        Err(_) => panic!("the run failed"),
    }
}

/// Registers a log that stays and some that go. Then, while the disk is held, writes so many KiB to
/// the first in synced pieces, with pauses, and to the others, which it removes. Prints the status,
/// and lets go of the disk.
const BURST: &str = r#"
import json, os, subprocess, time
def opened(name):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
    written(fd, b"first")
    return fd
def written(fd, bytes):
    os.write(fd, bytes)
    os.fdatasync(fd)
def status():
    return subprocess.run([os.environ["FOREBAY"], "status", "--json"], capture_output=True, check=True).stdout
kept = opened("kept.log")
gone = [(name, opened(name)) for name in ("gone-%d.log" % n for n in range(4))]
# None of these is being synced when the burst begins.
while json.loads(status())[0]["lane"]["drain_lag_bytes"]:
    time.sleep(0.05)
open("burst", "w").close()
for n in range(int(os.environ["BURST_KIB"]) // 64):
    written(kept, b"x" * 65536)
    time.sleep(float(os.environ["PAUSE_S"]))
for name, fd in gone:
    written(fd, b"y" * 65536)
    os.unlink(name)
    os.close(fd)
open("status", "wb").write(status())
open("go", "w").close()
"#;

/// What `forebay status` said of the lane at the end of such a burst, in a pool of so many MiB, and
/// what was synced from its beginning on.
fn burst(
    pool_mib: u64,
    burst_kib: u64,
    pause_s: &str,
    held: Duration,
) -> (serde_json::Value, Vec<String>) {
    let sandbox = Sandbox::on_disk();
    let made = format!("pool create p --emulated --size {pool_mib}MiB --segment-size 1MiB");
    sandbox.run(&made).ok();
    // A supervisor blocks the signal that tells of its child's end before it has threads, which the
    // test's program has by then.
    let mut command = Command::new("env");
    command
        .arg("--block-signal=CHLD")
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_run_on_a_held_disk",
            "--ignored",
            "--nocapture",
        ])
        .current_dir(sandbox.path())
        .env("HELD_DIR", sandbox.path())
        .env("HELD_MS", held.as_millis().to_string())
        .env("BURST_KIB", burst_kib.to_string())
        .env("PAUSE_S", pause_s)
        .env("FOREBAY", FOREBAY)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(command.output().unwrap()).ok();
    let length = fs::metadata(sandbox.file("kept.log")).unwrap().len();
    assert_eq!(length, 5 + burst_kib / 64 * 65536);
    let status = fs::read(sandbox.file("status")).unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    let synced = fs::read_to_string(sandbox.file("synced")).unwrap();
    let synced = synced.lines().map(str::to_owned).collect();
    (status[0]["lane"].clone(), synced)
}

/// Promise (programs): A burst of synced writes that fits into the free part of the pool waits for
/// no disk.
/// Promise (programs): A file that has lost its last name is not synced.
#[test]
fn a_burst_that_fits_waits_for_no_disk_and_syncs_no_removed_log() {
    let patience = Duration::from_secs(120);
    // The next segment is prepared while sixteen pieces are written.
    let (lane, synced) = burst(64, 50 << 10, "0.01", patience);
    assert_eq!(lane["waits"], 0, "{lane}");
    // Nothing had left it.
    assert!(
        lane["drain_lag_bytes"].as_u64().unwrap() > 50 << 20,
        "{lane}"
    );
    assert!(
        synced.iter().any(|path| path.ends_with("/kept.log")),
        "{synced:?}"
    );
    assert!(
        !synced.iter().any(|path| path.contains("gone-")),
        "{synced:?}"
    );
}

#[test]
fn a_burst_larger_than_the_pool_waits_and_waits_are_counted() {
    let (lane, _) = burst(9, 16 << 10, "0", Duration::from_millis(300));
    assert!(lane["waits"].as_u64().unwrap() > 0, "{lane}");
}
