//! `forebay-lab wisckey`: P1's workload, and what else a store is asked for, in every variant and
//! beside the peers.
//!
//! [`Config`] says what to run; [`run`] runs it and returns a [`Report`]. The workloads stand in
//! modules of their own: `puts` (P1), `overwrite` (garbage collection at work), `reads`, `reopen`,
//! `beside` (the longest put beside busy threads, and short scans beside puts), `queue` (deletes);
//! `peer` does them on the peers, and `turns` says who takes part.
//!
//! A row of a write workload counts its drain: the clock starts with the first operation and
//! stops when [`Store::flush`](forebay_store::Store::flush) has returned.

mod config;
mod interference;
mod meter;
mod overwrite;
mod peer;
mod puts;
mod queue;
mod reads;
mod reopen;
mod report;
mod turns;
mod writing;

pub use config::{Config, Limit, Workload};
pub use reopen::fill_until_killed;
pub use report::{measured, table, who};

use crate::{
    BenchError,
    device::{self, Speed},
    report::{Report, Row},
    scratch::ScratchDir,
};
use config::SMALL_VALUE_BYTES;
use serde_json::json;
use turns::Run;

/// Runs what each of `configs` says, and reports it all together. Device, settings and notes are
/// the first one's.
///
/// # Errors
/// The first thing that goes wrong; a peer that is not installed is reported as a row, and is no
/// error.
pub fn run(configs: &[Config], note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    let Some(first) = configs.first() else {
        return Err(BenchError::Config("nothing to measure".to_owned()));
    };
    note("measuring the device");
    let scratch = ScratchDir::new_in(&first.dir)?;
    let device = device::measure(scratch.path(), first.effort)?;
    let mut report = report::begin(first, &device)?;
    let missing = |peer| Some((peer, turns::check(peer, first).err()?));
    for (peer, why) in first.peers.iter().copied().filter_map(missing) {
        let row = Row::of(json!({"name": peer.name(), "error": why}));
        report.peers.push(row);
    }
    let mut device_rounds = Vec::new();
    for config in configs {
        let scratch = ScratchDir::new_in(&config.dir)?;
        let run = Run {
            config,
            scratch: scratch.path(),
            note,
        };
        device_rounds.extend(run_one(run, &mut report)?);
    }
    let device = device::of_rounds(&device_rounds).unwrap_or(device);
    report::finish(&mut report, &device);
    Ok(report)
}

/// Adds the rows of one configuration. Gives the device as often as it was measured beside them.
fn run_one(run: Run<'_>, report: &mut Report) -> Result<Vec<Speed>, BenchError> {
    let config = run.config;
    let small = Run {
        config: &Config {
            value_bytes: SMALL_VALUE_BYTES,
            threads: 1,
            latencies: true,
            ..config.clone()
        },
        ..run
    };
    match config.workload {
        Workload::Puts => return puts::run(run, report),
        Workload::Overwrite => overwrite::run(run, report),
        Workload::Reads => reads::run(run, report),
        Workload::Reopen => reopen::run(run, report),
        Workload::Stalls => interference::stalls(small, report),
        Workload::Queue => queue::run(small, report),
        Workload::Scans => interference::scans(small, report),
    }?;
    Ok(Vec::new())
}
