//! Uniform overwriting of a loaded data set, with garbage collection on: throughput and space.

use super::{
    Config, Figures, Limit, Report, Space, Watch,
    contest::{Contestant, finalists, take_turns},
    meter::{Meter, Subject, remove_dir},
    puts::{Keys, join, write},
};
use crate::{BenchError, data, live::Live, peers::rocksdb, scratch::disk_bytes};
use forebay_store::Variant;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// Runs it in our main variant and on the peer.
pub(super) fn run(
    config: &Config,
    scratch: &Path,
    contestants: &[Contestant],
    watch: &dyn Watch,
    report: &mut Report,
) -> Result<(), BenchError> {
    let finalists = finalists(config, contestants);
    let limit = Limit {
        ops: Some((config.data_keys() as f64 * config.overwrite_times) as u64),
        seconds: None,
    };
    take_turns(config, &finalists, report, |contestant, _| {
        let live = Arc::new(Live::default());
        watch.note(&format!("loading, {contestant}"));
        let figures = match contestant {
            Contestant::Ours(variant) => ours(config, scratch, variant, limit, watch, &live)?,
            Contestant::RocksDb(_) => {
                let dir = scratch.join("rocksdb");
                rocksdb::load(config, &dir)?;
                watch.begin(&format!("overwrite, {contestant}"), limit, &live);
                let watcher = SpaceWatch::default();
                let mut figures =
                    watcher.around(&dir, || rocksdb::overwrite(config, &dir, limit))?;
                figures.space = Some(watcher.space(config, &dir));
                remove_dir(&dir)?;
                figures
            }
            Contestant::Other(other, _) => {
                return Err(BenchError::Config(format!(
                    "{other} takes part in the Puts only"
                )));
            }
        };
        watch.end(&figures);
        Ok(figures)
    })
}

fn ours(
    config: &Config,
    scratch: &Path,
    variant: Variant,
    limit: Limit,
    watch: &dyn Watch,
    live: &Arc<Live>,
) -> Result<Figures, BenchError> {
    let seed = data::fresh_seed();
    let subject = Subject::preloaded(config, scratch, variant, seed)?;
    watch.begin(&format!("overwrite, {variant}"), limit, live);
    let watcher = SpaceWatch::default();
    let dir = subject.dir().to_owned();
    let metered = watcher.around(&dir, || {
        let meter = Meter::start(&subject)?;
        let keys = Keys::Among(config.data_keys());
        let (ops, latencies) = write(config, &subject.store, seed, keys, limit, live)?;
        meter.stop(config, "overwrite", &subject.store, ops, &latencies)
    })?;
    let space = watcher.space(config, &dir);
    subject.store.close()?;
    let mut figures = metered.finish(&dir)?;
    figures.data_bytes = Some(config.data_keys() * config.pair_bytes());
    figures.space = Some(space);
    remove_dir(&dir)?;
    Ok(figures)
}

/// Looks at a directory's size while something runs.
#[derive(Default)]
struct SpaceWatch {
    bytes_max: std::sync::atomic::AtomicU64,
}

impl SpaceWatch {
    fn around<T>(
        &self,
        dir: &Path,
        work: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                while !done.load(Relaxed) {
                    self.bytes_max.fetch_max(disk_bytes(dir), Relaxed);
                    thread::sleep(Duration::from_millis(50));
                }
            });
            let outcome = work();
            done.store(true, Relaxed);
            join(watcher);
            outcome
        })
    }

    fn space(&self, config: &Config, dir: &Path) -> Space {
        let live = (config.data_keys() * config.pair_bytes()) as f64;
        let bytes = disk_bytes(dir);
        Space {
            space_amplification_max: self.bytes_max.load(Relaxed).max(bytes) as f64 / live,
            space_amplification_final: bytes as f64 / live,
        }
    }
}
