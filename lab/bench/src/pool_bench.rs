//! `forebay-lab pool`: what an append costs beside the floor, a bare copy and fence of the same
//! bytes.
//!
//! Appends and bare copies take turns, a slice of time each, round after round. The lane's segments
//! are large, and a drain releases sealed ones at once, so that sealing is rare. The floor goes
//! through [`Media::stream`] and [`Media::fence`] to a scratch medium of the same kind and size,
//! one after the other; with several threads each has a part of it for itself.
//!
//! Beside threads on a lane of one process, `--processes` measures processes ([`members`]) on a
//! shared lane, and as many threads of one process on it.

use crate::{
    BenchError,
    histogram::Latencies,
    report::{self, Report, Row, notes},
    rounds::{median, take_turns},
    scratch::{self, PoolSource, ScratchMedia},
};
use forebay_device::memory::Profile;
use forebay_measure::lane::{drain_all, with_drain};
use forebay_pool::{ClaimOptions, Lane, persist::Persist};
use members::Members;
pub use members::serve;
use serde_json::json;
use slices::{Slice, appended, copies, timed};
use std::{path::PathBuf, time::Duration};
use uuid::Uuid;

mod members;
mod slices;

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
    /// `forebay-lab`, as which they are started; it calls [`serve`].
    pub program: PathBuf,
    /// Rounds.
    pub rounds: usize,
    /// Seconds of one slice: one size, one number of threads, appends or floor.
    pub slice_seconds: f64,
}

impl Config {
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

/// Runs it. `note` is told what is being measured.
///
/// # Errors
/// Those of the pool.
pub fn run(config: &Config, note: &dyn Fn(&str)) -> Result<Report, BenchError> {
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
    let cases = config.cases(lane.payload_max());
    let mut members = match config.processes.iter().max() {
        Some(&count) => Some(Members::start(pool, &config.program, count)?),
        None => None,
    };
    let rows = with_drain(&lane, || {
        let lanes = (&lane, members.as_mut());
        measure(config, &cases, lanes, floor.as_ref(), note)
    });
    let is_given_back = members.is_none_or(Members::end);
    drain_all(&lane)?;
    let payload_max = lane.payload_max();
    let is_any_larger = config.sizes.iter().any(|&bytes| bytes > payload_max);
    let larger =
        format!("sizes above {payload_max} bytes, left out, do not fit into half a segment");
    let notes = [
        floor
            .is_none()
            .then_some("no floor: there is no second medium of this kind beside it"),
        pool.is_emulated()
            .then_some("the pool is emulated: its speed is that of ordinary memory"),
        is_any_larger.then_some(&*larger),
        (!is_given_back).then_some("the shared lane could not be given back to the pool"),
        (!lane.remove())
            .then_some("the lane could not be removed from the pool: it was not drained"),
    ];
    let notes = notes.into_iter().flatten().map(str::to_owned);
    let about = json!({
        "medium": pool.describe(),
        "survives": pool.durability().to_string(),
        // For copies, and for flushing lines written otherwise.
        "instructions": Persist::detect().names(),
        "segment_bytes": segment_bytes,
        "rounds": config.rounds,
    });
    Ok(Report {
        rows: rows?,
        notes: notes.collect(),
        ..Report::new("pool", about)
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

    /// Who appends, in words.
    fn who(self) -> String {
        match self.processes {
            Some(1) if self.writers > 1 => format!("{} of 1 process", self.writers),
            Some(1) => "1 process".to_owned(),
            Some(processes) => format!("{processes} processes"),
            None => self.writers.to_string(),
        }
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
        note(&format!("{} bytes, threads: {}", case.bytes, case.who()));
        let floor = floor.map(|floor| copies(*case, &*floor.media, slice));
        let (append, latencies) = match (members.as_mut(), case.processes) {
            (Some(members), Some(processes)) => {
                let append = members.appended(*case, processes, slice)?;
                (append, Latencies::default())
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
    let measured = cases.iter().zip(rounds);
    let mut rows: Vec<Row> = measured.map(|(case, rounds)| row(*case, &rounds)).collect();
    let rates: Vec<_> = rows.iter().map(|row| row.number("append_mb_s")).collect();
    for (case, row) in cases.iter().zip(&mut rows) {
        // What one thread appends, of the same size and on a lane of the same kind.
        let cell = |of: &Case| (of.bytes, of.processes.is_some());
        let is_it = |one: &Case| one.writers == 1 && cell(one) == cell(case);
        let alone = cases.iter().position(is_it).and_then(|at| rates[at]);
        let of_one = row.number("append_mb_s").zip(alone);
        row.add(json!({"of_one_thread": of_one.map(|(all, one)| all / one)}));
    }
    Ok(rows)
}

/// What a round of a case gives.
struct Round {
    floor: Option<Slice>,
    append: Slice,
    latencies: Latencies,
}

/// The row of a case: times are per operation as its thread sees it, medians of the rounds.
fn row(case: Case, rounds: &[Round]) -> Row {
    let append_ns: Vec<f64> = rounds.iter().map(|round| round.append.ns()).collect();
    let floors = rounds.iter().filter_map(|round| round.floor.as_ref());
    let floor_ns: Vec<f64> = floors.map(Slice::ns).collect();
    let ratios = append_ns.iter().zip(&floor_ns);
    let ratios: Vec<f64> = ratios.map(|(append, floor)| append / floor).collect();
    let mut latencies = Latencies::default();
    for round in rounds {
        latencies.merge(&round.latencies);
    }
    let row = Row::of(json!({
        "who": case.who(),
        "bytes": case.bytes,
        "threads": case.threads(),
        "processes": case.processes,
        "ops": rounds.iter().map(|round| round.append.ops).sum::<u64>(),
        "append_mb_s": case.bytes as f64 * case.writers as f64 * 1e3 / median(&append_ns),
        "append_p999_us": latencies.percentiles().p999_us,
        "ratio": (!ratios.is_empty()).then(|| median(&ratios)),
    }));
    row.of_rounds("floor_ns", &floor_ns)
        .of_rounds("append_ns", &append_ns)
}

/// The report for people.
#[must_use]
pub fn table(report: &Report) -> String {
    let about = |name| report.about.shown(name);
    let segment_bytes = report.about.number("segment_bytes").unwrap_or(0.0);
    format!(
        "{}: {}\ncopies by {}, other lines by {}; segments of {} MiB; medians of {} rounds\n\n{}{}",
        about("medium"),
        about("survives"),
        about("instructions.0"),
        about("instructions.1"),
        segment_bytes / f64::from(1 << 20),
        about("rounds"),
        report::table("pool", &report.rows).render(),
        notes(&report.notes)
    )
}
