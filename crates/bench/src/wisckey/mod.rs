//! `forebay bench wisckey`: P1's workload, and what else a store is asked for, in every variant and beside the peers.
//!
//! [`Config`] says what to run; [`run`] runs it and returns a [`Report`]. The workloads stand in modules of
//! their own: `puts` (P1), `overwrite` (garbage collection at work), `reads`, `reopen`.
//!
//! A row of a write workload counts its drain: the clock starts with the first operation and
//! stops when [`Store::flush`](forebay_store::Store::flush) has returned.

mod config;
mod contest;
mod meter;
mod overwrite;
mod puts;
mod reads;
mod reopen;
mod rows;

pub use config::{Config, Limit, Watch, WatchNothing};
pub(crate) use reads::Read;
pub use reopen::fill_until_killed;
pub use rows::{Figures, Peer, PeerOutcome, Report, Reopening, Row, Space};

use crate::{BenchError, device, peers::rocksdb, scratch::ScratchDir};

/// Runs what `config` says.
///
/// # Errors
/// The first thing that goes wrong; a peer that is not installed is reported as a row, and is no error.
pub fn run(config: &Config, watch: &dyn Watch) -> Result<Report, BenchError> {
    config.check()?;
    let scratch = ScratchDir::new_in(&config.dir)?;
    watch.note("measuring the device");
    let speed = device::measure(scratch.path(), config.effort)?;
    let mut report = Report::new(config, speed);
    if config.peers
        && let Err(missing) = rocksdb::find()
    {
        report.peers.push(Peer::missing(rocksdb::NAME, missing));
    }
    let contestants = contest::contestants(config);
    if config.puts {
        puts::run(config, scratch.path(), &contestants, watch, &mut report)?;
    }
    if config.overwrite {
        overwrite::run(config, scratch.path(), &contestants, watch, &mut report)?;
    }
    if config.reads {
        reads::run(config, scratch.path(), &contestants, watch, &mut report)?;
    }
    if config.reopen {
        reopen::run(config, scratch.path(), watch, &mut report)?;
    }
    report.finish();
    Ok(report)
}
