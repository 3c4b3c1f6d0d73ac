//! `forebay-lab wisckey`: P1's workload, and what else a store is asked for, in every variant and beside the peers.
//!
//! [`Config`] says what to run; [`run`] runs it and returns a [`Report`]. The workloads stand in modules of
//! their own: `puts` (P1), `overwrite` (garbage collection at work), `reads`, `reopen`, `stalls` (the longest put), `queue` (deletes),
//! `scans` (short scans beside puts); `peer` does them on the peers.
//!
//! A row of a write workload counts its drain: the clock starts with the first operation and
//! stops when [`Store::flush`](forebay_store::Store::flush) has returned.

mod config;
mod contest;
mod meter;
mod overwrite;
mod peer;
mod puts;
mod queue;
mod reads;
mod reopen;
mod rows;
mod scans;
mod stalls;
mod table;
mod writing;

pub use config::{Config, Limit, Workload};
pub use reopen::fill_until_killed;
pub use rows::{Figures, PeerRow, Report, Row};
pub use table::table;

use crate::{BenchError, device, scratch::ScratchDir};
use contest::Run;

/// Runs what each of `configs` says, and reports it all together. Device, settings and notes are the first one's.
///
/// # Errors
/// The first thing that goes wrong; a peer that is not installed is reported as a row, and is no error.
pub fn run(configs: &[Config], note: &dyn Fn(&str)) -> Result<Report, BenchError> {
    let Some(first) = configs.first() else {
        return Err(BenchError::Config("nothing to measure".to_owned()));
    };
    for config in configs {
        config.check()?;
    }
    let mut report = {
        note("measuring the device");
        let scratch = ScratchDir::new_in(&first.dir)?;
        Report::new(first, device::measure(scratch.path(), first.effort)?)
    };
    for peer in &first.peers {
        if let Err(missing) = peer::check(*peer, first) {
            report.peers.push(PeerRow {
                name: peer.name(),
                mode: None,
                figures: None,
                error: Some(missing),
            });
        }
    }
    for config in configs {
        let scratch = ScratchDir::new_in(&config.dir)?;
        let run = Run {
            config,
            scratch: scratch.path(),
            note,
        };
        run_one(run, &mut report)?;
    }
    report.finish();
    Ok(report)
}

/// Bytes of a value of the workloads that are not about values.
const SMALL_VALUE_BYTES: usize = 100;

fn run_one(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
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
        Workload::Puts => puts::run(run, report),
        Workload::Overwrite => overwrite::run(run, report),
        Workload::Reads => reads::run(run, report),
        Workload::Reopen => reopen::run(run, report),
        Workload::Stalls => stalls::run(small, report),
        Workload::Queue => queue::run(small, report),
        Workload::Scans => scans::run(small, report),
    }
}
