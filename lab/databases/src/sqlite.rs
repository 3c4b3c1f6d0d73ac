//! SQLite: what it pays for transactions that survive a power cut, and what it pays under `forebay
//! run`.
//!
//! The load is SQLite's own shell, which is told one INSERT after the other by a pipe, each a
//! transaction, on a fresh database each time: the profile of `forebay run` knows it by its name,
//! and it needs no driver. What a transaction takes includes a line to the shell and one back, in
//! all modes alike.

use crate::{
    MeasureError,
    contest::{self, Cell, Contender, Contest, Mode, Report, Sample, Setup, of_pool},
    processes::find_program,
    rounds::Percentiles,
    scratch::{ScratchDir, sync_file_system},
};
use forebay_measure::{dialog::Dialog, server::command_line};
use serde_json::json;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// `synchronous` of a transaction that is durable when it is done.
pub const SYNCED: &[&str] = &["FULL"];

/// What SQLite promises about a transaction that is done: its `synchronous`.
pub const MODES: [Mode; 5] = [
    contest::PLAIN.with(SYNCED),
    Mode::new("no_sync", "a process crash", &["OFF"]),
    contest::EATMYDATA.with(SYNCED),
    contest::FOREBAY.with(SYNCED),
    contest::NOTIFY.with(SYNCED),
];

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where, in which modes, with which pools.
    pub setup: Setup,
    /// How SQLite keeps a transaction whole, one after the other: its `journal_mode`.
    pub journals: Vec<String>,
    /// Bytes of a row.
    pub value_bytes: u64,
    /// Seconds of a round.
    pub seconds: u64,
}

/// The shell's answer to a line that ends with a `SELECT` of it.
const DONE: &str = "done";

/// Runs it all. `note` is told what is being done.
///
/// # Errors
/// The first thing that goes wrong; a missing libeatmydata is reported, and is no error.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, MeasureError> {
    let setup = &config.setup;
    setup.check(&[&[config.value_bytes, config.seconds]])?;
    let program = find_program("sqlite3").ok_or_else(|| {
        MeasureError::Config("sqlite3 is not installed: apt-get install sqlite3".to_owned())
    })?;
    let mut contest = Contest::begin("sqlite", "INSERTs", setup, note)?;
    for journal in &config.journals {
        let columns = json!({"journal_mode": journal, "value_bytes": config.value_bytes});
        let cell = Cell::new(journal.clone(), columns);
        contest.cell(
            &cell,
            |_| true,
            |scratch, contender| measure(config, &program, scratch, journal, contender),
        )?;
    }
    Ok(contest.end())
}

fn measure(
    config: &Config,
    program: &Path,
    scratch: &Path,
    journal: &str,
    contender: &Contender,
) -> Result<Sample, MeasureError> {
    let setup = &config.setup;
    let dir = ScratchDir::new_in(scratch)?;
    let device = setup.device.as_deref().map(|device| (dir.path(), device));
    let devices: Vec<_> = device.into_iter().collect();
    let run_dir = scratch.join("run");
    let around = setup
        .setting(contender, None)
        .around(&devices, [], run_dir)?;
    sync_file_system(dir.path())?;
    let mut command = command_line([], &around.wrapper, program);
    command
        // An error ends it: what it answers then was done.
        .args(["-batch", "-bail"])
        .arg(dir.path().join("database"))
        .envs(around.environment.iter().cloned())
        .current_dir(dir.path());
    let mut shell = Dialog::start(command, &scratch.join("errors"))?;
    let synchronous = contender.mode.settings.concat();
    let begin = format!(
        "PRAGMA journal_mode={journal}; PRAGMA synchronous={synchronous}; \
         CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB); SELECT '{DONE}';"
    );
    shell.ask(&begin, DONE)?;
    let insert = format!(
        "INSERT INTO t (v) VALUES (randomblob({})); SELECT '{DONE}';",
        config.value_bytes
    );
    let mut times_us = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(config.seconds) {
        let asked = Instant::now();
        shell.ask(&insert, DONE)?;
        times_us.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    let seconds = begun.elapsed().as_secs_f64();
    shell.end()?;
    let mut more = of_pool(around.lane_bytes(setup.pools.lane_segments), None);
    more.insert("ops".to_owned(), json!(times_us.len()));
    Ok(Sample {
        ops_per_s: times_us.len() as f64 / seconds,
        latency: Percentiles::of(&mut times_us),
        more,
    })
}
