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
    SECONDS_MAX, SEED, TRANSCRIPT, assert_absorbs, assert_same, compare_until_all_are_called,
    make_pool, plain, program, run_with_pool, run_worker, seeds, side_by_side, without_rings,
};
use std::{path::Path, process::Command};
use world::NO_NUMBERS;

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
        .args(["--explain", "--"])
        .arg(worker)
        .env("FOREBAY_LIBRARY", library);
    command
}

#[test]
fn the_same_calls_do_the_same() {
    let absorbs = program("forebay", &support::library()).is_some();
    compare_until_all_are_called(|seed| {
        let (plain, forebay) = side_by_side(seed, plain, under_forebay);
        assert_same(seed, &plain, &forebay);
        if absorbs {
            assert_absorbs(seed, &forebay);
        }
        plain
    });
}

/// The command that runs `worker` below an agent: the same calls, without a library in the program.
/// Absorbed files have numbers of their own there, and there are no rings.
fn below_agent(forebay: &Path, worker: &Path, dir: &Path) -> Command {
    make_pool(forebay, dir);
    let mut command = run_with_pool(forebay, dir);
    command
        .args(["--front-end", "notify", "--explain", "--"])
        .arg(worker)
        .env(NO_NUMBERS, "1");
    without_rings(command)
}

/// Promise (programs): A program whose calls an agent makes sees the results, errors and bytes that
/// it would see without.
#[test]
fn the_same_calls_do_the_same_below_an_agent() {
    let Some(forebay) = program("forebay", &support::library()) else {
        println!("skipped: there is no forebay beside the library");
        return;
    };
    for seed in seeds() {
        let plain = |worker: &Path, dir: &Path| {
            let mut command = without_rings(plain(worker, dir));
            command.env(NO_NUMBERS, "1");
            command
        };
        let below = |worker: &Path, dir: &Path| below_agent(&forebay, worker, dir);
        let (plain, below) = side_by_side(seed, plain, below);
        assert_same(seed, &plain, &below);
        assert_absorbs(seed, &below);
    }
}

/// Not a test: what the other runs, in a process of its own.
#[test]
fn worker() {
    harness::work();
}
