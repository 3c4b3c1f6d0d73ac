//! The cost of a commit to a pool on a disk beside that disk's own write of a page, which it cannot
//! be faster than.

use crate::{
    BenchError,
    device::pages::{PageDurability, Pages},
    report::{Column, Table, figure},
    rounds::percentile,
};
use serde::Serialize;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// Bytes of what is committed: with its header less than a page, of which a commit writes one then.
pub const BYTES: usize = 512;

/// Of all rounds together, µs.
#[derive(Debug, Serialize)]
pub struct Commit {
    mode: String,
    /// 4 KiB past the page cache, durable (`O_DIRECT`, `O_DSYNC`), in a file beside the pool's.
    write_p50_us: f64,
    write_p99_us: f64,
    /// An append of 512 bytes and its commit, which writes as much.
    commit_p50_us: f64,
    commit_p99_us: f64,
    /// `commit_p99_us` over `write_p99_us`.
    p99_over_write: f64,
}

/// Measures `commit`, which gives the time of one in µs, beside writes to a file in `dir`: in turns
/// of `time`.
pub fn measure(
    mode: &str,
    dir: &Path,
    rounds: usize,
    time: Duration,
    mut commit: impl FnMut() -> Result<f64, BenchError>,
) -> Result<Commit, BenchError> {
    let mut pages = Pages::new(dir, PageDurability::InPlace)
        .map_err(BenchError::io("making a file in", dir))?;
    let mut write = || (pages.write()).map_err(BenchError::io("writing to a file in", dir));
    let (mut writes, mut commits) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Every other one backwards.
        for is_commit in [round % 2 == 1, round % 2 == 0] {
            match is_commit {
                true => turn(time, &mut commits, &mut commit)?,
                false => turn(time, &mut writes, &mut write)?,
            }
        }
    }
    let (write_p99_us, commit_p99_us) = (
        percentile(&mut writes, 0.99),
        percentile(&mut commits, 0.99),
    );
    Ok(Commit {
        mode: mode.to_owned(),
        write_p50_us: percentile(&mut writes, 0.5),
        write_p99_us,
        commit_p50_us: percentile(&mut commits, 0.5),
        commit_p99_us,
        p99_over_write: commit_p99_us / write_p99_us,
    })
}

/// On a slow disk, too, a few rounds have some 100 of each.
fn turn(
    time: Duration,
    times: &mut Vec<f64>,
    once: &mut impl FnMut() -> Result<f64, BenchError>,
) -> Result<(), BenchError> {
    const LEAST: usize = 40;
    let (begun, before) = (Instant::now(), times.len());
    while begun.elapsed() < time || times.len() < before + LEAST {
        times.push(once()?);
    }
    Ok(())
}

/// As a table.
pub fn table(commits: &[Commit]) -> String {
    let columns: [Column<&Commit>; 6] = [
        ("where", |row| row.mode.clone()),
        ("own write p50 µs", |row| figure(Some(row.write_p50_us))),
        ("p99 µs", |row| figure(Some(row.write_p99_us))),
        ("commit p50 µs", |row| figure(Some(row.commit_p50_us))),
        ("p99 µs", |row| figure(Some(row.commit_p99_us))),
        ("x own p99", |row| figure(Some(row.p99_over_write))),
    ];
    format!(
        "\nown write: 4 KiB to a file beside the pool, past the page cache and durable; commit: of {BYTES} bytes, which is a write of 4 KiB\n\n{}",
        Table::of(&columns, commits).render()
    )
}
