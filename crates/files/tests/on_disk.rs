//! A pool on a disk: what was synced is durable, what was not is the kernel's, as without Forebay.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use common::*;
use std::{fs, time::Duration};

const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const OTHER_BOOT: &str = "11111111-2222-3333-4444-555555555555";

/// True if each byte of `found`, and its length, is what one of the `states` that the file may be
/// in has.
fn is_between(found: &[u8], states: &[Vec<u8>]) -> bool {
    let length = found.len();
    states.iter().any(|state| state.len() <= length)
        && states.iter().any(|state| state.len() >= length)
        && found.iter().enumerate().all(|(i, byte)| {
            // Behind its end a file that is made longer has zeros.
            states
                .iter()
                .any(|state| state.get(i).copied().unwrap_or(0) == *byte)
        })
}

/// Promise (files): A kill without a power cut costs the files no written byte, also with a pool on
/// a disk.
/// Promise (files): A recovery from a pool on a disk leaves everything synced in the files, and
/// each other byte is one that the file had since, whatever died at any moment.
#[test]
fn whatever_dies_at_any_moment_what_was_synced_is_there() {
    let seed = seed();
    for round in 0..12 {
        let mut rng = Rng(seed.wrapping_add(round * 1_000_003));
        let lab = Lab::on_disk();
        let mut run = lab.run();
        let names = ["a.log", "b.aof", "c.log"];
        // By file: the states since its last sync, that one first.
        let mut states: Vec<Vec<Vec<u8>>> = Vec::new();
        for name in names {
            for (prefix, flags) in [("append", APPEND), ("at", RDWR)] {
                let handle = format!("{prefix}-{name}");
                assert_eq!(run.open(&handle, &lab.data(name), flags), 1);
            }
            states.push(vec![Vec::new()]);
        }
        for _ in 0..50 + rng.below(400) {
            let file = rng.below(3) as usize;
            let name = names[file];
            let mut next = states[file].last().unwrap().clone();
            let bytes = match rng.below(12) {
                0 => 30_000 + rng.below(60_000) as usize,
                1..4 => 1000 + rng.below(5000) as usize,
                _ => 1 + rng.below(300) as usize,
            };
            let content_seed = rng.below(1 << 30);
            let call = match rng.below(24) {
                0 => {
                    let size = rng.below(next.len() as u64 + 2000) as usize;
                    next.resize(size, 0);
                    format!("truncate at-{name} {size}")
                }
                1..5 => {
                    let at = rng.below(next.len() as u64 + 100) as usize;
                    next.resize(next.len().max(at + bytes), 0);
                    next[at..at + bytes].copy_from_slice(&content(content_seed, bytes));
                    format!("pwrite at-{name} {at} {content_seed} {bytes}")
                }
                5..10 => format!("sync at-{name}"),
                _ => {
                    next.extend(content(content_seed, bytes));
                    format!("write append-{name} {content_seed} {bytes}")
                }
            };
            run.call(&call).unwrap();
            match call.starts_with("sync") {
                true => states[file] = vec![next],
                false => states[file].push(next),
            }
        }
        let power = rng.below(3) != 0;
        run.kill_both();
        let boot = power.then_some(OTHER_BOOT);
        if power {
            lab.power_cut();
        }
        let reports = lab.recover(boot, &[]);
        for (name, states) in names.into_iter().zip(&states) {
            let found = fs::read(lab.data(name)).unwrap();
            let expected = match power {
                true => is_between(&found, states),
                // The page cache has everything.
                false => found == *states.last().unwrap(),
            };
            assert!(
                expected,
                "seed {seed}, round {round}: {name} differs: {} bytes, synced {}, written {}: {reports:?}",
                found.len(),
                states[0].len(),
                states.last().unwrap().len()
            );
        }
        assert_eq!(lab.lanes(), 0, "seed {seed}, round {round}: {reports:?}");
    }
}

/// Promise (files): A write that was not synced is not in a pool on a disk after a power cut: the
/// tests of such a pool can fail.
/// Promise: as `committed_records_are_recovered_and_others_go_with_memory`.
#[test]
fn what_was_not_synced_is_not_in_the_pool_after_a_power_cut() {
    // Or the tests here could not fail.
    let lab = Lab::on_disk();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.calls(["write a 1 3000", "sync a", "write a 2 3000"]);
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    holds(&path, &[(1, 3000)]);
}

/// Promise (files): With a pool on a disk, what a sync of the drain took along without having been
/// committed is not taken for a clone's at a recovery.
#[test]
fn what_the_drain_took_along_is_no_clones() {
    let lab = Lab::on_disk();
    let path = lab.data("a.log");
    let mut run = lab.run_with(|command| {
        command.env("FOREBAY_FAILPOINT", "files:drain-sync=1:500ms");
        command.env("FOREBAY_TEST_WAITS", "commit-every=60000");
    });
    assert_eq!(run.open("a", &path, RDWR), 1);
    // The second has no room in the first one's segment, which is drained.
    run.calls(["pwrite a 0 1 60000", "pwrite a 60000 2 30000"]);
    run.calls(["pwrite a 90000 3 9000", "sync a", "pwrite a 70000 4 300"]);
    let synced = || fs::read(lab.synced(&path)).is_ok_and(|bytes| bytes.len() == 99_000);
    assert!(eventually(synced));
    run.kill_both();
    lab.power_cut();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(lab.lanes(), 0, "{reports:?}");
    assert!(fs::read(&path).unwrap()[70_000..70_300] == content(4, 300));
}

/// Promise (files): A synchronous write is durable when it returns, with a pool on a disk too.
#[test]
fn a_write_that_is_synchronous_is_durable_when_it_returns() {
    let lab = Lab::on_disk();
    let (mut run, path) = lab.run_with_log(APPEND | libc::O_DSYNC);
    run.call("write a 1 3000").unwrap();
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    holds(&path, &[(1, 3000)]);
}

/// Promise (files): A pool on a disk commits a write that nobody syncs a second later.
#[test]
fn a_second_after_it_was_written_it_is_durable_without_a_sync() {
    let lab = Lab::on_disk();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.call("write a 1 3000").unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    holds(&path, &[(1, 3000)]);
}
