//! A program cannot tell that its files are on an emulated device: the calls of the product's test
//! of the same name (crates/preload/tests/differential) have the same results there.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "calls the C library, with wrong arguments too"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../../../crates/preload/tests/differential/aio.rs"]
mod aio;
#[path = "../../../crates/preload/tests/differential/cancel.rs"]
mod cancel;
#[path = "../../../crates/preload/tests/differential/data.rs"]
mod data;
#[path = "../../../crates/preload/tests/differential/descriptors.rs"]
mod descriptors;
#[path = "../../../crates/preload/tests/differential/files.rs"]
mod files;
#[path = "../../../crates/preload/tests/differential/harness.rs"]
mod harness;
#[path = "../../../crates/preload/tests/differential/libraries.rs"]
mod libraries;
#[path = "../../../crates/preload/tests/differential/maps.rs"]
mod maps;
#[path = "../../../crates/preload/tests/differential/metadata.rs"]
mod metadata;
#[path = "../../../crates/preload/tests/differential/numbers.rs"]
mod numbers;
#[path = "../../../crates/preload/tests/differential/operations.rs"]
mod operations;
#[path = "../../../crates/preload/tests/differential/process.rs"]
mod process;
#[path = "../../../crates/preload/tests/differential/streams.rs"]
mod streams;
#[path = "../../../crates/preload/tests/support/mod.rs"]
mod support;
#[path = "../../../crates/preload/tests/differential/threads.rs"]
mod threads;
#[path = "../../../crates/preload/tests/differential/world.rs"]
mod world;

use harness::{
    SECONDS_MAX, assert_same, make_pool, plain, program, run_with_pool, seeds, side_by_side,
    without_rings,
};
use std::{fs, path::Path, process::Command};

/// The command that runs `worker`, up to its own arguments, with a pool of its own in `dir` and
/// everything on an emulated device that keeps nothing in memory, but is fast. Without the programs
/// (cargo builds them for `cargo test --workspace`) the library alone.
fn on_a_device(worker: &Path, dir: &Path) -> Command {
    let library = support::beside_the_tests("libforebay_lab.so");
    let programs = ["forebay", "forebay-lab"].map(|name| program(name, &library));
    let [Some(forebay), Some(lab)] = programs else {
        let mut command = Command::new(worker);
        command.env("LD_PRELOAD", library);
        return command;
    };
    let profile = dir.join("device.toml");
    let cost = "{ random_us = 1, mb_s = 10000 }";
    let text = format!("read = {cost}\nwrite = {cost}\n[cache]\nreads = false\nwrites = false\n");
    fs::write(&profile, text).unwrap();
    let mut placed = dir.join("work").into_os_string();
    placed.push("=");
    placed.push(profile);
    make_pool(&forebay, dir);
    let mut command = run_with_pool(&lab, dir);
    command
        .arg("--device")
        .arg(placed)
        .arg("--")
        .arg(worker)
        .env("FOREBAY_LAB_LIBRARY", library);
    command
}

#[test]
fn the_same_calls_do_the_same_on_a_device() {
    for seed in seeds() {
        let (plain, device) = side_by_side(
            seed,
            |worker, dir| without_rings(plain(worker, dir)),
            |worker, dir| without_rings(on_a_device(worker, dir)),
        );
        assert_same(seed, &plain, &device);
    }
}

/// Not a test: what the other runs, in a process of its own.
#[test]
fn worker() {
    harness::work();
}
