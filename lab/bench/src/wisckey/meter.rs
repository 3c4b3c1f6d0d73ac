//! One round of a row on our store: opening it, and measuring around the operations.

use super::{Config, Figures};
use crate::{
    BenchError, clock,
    device::{BlockDevice, Written},
    histogram::Latencies,
    scratch::{ScratchPool, sync_file_system},
};
use forebay_store::{Stats, Store, Variant};
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
    /// Makes a store in `variant` under `scratch`.
    pub fn new(config: &Config, scratch: &Path, variant: Variant) -> Result<Self, BenchError> {
        let dir = scratch.join("store");
        let pool = match variant {
            Variant::Buffered(n) => Some(ScratchPool::new(
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
        super::puts::load(config, &loader.store, seed)?;
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

/// Counters at the start of a round.
pub(super) struct Meter {
    device: Option<(BlockDevice, Written)>,
    stats: Stats,
    cpu_seconds: f64,
    start: Instant,
}

/// A round that is over, except for what the device still writes.
pub(super) struct Metered {
    device: Option<(BlockDevice, Written)>,
    figures: Figures,
    bytes: u64,
}

impl Meter {
    /// Starts the clock.
    pub fn start(subject: &Subject) -> Result<Self, BenchError> {
        sync_file_system(subject.dir())?;
        let device = BlockDevice::holding(subject.dir());
        Ok(Self {
            device: device.and_then(|d| d.written().map(|w| (d, w))),
            stats: subject.store.stats(),
            cpu_seconds: clock::process_cpu_seconds(),
            start: Instant::now(),
        })
    }

    /// Drains the store and stops the clock.
    pub fn stop(
        self,
        config: &Config,
        workload: &'static str,
        store: &Store,
        ops: u64,
        latencies: &Latencies,
    ) -> Result<Metered, BenchError> {
        store.flush()?;
        let seconds = self.start.elapsed().as_secs_f64();
        let cpu = clock::process_cpu_seconds() - self.cpu_seconds;
        let stats = store.stats();
        let bytes = ops * config.pair_bytes();
        let figures = Figures {
            workload,
            value_bytes: config.value_bytes,
            threads: config.threads,
            ops,
            seconds,
            latency: latencies.percentiles(),
            fsync_cpu_share: Some((stats.sync_cpu_seconds - self.stats.sync_cpu_seconds) / cpu),
            fsync_wall_share: Some((stats.sync_seconds - self.stats.sync_seconds) / seconds),
            sync_calls: Some(stats.sync_calls - self.stats.sync_calls),
            resident_bytes_max: resident_bytes_max(),
            waits: Some(stats.waits),
            ..Figures::default()
        };
        Ok(Metered {
            device: self.device,
            figures: figures.rates(bytes),
            bytes,
        })
    }
}

impl Metered {
    /// Once the store is closed and everything it left to write is written: the device's figures.
    pub fn finish(self, dir: &Path) -> Result<Figures, BenchError> {
        sync_file_system(dir)?;
        let mut figures = self.figures;
        if let Some((device, before)) = self.device
            && let Some(now) = device.written()
        {
            let written = now - before;
            figures.write_amplification = Some(written.bytes as f64 / self.bytes as f64);
            figures.device_write_us_per_kib = written.us_per_kib();
        }
        Ok(figures)
    }
}

/// The largest resident set of this process so far.
fn resident_bytes_max() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
