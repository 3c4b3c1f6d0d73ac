//! One round of a row on our store: opening it, and measuring around the operations.

use super::{config::Config, rows::Figures, writing::load};
use crate::{
    BenchError, clock,
    device::{BlockDevice, Written},
    histogram::Latencies,
    perf::Sampler,
    processes::status_bytes,
    scratch::{self, ScratchPool, sync_file_system},
};
use forebay_store::{Store, Variant};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// An open store in a directory (and pool) of its own.
pub(super) struct Subject {
    pub store: Store,
    dir: PathBuf,
    pool: Option<ScratchPool>,
}

impl Subject {
    /// Makes a store in `variant` under `parent`.
    pub fn new(config: &Config, parent: &Path, variant: Variant) -> Result<Self, BenchError> {
        let dir = parent.join("store");
        let pool = match variant {
            Variant::Buffered(n) => Some(scratch::pool(
                &config.pool,
                u64::from(n),
                config.buffer_bytes,
                config.profile,
            )?),
            _ => None,
        };
        let store = config
            .options(variant)
            .open(&dir, pool.as_ref().map(ScratchPool::pool))?;
        Ok(Self { store, dir, pool })
    }

    /// The same with `preload_bytes` of data in it, which were written without syncing each.
    pub fn preloaded(
        config: &Config,
        scratch: &Path,
        variant: Variant,
        seed: u64,
    ) -> Result<Self, BenchError> {
        let loader = Self::new(config, scratch, Variant::NoSync)?;
        load(config, &loader.store, seed)?;
        loader.store.flush()?;
        loader.store.close()?;
        Self::new(config, scratch, variant)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Closes the store and opens it again, as a restarted application would.
    pub fn reopened(self, config: &Config, variant: Variant) -> Result<Self, BenchError> {
        self.store.close()?;
        let pool = self.pool.as_ref().map(ScratchPool::pool);
        let store = config.options(variant).open(&self.dir, pool)?;
        Ok(Self { store, ..self })
    }

    /// Closes the store and removes its files.
    pub fn remove(self) -> Result<(), BenchError> {
        self.store.close()?;
        remove_dir(&self.dir)
    }
}

pub(super) fn remove_dir(dir: &Path) -> Result<(), BenchError> {
    fs::remove_dir_all(dir).map_err(BenchError::io("removing", dir))
}

/// What the device writes from a moment on, if the directory is on one that counts.
pub(super) struct OnDevice(Option<(BlockDevice, Written)>);

impl OnDevice {
    /// From now on, when nothing is left to be written of what was before.
    pub fn since_now(dir: &Path) -> Result<Self, BenchError> {
        sync_file_system(dir)?;
        let device = BlockDevice::holding(dir);
        Ok(Self(device.and_then(|d| d.written().map(|w| (d, w)))))
    }

    /// The figures of so many Puts with their rates, and with what the device wrote for them once all is written.
    pub fn added_to(
        self,
        figures: Figures,
        dir: &Path,
        config: &Config,
    ) -> Result<Figures, BenchError> {
        sync_file_system(dir)?;
        let bytes = figures.ops * config.pair_bytes();
        let mut figures = figures.rates(bytes);
        if let Some((device, before)) = self.0
            && let Some(now) = device.written()
        {
            let written = now - before;
            figures.write_amplification = Some(written.bytes as f64 / bytes as f64);
            if let Some(us) = written.us_per_kib() {
                figures.add(json!({"device_write_us_per_kib": us}));
            }
        }
        Ok(figures)
    }
}

/// The figures of a round of `work`, from the first of its operations until the store is drained. `work` gives how many there were, and their
/// latencies; what else it has to say goes into the figures. `drained` is told of the directory before the store is closed.
pub(super) fn metered(
    config: &Config,
    subject: Subject,
    workload: &'static str,
    work: impl FnOnce(&Store, &mut Figures) -> Result<(u64, Latencies), BenchError>,
    drained: impl FnOnce(&Path),
) -> Result<Figures, BenchError> {
    let Subject { store, dir, .. } = &subject;
    let mut figures = Figures::default();
    let parent = dir.parent().unwrap_or(dir);
    let sampler = config
        .is_sampled
        .then(|| Sampler::start(std::process::id(), parent));
    let device = OnDevice::since_now(dir)?;
    let before = store.stats();
    let (cpu, start) = (clock::process_cpu_seconds(), Instant::now());
    let (ops, latencies) = work(store, &mut figures)?;
    store.flush()?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = clock::process_cpu_seconds() - cpu;
    let stats = store.stats();
    let sampled = sampler.map(|sampler| sampler.and_then(Sampler::share));
    drained(dir);
    figures.add(json!({
        "fsync_wall_share": (stats.sync_seconds - before.sync_seconds) / seconds,
        "sync_calls": stats.sync_calls - before.sync_calls,
    }));
    if let Some(bytes) = status_bytes("self", "VmHWM:") {
        figures.add(json!({"resident_bytes_max": bytes}));
    }
    let figures = Figures {
        workload,
        value_bytes: config.value_bytes,
        threads: config.threads,
        ops,
        seconds,
        latency: latencies.percentiles(),
        fsync_cpu_share: Some((stats.sync_cpu_seconds - before.sync_cpu_seconds) / cpu),
        fsync_sample_share: sampled,
        waits: Some(stats.waits),
        ..figures
    };
    let dir = subject.dir().to_owned();
    subject.store.close()?;
    let figures = device.added_to(figures, &dir, config)?;
    remove_dir(&dir)?;
    Ok(figures)
}
