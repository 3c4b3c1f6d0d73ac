//! Units whose sandbox lacks what `forebay run` needs: the message names the line that does it. And
//! a program's clock that is not the kernel's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, databases::small_pool, skip};
use std::{fs, path::Path, process::Command};

/// What `forebay run` says after `prepared` in a mount namespace of its own; none where there is
/// none to be had.
fn said_after(prepared: &str) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root mounts");
        return None;
    }
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let run = sandbox.command("run --absorb *.log --pool");
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "sh", "-c"])
        .arg(format!("{prepared} && exec \"$@\""))
        .arg("sh")
        .arg(run.get_program())
        .args(run.get_args())
        .arg(pool.path())
        .args(["--", "true"])
        .current_dir(sandbox.path())
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(unshare.output().unwrap());
    assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    Some(ran.stderr)
}

#[test]
fn proc_with_processes_only_is_said_with_the_units_line() {
    let Some(said) = said_after("mount -t proc -o subset=pid proc /proc") else {
        return;
    };
    assert!(said.contains("ProcSubset=pid"), "{said}");
}

#[test]
fn proc_that_is_missing_is_said_to_be() {
    let Some(said) = said_after("mount -t tmpfs none /proc") else {
        return;
    };
    assert!(said.contains("/proc is not mounted"), "{said}");
}

#[test]
fn run_directory_that_is_read_only_is_said_with_the_units_line() {
    let read_only = "mkdir run && mount -t tmpfs -o ro none run";
    let Some(said) = said_after(read_only) else {
        return;
    };
    assert!(said.contains("ProtectSystem="), "{said}");
}

/// A C library's clock that stands still, put before everything.
const STILL: &str = r"
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now) { (void)id; now->tv_sec = 1000; now->tv_nsec = 0; return 0; }
";

/// Runs a program below such a clock, which is the supervisor's as well: its log is drained.
fn is_drained_below(library: &Path, sandbox: &Sandbox) {
    let pool = small_pool();
    let script = r#"
import ctypes, json, os, subprocess
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for line in (b"first", b"second"):
    os.write(fd, line)
    os.fsync(fd)
ctypes.CDLL(None).sleep(4)
said = subprocess.run([os.environ["FOREBAY"], "status", "--json"], capture_output=True).stdout
assert json.loads(said)[0]["lane"]["drained"] > 0, said
"#;
    let mut run = sandbox.command("run --absorb *.log --pool");
    let forebay = run.get_program().to_owned();
    run.arg(pool.path())
        .args(["--", "python3", "-c", script])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY", forebay)
        .env("FAKETIME", "2020-01-01 00:00:00")
        // Or it leaves memory that processes share.
        .env("FAKETIME_DISABLE_SHM", "1")
        .env("LD_PRELOAD", library);
    Ran::of(run.output().unwrap()).ok();
}

#[test]
fn idle_log_is_drained_though_the_c_clock_stands_still() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.file("still.c"), STILL).unwrap();
    let library = sandbox.file("still.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &sandbox.file("still.c")])
        .status();
    assert!(built.unwrap().success());
    is_drained_below(&library, &sandbox);
}

#[test]
fn idle_log_is_drained_below_faketime() {
    let libraries = ["x86_64", "aarch64"]
        .map(|machine| format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketime.so.1"));
    match libraries.iter().map(Path::new).find(|it| it.exists()) {
        Some(library) => is_drained_below(library, &Sandbox::new()),
        None => {
            skip("libfaketime is not installed: scripts/setup.sh test");
        }
    }
}
