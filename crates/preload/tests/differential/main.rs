//! A program cannot tell whether it runs under Forebay: random file calls have the same results,
//! errno, descriptors and bytes as without.
//!
//! A worker (this program again, [`worker`]) makes the calls that a seed says in an empty
//! directory, and writes down what each did. It runs plain and under Forebay; the transcripts and
//! the directories must be the same. Of what threads do at the same time only what does not depend
//! on their order is compared. `FOREBAY_SEED=n` repeats a run.
//!
//! Promise (programs): A database sees the results, errors and bytes that it would see without
//! Forebay.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "calls the C library, with wrong arguments too"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod aio;
mod cancel;
mod closed;
mod data;
mod descriptors;
mod files;
mod harness;
mod libraries;
mod maps;
mod metadata;
mod numbers;
mod operations;
mod process;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod world;

use harness::{
    SECONDS_MAX, SEED, TRANSCRIPT, assert_same, compare_until_all_are_called, make_pool, plain,
    program, run_with_pool, run_worker, side_by_side,
};
use std::{path::Path, process::Command};

/// The command that runs `worker` under Forebay, up to the worker's own arguments, with a pool of
/// its own in `dir`. Without the `forebay` program (cargo builds it for `cargo test --workspace`)
/// the library alone: nothing is absorbed, but everything goes through the hooks.
fn under_forebay(worker: &Path, dir: &Path) -> Command {
    let library = support::library();
    let Some(forebay) = program("forebay", &library) else {
        let mut command = Command::new(worker);
        command.env("LD_PRELOAD", library);
        return command;
    };
    make_pool(&forebay, dir);
    let mut command = run_with_pool(&forebay, dir);
    command
        .arg("--")
        .arg(worker)
        .env("FOREBAY_LIBRARY", library);
    command
}

#[test]
fn the_same_calls_do_the_same() {
    compare_until_all_are_called(|seed| {
        let (plain, forebay) = side_by_side(seed, plain, under_forebay);
        assert_same(seed, &plain, &forebay);
        plain
    });
}

/// Not a test: what the other runs, in a process of its own.
#[test]
fn worker() {
    harness::work();
}
