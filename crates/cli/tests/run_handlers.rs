//! Signal handlers that work on a log above a call of the library that they interrupted: what they
//! synced is durable, and nothing older is written over it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    databases::boot_anew,
    recovered::{Disk, RUN, run_and_recovered, same},
};
use std::fs;

/// Runs `programs/handler.c`, which ends with its supervisor, and recovers as if the machine had
/// been started anew: the recovery, and the log.
fn recovered_after(kind: &str) -> (Ran, String) {
    recovered_in(true, kind)
}

fn recovered_in(another_boot: bool, kind: &str) -> (Ran, String) {
    let sandbox = Sandbox::new();
    sandbox.pool();
    common::build("handler", sandbox.path());
    let mut run = sandbox.command(&format!("run --pool p --absorb *.log -- ./handler {kind}"));
    let ran = Ran::of(
        run.env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .output()
            .unwrap(),
    );
    assert_eq!(
        ran.code, None,
        "the supervisor was not killed: {}",
        ran.stderr
    );
    let mut environment = Vec::new();
    if another_boot {
        boot_anew(&mut environment, 1);
    }
    let recovery = sandbox
        .command("recover --json --pool p")
        .envs(environment)
        .output()
        .unwrap();
    let found = fs::read(sandbox.file("a.log")).unwrap();
    (Ran::of(recovery), String::from_utf8(found).unwrap())
}

fn parts(parts: &[(&str, usize)]) -> String {
    parts
        .iter()
        .map(|(byte, count)| byte.repeat(*count))
        .collect()
}

/// Promise (files): A recovery undoes no synced write or truncation that a signal handler made
/// above a call it interrupted, by whatever descriptor, though that call may have no record yet.
#[test]
fn a_handlers_writes_by_its_own_descriptor_are_not_overwritten() {
    let (_, found) = recovered_after("own");
    assert_eq!(found, parts(&[("n", 100), ("o", 200)]));
}

/// Promise: as `a_handlers_writes_by_its_own_descriptor_are_not_overwritten`.
#[test]
fn what_a_handler_truncated_by_opening_does_not_come_back() {
    let (_, found) = recovered_after("truncating");
    assert_eq!(found, parts(&[("n", 100)]));
}

/// Promise: as `a_handlers_writes_by_its_own_descriptor_are_not_overwritten`.
#[test]
fn a_handlers_writes_by_the_programs_descriptor_are_kept() {
    let (_, found) = recovered_after("shared");
    assert_eq!(found, parts(&[("n", 100), ("o", 200)]));
}

/// Promise: as `a_handlers_writes_by_its_own_descriptor_are_not_overwritten`.
#[test]
fn a_handlers_writes_above_an_unrecorded_write_are_kept() {
    for another_boot in [true, false] {
        let (_, found) = recovered_in(another_boot, "writing");
        let begins = &found[..found.len().min(101)];
        assert!(begins.starts_with(&"n".repeat(100)), "{begins}");
    }
}

#[test]
fn the_sync_after_a_handler_leaves_nothing_in_the_pool() {
    let (recovery, found) = recovered_after("goes-on");
    assert_eq!(found, parts(&[("n", 100), ("o", 200), ("l", 100)]));
    let reports = recovery.ok().json();
    let files = reports["lanes"].as_array().or(reports.as_array()).unwrap();
    assert!(
        files.iter().all(|lane| lane["outcome"] != "refused"),
        "{reports}"
    );
}

#[test]
fn a_handler_with_a_small_stack_writes_several_parts_to_a_log() {
    let sandbox = Sandbox::new();
    common::build("small_stack", sandbox.path());
    let run = sandbox.command(RUN);
    let program = ["./small_stack", "8192"];
    let found = run_and_recovered(Disk::Synced, &sandbox, run, &program);
    assert_eq!(same(found), b"one two one two one two ");
}
