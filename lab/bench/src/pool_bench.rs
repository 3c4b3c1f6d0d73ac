//! `forebay-lab pool`: what an append costs beside the floor, a bare copy and fence of the same bytes.
//!
//! Appends and bare copies take turns, a slice of time each, round after round. The lane's segments are large, and a drain
//! releases sealed ones at once, so that sealing is rare. The floor goes through
//! [`Media::stream`] and [`Media::fence`] to a scratch medium of the same kind and size, one after the
//! other; with several threads each has a part of it for itself.
//!
//! Beside threads on a lane of one process, `--processes` measures processes ([`members`]) on a shared lane, and as many threads of one process on it.

use crate::{
    BenchError,
    histogram::Latencies,
    rounds::{Span, median, span, take_turns},
    scratch::{self, PoolSource, ScratchMedia},
};
use forebay_device::memory::Profile;
use forebay_measure::lane::{drain_all, with_drain};
use forebay_pool::{ClaimOptions, Lane, persist::Persist};
use members::Members;
pub use members::serve;
use serde::Serialize;
use slices::{Slice, appended, copies, timed};
use std::time::Duration;
pub use table::table;
use uuid::Uuid;

mod members;
mod slices;
mod table;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the pool comes from.
    pub pool: PoolSource,
    /// Slow it down to this device.
    pub profile: Option<Profile>,
    /// Bytes of a segment of an emulated pool.
    pub segment_bytes: u64,
    /// Payload sizes.
    pub sizes: Vec<usize>,
    /// Numbers of threads on the one lane.
    pub threads: Vec<usize>,
    /// Numbers of processes on a shared lane; not with a profile.
    pub processes: Vec<usize>,
    /// The command line that starts one, which gets one more argument and calls [`serve`] with it.
    pub member: Vec<String>,
    /// Rounds.
    pub rounds: usize,
    /// Seconds of one slice: one size, one number of threads, appends or floor.
    pub slice_seconds: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pool: PoolSource::Emulated,
            profile: None,
            segment_bytes: 64 << 20,
            sizes: vec![64, 512, 4096, 65536],
            threads: vec![1, 2, 4, 8, 16],
            processes: Vec::new(),
            member: Vec::new(),
            rounds: 7,
            slice_seconds: 0.2,
        }
    }
}

impl Config {
    fn check(&self) -> Result<(), BenchError> {
        let bad = |what: &str| Err(BenchError::Config(what.to_owned()));
        if self.rounds == 0 || self.slice_seconds <= 0.0 || self.threads.contains(&0) {
            return bad("at least one round, one thread and some time are needed");
        }
        if self.processes.contains(&0) || !self.processes.is_empty() && self.profile.is_some() {
            return bad("processes are measured at the pool's own speed, and at least one");
        }
        Ok(())
    }

    /// The rows, size by size, as far as the sizes fit.
    fn cases(&self, payload_max: usize) -> Vec<Case> {
        let mut cases = Vec::new();
        for &bytes in self.sizes.iter().filter(|&&bytes| bytes <= payload_max) {
            let case = |writers, processes| Case {
                bytes,
                writers,
                processes,
            };
            let processes = self.processes.iter();
            let in_one = processes.clone().filter(|&&writers| writers > 1);
            cases.extend(self.threads.iter().map(|&writers| case(writers, None)));
            cases.extend(in_one.map(|&writers| case(writers, Some(1))));
            cases.extend(processes.map(|&writers| case(writers, Some(writers))));
        }
        cases
    }
}

/// Segments of the lane: one is written, one is released, and one is in reserve.
const BUFFERS: u16 = 3;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `pool`.
    pub bench: &'static str,
    /// The medium in words.
    pub medium: String,
    /// What it survives, in words.
    pub survives: String,
    /// The instructions: for copies, and for flushing lines written otherwise.
    pub instructions: (&'static str, &'static str),
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Rounds.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<Row>,
    /// What to know when reading the figures.
    pub notes: Vec<String>,
}

