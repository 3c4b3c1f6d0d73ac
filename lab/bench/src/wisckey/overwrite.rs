//! Uniform overwriting of a loaded data set, with garbage collection on: throughput and space.

use super::{
    config::{Config, Limit},
    meter::{Subject, remove_dir},
    peer,
    turns::{Contestant, Run, finalists},
    writing::{Keys, write},
};
use crate::{
    BenchError, data,
    report::{Report, Row},
    scratch::disk_bytes,
    threads::beside,
};
use forebay_store::{Durability, Store};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// How often the data set is written again.
const TIMES: u64 = 3;
/// Time between two looks at the space that is occupied.
const EVERY: Duration = Duration::from_millis(50);

/// Runs it in our main variant and on the peer.
pub(super) fn run(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    let limit = Limit::of_ops(run.config.data_keys() * TIMES);
    run.take_turns(
        report,
        &finalists(run.config),
        "overwrite",
        |contestant| match contestant {
            Contestant::Ours(variant) => ours(run, variant, limit),
            Contestant::Peer(peer, _) => {
                let database = peer::Database::of(run, peer);
                database.load()?;
                let work = || database.overwrite(limit);
                let (row, space) = watched(run.config, &database.dir, work)?;
                remove_dir(&database.dir)?;
                Ok(row.with(space))
            }
        },
    )
}

fn ours(run: Run<'_>, variant: Durability, limit: Limit) -> Result<Row, BenchError> {
    let (config, seed) = (run.config, data::fresh_seed());
    let subject = Subject::preloaded(run, variant, seed)?;
    let dir = subject.dir().to_owned();
    subject.metered("overwrite", |store: &Store, row: &mut Row| {
        let keys = Keys::Among(config.data_keys());
        let (done, space) = watched(config, &dir, || {
            let done = write(config, store, seed, keys, limit)?;
            store.flush()?;
            Ok(done)
        })?;
        row.add(space);
        Ok(done)
    })
}

/// What `work` gives, with the size of the data set, and how many bytes on the disk there were for
/// each live one: the most while it ran, and what was left in the end.
fn watched<T>(
    config: &Config,
    dir: &Path,
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<(T, Value), BenchError> {
    let watch = |done: &AtomicBool| {
        let mut max = 0;
        while !done.load(Relaxed) {
            max = max.max(disk_bytes(dir));
            thread::sleep(EVERY);
        }
        max
    };
    let (max, done) = beside(watch, work);
    let (left, live) = (disk_bytes(dir), config.data_keys() * config.pair_bytes());
    let space = json!({
        "data_bytes": live,
        "space_amplification_max": max.max(left) as f64 / live as f64,
        "space_amplification_final": left as f64 / live as f64,
    });
    Ok((done?, space))
}
