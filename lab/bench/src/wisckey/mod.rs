//! `forebay-lab wisckey`: P1's workload, and what else a store is asked for, in every variant and beside the peers.
//!
//! [`Config`] says what to run; [`run`] runs it and returns a [`Report`]. The workloads stand in modules of
//! their own: `puts` (P1), `overwrite` (garbage collection at work), `reads`, `reopen`, `stalls` (the longest put), `queue` (deletes),
//! `scans` (short scans beside puts).
//!
//! A row of a write workload counts its drain: the clock starts with the first operation and
//! stops when [`Store::flush`](forebay_store::Store::flush) has returned.

mod config;
mod contest;
mod meter;
mod overwrite;
mod puts;
mod queue;
mod reads;
mod reopen;
mod rows;
mod scans;
mod stalls;

pub use config::{Config, Limit, Watch, WatchNothing};
pub use queue::Deleted;
pub(crate) use reads::Read;
pub use reopen::fill_until_killed;
pub use rows::{Figures, Peer, PeerOutcome, Reopening, Report, Row, Space};
pub use scans::Scanned;
pub use stalls::Step;

use crate::{BenchError, device, peers::rocksdb, scratch::ScratchDir};

/// Runs what each of `configs` says, and reports it all together. Device, settings and notes are the first one's.
///
/// # Errors
/// The first thing that goes wrong; a peer that is not installed is reported as a row, and is no error.
pub fn run(configs: &[Config], watch: &dyn Watch) -> Result<Report, BenchError> {
    let Some(first) = configs.first() else {
        return Err(BenchError::Config("nothing to measure".to_owned()));
    };
    for config in configs {
        config.check()?;
    }
    let mut report = {
        watch.note("measuring the device");
        let scratch = ScratchDir::new_in(&first.dir)?;
        Report::new(first, device::measure(scratch.path(), first.effort)?)
    };
    if first.peers
        && let Err(missing) = rocksdb::find()
    {
        report.peers.push(Peer::missing(rocksdb::NAME, missing));
    }
    for other in &first.others {
        if let Err(missing) = other.check(first) {
            report.peers.push(Peer::missing(other.name(), missing));
        }
    }
    for config in configs {
        run_one(config, watch, &mut report)?;
    }
    report.finish();
    Ok(report)
}

fn run_one(config: &Config, watch: &dyn Watch, report: &mut Report) -> Result<(), BenchError> {
    let scratch = ScratchDir::new_in(&config.dir)?;
    let contestants = contest::contestants(config);
    if config.puts {
        puts::run(config, scratch.path(), &contestants, watch, report)?;
    }
    if config.overwrite {
        overwrite::run(config, scratch.path(), &contestants, watch, report)?;
    }
    if config.reads {
        reads::run(config, scratch.path(), &contestants, watch, report)?;
    }
    if config.reopen {
        reopen::run(config, scratch.path(), watch, report)?;
    }
    if config.stalls {
        stalls::run(config, scratch.path(), watch, report)?;
    }
    if config.queue {
        queue::run(config, scratch.path(), watch, report)?;
    }
    if config.scans {
        scans::run(config, scratch.path(), watch, report)?;
    }
    Ok(())
}