/// One size with one number of threads. Times are per operation as its thread sees it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Payload bytes.
    pub bytes: usize,
    /// Threads on the lane, or of each process on it.
    pub threads: usize,
    /// Processes on a shared lane; `null` for threads on a lane of one process.
    pub processes: Option<usize>,
    /// Appends counted, all rounds.
    pub ops: u64,
    /// Median over the rounds.
    pub append_ns: f64,
    /// Fastest and slowest round.
    pub append_ns_span: Span,
    /// Payload bytes, all threads together, 10^6 a second.
    pub append_mb_s: f64,
    /// Appends of all threads (processes) together over those of one; `null` where one was not measured.
    pub of_one_thread: Option<f64>,
    /// Of 1,000 appends 999 took at most so many microseconds: in slices of their own, of all rounds together, since the clock
    /// is read around each.
    pub append_p999_us: Option<f64>,
    /// The bare copy and fence; `null` where no second medium of the kind can be had.
    pub floor_ns: Option<f64>,
    /// Fastest and slowest round.
    pub floor_ns_span: Option<Span>,
    /// Median over the rounds of append over floor.
    pub ratio: Option<f64>,
}

/// Runs it. `note` is told what is being measured.
///
/// # Errors
/// Those of the pool.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    config.check()?;
    let lanes = 1 + u64::from(!config.processes.is_empty());
    let scratch = scratch::pool(
        &config.pool,
        lanes * u64::from(BUFFERS),
        config.segment_bytes,
        config.profile,
    )?;
    let pool = scratch.pool();
    let segment_bytes = pool.geometry().segment_bytes;
    let floor = ScratchMedia::new(
        &config.pool,
        segment_bytes * u64::from(BUFFERS),
        config.profile,
    )?;
    let claim = ClaimOptions::new()
        .segments(BUFFERS)
        .label("forebay-lab pool");
    let (lane, recovered) = pool.claim(Uuid::new_v4(), &claim)?;
    drop(recovered);
    let mut notes = Vec::new();
    if floor.is_none() {
        notes.push("no floor: there is no second medium of this kind beside the pool".to_owned());
    }
    if pool.is_emulated() {
        notes.push("the pool is emulated: the speed is that of ordinary memory".to_owned());
    }
    let cases = config.cases(lane.payload_max());
    if config.sizes.iter().any(|&bytes| bytes > lane.payload_max()) {
        notes.push(format!(
            "sizes above {} bytes do not fit into half a segment and were left out",
            lane.payload_max()
        ));
    }
    let mut members = match config.processes.iter().max() {
        Some(&count) => Some(Members::start(pool, &config.member, count)?),
        None => None,
    };
    let rows = with_drain(&lane, || {
        measure(
            config,
            &cases,
            (&lane, members.as_mut()),
            floor.as_ref(),
            note,
        )
    });
    if members.is_some_and(|members| !members.end()) {
        notes.push("the shared lane could not be given back to the pool".to_owned());
    }
    drain_all(&lane)?;
    if !lane.remove() {
        let why = "something in it was not drained";
        notes.push(format!(
            "the lane could not be removed from the pool: {why}"
        ));
    }
    Ok(Report {
        bench: "pool",
        medium: pool.describe(),
        survives: pool.durability().to_string(),
        instructions: Persist::detect().names(),
        segment_bytes,
        rounds: config.rounds,
        rows: rows?,
        notes,
    })
}

#[derive(Clone, Copy)]
struct Case {
    bytes: usize,
    /// Threads, of all processes together.
    writers: usize,
    /// Processes, on a shared lane.
    processes: Option<usize>,
}

impl Case {
    /// Threads of each process.
    fn threads(self) -> usize {
        self.writers / self.processes.unwrap_or(1)
    }
}

