//! Uniform overwriting of a loaded data set, with garbage collection on: throughput and space.

use super::{
    config::{Config, Limit},
    contest::{Contestant, Run, finalists},
    meter::{Subject, metered, remove_dir},
    peer,
    rows::{Figures, Report},
    writing::{Keys, write},
};
use crate::{BenchError, data, scratch::disk_bytes, threads::beside};
use forebay_store::Variant;
use serde_json::json;
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// Runs it in our main variant and on the peer.
pub(super) fn run(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    let (config, scratch) = (run.config, run.scratch);
    let limit = Limit::of_ops((config.data_keys() as f64 * config.overwrite_times) as u64);
    let turn = |contestant| match contestant {
        Contestant::Ours(variant) => ours(config, scratch, variant, limit),
        Contestant::Peer(peer, _) => {
            let dir = scratch.join(peer.name());
            let database = peer::Database { config, dir: &dir };
            database.load()?;
            let (max, figures) = watched(&dir, || database.overwrite(limit));
            let figures = with_space(config, max, disk_bytes(&dir), figures?);
            remove_dir(&dir)?;
            Ok(figures)
        }
    };
    run.take_turns(report, &finalists(config), "overwrite", turn)
}

fn ours(
    config: &Config,
    scratch: &Path,
    variant: Variant,
    limit: Limit,
) -> Result<Figures, BenchError> {
    let seed = data::fresh_seed();
    let subject = Subject::preloaded(config, scratch, variant, seed)?;
    let dir = subject.dir().to_owned();
    let keys = Keys::Among(config.data_keys());
    let puts = |store: &_, _: &mut _| write(config, store, seed, keys, limit);
    let mut left = 0;
    let (max, figures) = watched(&dir, || {
        metered(config, subject, "overwrite", puts, |dir| {
            left = disk_bytes(dir)
        })
    });
    let figures = Figures {
        data_bytes: Some(config.data_keys() * config.pair_bytes()),
        ..figures?
    };
    Ok(with_space(config, max, left, figures))
}

/// The largest size of a directory while something runs, and what that gives.
fn watched<T>(dir: &Path, work: impl FnOnce() -> T) -> (u64, T) {
    let watch = |done: &AtomicBool| {
        let mut max = 0;
        while !done.load(Relaxed) {
            max = max.max(disk_bytes(dir));
            thread::sleep(Duration::from_millis(50));
        }
        max
    };
    beside(watch, work)
}

/// Bytes on the disk over live bytes: the most while overwriting, and what was left in the end.
fn with_space(config: &Config, max: u64, left: u64, mut figures: Figures) -> Figures {
    let live = (config.data_keys() * config.pair_bytes()) as f64;
    figures.add(json!({
        "space_amplification_max": max.max(left) as f64 / live,
        "space_amplification_final": left as f64 / live,
    }));
    figures
}
