//! A limit on the size of files (`ulimit -f`) holds for what Forebay makes and writes to, too: nothing ends by it that would not end without Forebay.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox};
use nix::sys::signal::Signal;
use std::fs;

/// Appends to a log, each write synced, with the signal as a program of C has it.
const PROGRAM: &str = r#"
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
log = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
for i in range(40):
    if i == 20 and "later" in sys.argv:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    os.write(log, b"%099d\n" % i); os.fsync(log)
if "beyond" in sys.argv:
    os.write(log, b"x" * 8192)
    os.write(log, b"x")
"#;

fn forebay(sandbox: &Sandbox, pool: &str, before: &str, inside: &str, how: &str) -> Ran {
    fs::write(sandbox.file("program.py"), PROGRAM).unwrap();
    let line = format!(
        "{before} exec {} run --explain --absorb '*.log' --absorb-preallocated --pool {pool} -- bash -c '{inside} exec python3 -S program.py {how}'",
        common::FOREBAY
    );
    let mut shell = std::process::Command::new("bash");
    shell
        .args(["-c", &line])
        .current_dir(sandbox.path())
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(shell.output().unwrap())
}

fn lines(sandbox: &Sandbox) -> usize {
    fs::read(sandbox.file("a.log"))
        .unwrap()
        .split(|b| *b == b'\n')
        .count()
        - 1
}

/// A pool on a disk, and one that is written to as memory.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::on_disk();
    sandbox
        .run("pool create disk --disk --size 6MiB --segment-size 1MiB")
        .ok();
    sandbox
        .run("pool create large --disk --size 12MiB --segment-size 1MiB")
        .ok();
    sandbox
        .run("pool create memory --emulated --size 6MiB --segment-size 1MiB")
        .ok();
    sandbox
}

/// Promise (programs): A limit on the size of files below Forebay's need is refused, or has files
/// stay plain.
#[test]
fn a_run_that_could_not_make_its_own_files_is_refused_and_says_why() {
    let sandbox = sandbox();
    for (pool, kib) in [("disk", 8), ("memory", 8), ("large", 10 << 10)] {
        let ran = forebay(&sandbox, pool, &format!("ulimit -f {kib};"), "", "");
        ran.fails(1, &["ulimit -f, LimitFSIZE="]);
        assert!(!sandbox.file("a.log").exists());
    }
}

/// Promise: as `a_run_that_could_not_make_its_own_files_is_refused_and_says_why`.
#[test]
fn a_program_whose_limit_is_below_the_pools_size_goes_on_with_plain_files_and_is_told() {
    let sandbox = sandbox();
    let ran = forebay(&sandbox, "disk", "", "ulimit -f 8;", "").ok();
    assert!(ran.stderr.contains("ulimit -f"), "{}", ran.stderr);
    assert_eq!(lines(&sandbox), 40);
    fs::remove_file(sandbox.file("a.log")).unwrap();
    let ran = forebay(&sandbox, "disk", "", "", "later").ok();
    assert!(ran.stderr.contains("ulimit -f"), "{}", ran.stderr);
    assert_eq!(lines(&sandbox), 40);
}

/// Promise (programs): A limit on the size of files ends a program only if it would without
/// Forebay.
#[test]
fn a_program_that_goes_beyond_its_own_limit_ends_as_it_does_without_forebay() {
    let sandbox = sandbox();
    for pool in ["disk", "memory"] {
        let ran = forebay(&sandbox, pool, "", "ulimit -f 8;", "beyond");
        assert_eq!(
            ran.code,
            Some(128 + Signal::SIGXFSZ as i32),
            "{}",
            ran.stderr
        );
        assert_eq!(fs::metadata(sandbox.file("a.log")).unwrap().len(), 8192);
        fs::remove_file(sandbox.file("a.log")).unwrap();
    }
}
