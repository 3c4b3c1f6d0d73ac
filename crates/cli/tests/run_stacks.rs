//! Calls on files need little of a stack: a thread's may be small, and a signal handler's as small
//! as 8 KiB.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox};
use std::process::Command;

/// So much of it a call may take, the C library's own part included.
const BYTES_MAX: usize = 8 << 10;

fn run(words: &str) -> Ran {
    let sandbox = Sandbox::new();
    let source = format!("{}/tests/programs/stacks.c", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    // The program's own functions are found when it starts, which takes some KiB otherwise.
    let built = compiler
        .args(["-pthread", "-Wl,-z,now", "-o", "stacks", &source])
        .current_dir(sandbox.path());
    assert!(built.status().unwrap().success());
    let line = format!("run --emulated 16MiB --absorb *.log -- ./stacks {words}");
    let mut command = sandbox.command(&line);
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(command.output().unwrap()).ok()
}

/// Promise: as `no_hook_takes_more_than_8_kib_of_a_stack`.
#[test]
fn each_call_takes_little_of_a_threads_stack() {
    let said = run("").text();
    println!("{said}");
    let mut calls = 0;
    for line in said.lines() {
        let (call, bytes) = line.split_once(' ').unwrap();
        let bytes: usize = bytes.parse().unwrap();
        assert!(bytes <= BYTES_MAX, "{call} takes {bytes} bytes");
        calls += 1;
    }
    assert!(calls > 60, "{calls} calls of a log and of another file");
}

/// Promise: as `no_hook_takes_more_than_8_kib_of_a_stack`.
#[test]
fn a_handler_with_a_stack_of_8_kib_opens_and_writes_a_log() {
    run("handler");
}
