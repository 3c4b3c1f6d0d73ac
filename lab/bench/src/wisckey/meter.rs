//! One round of a row on our store: opening it, and measuring around the operations.

use super::{turns::Run, writing::load};
use crate::{
    BenchError,
    clock::{ClockId, cpu_seconds},
    device::{Written, device_of},
    histogram::Latencies,
    perf::Sampler,
    processes::status_bytes,
    report::Row,
    scratch::{self, ScratchPool, sync_file_system},
};
use forebay_store::{Durability, Store};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// An open store in a directory (and pool) of its own.
pub(super) struct Subject<'a> {
    run: Run<'a>,
    variant: Durability,
    pub store: Store,
    dir: PathBuf,
    pool: Option<ScratchPool>,
}

impl<'a> Subject<'a> {
    /// Makes a store in `variant`.
    pub fn new(run: Run<'a>, variant: Durability) -> Result<Self, BenchError> {
        let (config, dir) = (run.config, run.scratch.join("store"));
        let pool = match variant {
            Durability::Buffered(n) => Some(scratch::pool(
                &config.pool,
                u64::from(n),
                config.buffer_bytes,
                config.profile,
            )?),
            _ => None,
        };
        let options = config.options(variant);
        let store = options.open(&dir, pool.as_ref().map(ScratchPool::pool))?;
        Ok(Self {
            run,
            variant,
            store,
            dir,
            pool,
        })
    }

    /// The same with `preload_bytes` of data in it, which were written without syncing each.
    pub fn preloaded(run: Run<'a>, variant: Durability, seed: u64) -> Result<Self, BenchError> {
        let megabytes = run.config.preload_bytes / 1_000_000;
        (run.note)(&format!("loading {megabytes} MB, {variant}"));
        let loader = Self::new(run, Durability::NoSync)?;
        load(run.config, &loader.store, seed)?;
        loader.store.flush()?;
        loader.store.close()?;
        Self::new(run, variant)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Closes the store and opens it again, as a restarted application would.
    pub fn reopened(self) -> Result<Self, BenchError> {
        self.store.close()?;
        let pool = self.pool.as_ref().map(ScratchPool::pool);
        let options = self.run.config.options(self.variant);
        let store = options.open(&self.dir, pool)?;
        Ok(Self { store, ..self })
    }

    /// Closes the store and removes its files.
    pub fn remove(self) -> Result<(), BenchError> {
        self.store.close()?;
        remove_dir(&self.dir)
    }

    /// The row of a round of `work`, from the first of its operations until the store is drained.
    /// `work` gives how many there were, and their latencies; what else it has to say goes into the
    /// row.
    pub fn metered(
        self,
        workload: &str,
        work: impl FnOnce(&Store, &mut Row) -> Result<(u64, Latencies), BenchError>,
    ) -> Result<Row, BenchError> {
        let (config, scratch, store) = (self.run.config, self.run.scratch, &self.store);
        let sampler = config
            .is_sampled
            .then(|| Sampler::start(std::process::id(), scratch));
        let device = OnDevice::since_now(scratch)?;
        let before = store.stats();
        let mut more = Row::default();
        let (cpu, start) = (cpu_seconds(ClockId::ProcessCPUTime), Instant::now());
        let (ops, latencies) = work(store, &mut more)?;
        store.flush()?;
        let seconds = start.elapsed().as_secs_f64();
        let cpu = cpu_seconds(ClockId::ProcessCPUTime) - cpu;
        let stats = store.stats();
        if let Some(sampler) = sampler {
            let share = sampler.and_then(Sampler::share);
            let share = share.map_or_else(|why| json!(why), |share| json!(share));
            more.add(json!({"fsync_sample_share": share}));
        }
        let bytes = ops * config.pair_bytes();
        let mut row = config.row(workload, (ops, seconds), latencies.percentiles(), bytes);
        row.add(json!({
            "fsync_cpu_share": (stats.sync_cpu_seconds - before.sync_cpu_seconds) / cpu,
            "fsync_wall_share": (stats.sync_seconds - before.sync_seconds) / seconds,
            "sync_calls": stats.sync_calls - before.sync_calls,
            "waits": stats.waits,
            "resident_bytes_max": status_bytes("self", "VmHWM"),
        }));
        row.add(more.into());
        self.store.close()?;
        row.add(device.written_for(bytes, scratch)?);
        remove_dir(&self.dir)?;
        Ok(row)
    }
}

pub(super) fn remove_dir(dir: &Path) -> Result<(), BenchError> {
    fs::remove_dir_all(dir).map_err(BenchError::io("removing", dir))
}

/// What the device writes from a moment on, if the directory is on one that counts.
pub(super) struct OnDevice(Option<(String, Written)>);

impl OnDevice {
    /// From now on, when nothing is left to be written of what was before.
    pub fn since_now(dir: &Path) -> Result<Self, BenchError> {
        sync_file_system(dir)?;
        let device = device_of(dir);
        Ok(Self(device.and_then(|d| Written::by(&d).map(|w| (d, w)))))
    }

    /// What the device wrote for so many bytes of keys and values, once all is written.
    pub fn written_for(self, bytes: u64, dir: &Path) -> Result<serde_json::Value, BenchError> {
        sync_file_system(dir)?;
        let since = |(device, before): (String, Written)| Some(Written::by(&device)? - before);
        Ok(match self.0.and_then(since) {
            Some(written) => json!({
                "write_amplification": written.bytes as f64 / bytes as f64,
                "device_write_us_per_kib": written.us_per_kib(),
            }),
            None => json!({}),
        })
    }
}
