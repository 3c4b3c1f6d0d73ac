//! A program's own things under `forebay run`, and those that are not its own: its locks, its
//! FIFOs, its numbers; the memory that it unmaps.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod aio;
#[path = "../common/mod.rs"]
mod common;
mod locks;
mod memory;
mod numbers;
mod opening;
mod syncs;

use common::{Ran, Sandbox};

/// Python for all of them: a hang ends the program.
const BEGIN: &str = r#"
import ctypes, fcntl, mmap, os, resource, signal, subprocess, sys, threading, time
signal.alarm(300)
def opened(name, flags=0):
    return os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o600)
def logged(fd, times=1):
    for _ in range(times):
        assert os.write(fd, b"x" * 1000) == 1000
        os.fdatasync(fd)
def is_locked(name):
    """Whether another process, without Forebay, is refused a lock."""
    code = f"import fcntl; fcntl.lockf(open('{name}', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run([sys.executable, "-c", code], env=plain, stderr=subprocess.DEVNULL).returncode != 0
"#;

/// Runs a Python program with `*.log` absorbed; its output and what `--explain` says are in the
/// result.
fn python(script: &str) -> Ran {
    python_with("--emulated", script)
}

/// The same with a pool of this kind.
fn python_with(kind: &str, script: &str) -> Ran {
    let sandbox = Sandbox::new();
    // Small segments, so that the connection is used often.
    sandbox
        .run(&format!(
            "pool create p {kind} --size 4MiB --segment-size 64KiB"
        ))
        .ok();
    let mut command = sandbox.command("run --explain --absorb *.log --pool p -- python3 -c");
    command
        .arg(format!("{BEGIN}{script}"))
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(command.output().unwrap())
}

/// The row of `--explain` for a file has so many writes.
#[track_caller]
fn absorbed(ran: &Ran, name: &str, writes: &str) {
    let found = ran.told(name).split_whitespace().nth(1);
    assert_eq!(found, Some(writes), "{}", ran.stderr);
}