/// All cases, round after round.
fn measure(
    config: &Config,
    cases: &[Case],
    (lane, mut members): (&Lane, Option<&mut Members>),
    floor: Option<&ScratchMedia>,
    note: &dyn Fn(&str),
) -> Result<Vec<Row>, BenchError> {
    let slice = Duration::from_secs_f64(config.slice_seconds);
    let rounds = take_turns(cases, config.rounds, |case| {
        let processes = match case.processes {
            Some(processes) => format!("{processes} processes of "),
            None => String::new(),
        };
        let threads = case.threads();
        note(&format!(
            "{} bytes, {processes}{threads} threads",
            case.bytes
        ));
        let floor = floor.map(|floor| copies(*case, &*floor.media, slice));
        let (append, latencies) = match (members.as_mut(), case.processes) {
            (Some(members), Some(processes)) => {
                let append = members.appended(*case, processes, slice)?;
                (append, Latencies::new())
            }
            _ => (
                appended(*case, lane, slice)?,
                timed(*case, lane, slice / 2)?,
            ),
        };
        Ok::<_, BenchError>(Round {
            floor: floor.transpose()?,
            append,
            latencies,
        })
    })?;
    let cases = cases.iter().zip(rounds);
    let mut rows: Vec<Row> = cases.map(|(case, rounds)| row(*case, &rounds)).collect();
    let key = |row: &Row| (row.bytes, row.processes.is_some());
    let alone: Vec<_> = rows
        .iter()
        .filter(|row| row.threads * row.processes.unwrap_or(1) == 1)
        .map(|row| (key(row), row.append_mb_s))
        .collect();
    for row in &mut rows {
        let one = alone.iter().find(|(of, _)| *of == key(row));
        row.of_one_thread = one.map(|(_, one)| row.append_mb_s / one);
    }
    Ok(rows)
}

/// What a round of a case gives.
struct Round {
    floor: Option<Slice>,
    append: Slice,
    latencies: Latencies,
}

fn row(case: Case, rounds: &[Round]) -> Row {
    let append_ns: Vec<f64> = rounds.iter().map(|round| round.append.ns()).collect();
    let floors = rounds.iter().filter_map(|round| round.floor.as_ref());
    let floor_ns: Vec<f64> = floors.map(Slice::ns).collect();
    let ratios = append_ns.iter().zip(&floor_ns);
    let ratios: Vec<f64> = ratios.map(|(append, floor)| append / floor).collect();
    let mut latencies = Latencies::new();
    for round in rounds {
        latencies.merge(&round.latencies);
    }
    let measured = !floor_ns.is_empty();
    Row {
        bytes: case.bytes,
        threads: case.threads(),
        processes: case.processes,
        ops: rounds.iter().map(|round| round.append.ops).sum(),
        append_ns: median(&append_ns),
        append_ns_span: span(&append_ns),
        append_mb_s: case.bytes as f64 * case.writers as f64 * 1e3 / median(&append_ns),
        of_one_thread: None,
        append_p999_us: latencies.percentiles().p999_us,
        floor_ns: measured.then(|| median(&floor_ns)),
        floor_ns_span: measured.then(|| span(&floor_ns)),
        ratio: measured.then(|| median(&ratios)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_and_number_of_threads_gets_a_row_with_its_floor() {
        let config = Config {
            segment_bytes: 1 << 20,
            rounds: 2,
            slice_seconds: 0.005,
            ..Config::default()
        };
        let report = run(&config, &|_| {}).unwrap();
        assert_eq!(report.rows.len(), 20);
        for row in &report.rows {
            assert!(row.of_one_thread.unwrap() > 0.0 && row.append_p999_us.unwrap() > 0.0);
            assert!(
                row.ops > 0 && row.append_ns > 0.0 && row.ratio.unwrap() > 0.0,
                "{row:?}"
            );
        }
        assert!(report.notes[0].contains("emulated"));
    }

    #[test]
    fn a_users_pool_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.pool");
        let options = forebay_pool::PoolOptions::new()
            .size(8 << 20)
            .segment_size(1 << 20)
            .emulated(true);
        let free = options.create(&path).unwrap().segments_free();
        let config = Config {
            pool: PoolSource::At(path.clone()),
            sizes: vec![64, 1 << 20],
            threads: vec![1, 2],
            rounds: 1,
            slice_seconds: 0.005,
            ..Config::default()
        };
        let report = run(&config, &|_| {}).unwrap();
        assert_eq!(
            report.rows.len(),
            2,
            "a size above half a segment is left out"
        );
        let pool = forebay_pool::PoolOptions::new().open(&path).unwrap();
        assert!(pool.lanes().is_empty());
        assert_eq!(pool.segments_free(), free);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
