//! What a run measures, and who is told about its progress.

use super::Figures;
use crate::{BenchError, device::Effort, live::Live, peers::other::Other, scratch::PoolSource};
use forebay_device::memory::Profile;
use forebay_store::{StoreOptions, Variant};
use std::{path::PathBuf, sync::Arc};

/// When a workload is done: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// After so many operations.
    pub ops: Option<u64>,
    /// After so many seconds (then comes the drain, which counts as well).
    pub seconds: Option<f64>,
}

impl Limit {
    /// P1's number of Puts.
    pub const PAPER: Self = Self {
        ops: Some(262_144),
        seconds: None,
    };
}

/// What a run measures.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the run, to tell rows of different lengths apart. May be empty.
    pub run: String,
    /// Where the stores are made, in a scratch directory that is removed again.
    pub dir: PathBuf,
    /// Where the pools come from.
    pub pool: PoolSource,
    /// Slow the pool down to this device.
    pub profile: Option<Profile>,
    /// Variants of the store, in the order of the rows.
    pub variants: Vec<Variant>,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Writing (and reading) threads.
    pub threads: usize,
    /// How much to write.
    pub limit: Limit,
    /// Bytes of one buffer of an emulated pool, and of a segment where there is no pool.
    pub buffer_bytes: u64,
    /// Bytes of keys and values in the store before the clock starts (P1: 8 GB). For `reads`,
    /// `overwrite` and `reopen`: the size of the data set.
    pub preload_bytes: u64,
    /// Memory of the index's block cache, ours and the peers'.
    pub cache_bytes: u64,
    /// How often each row is measured.
    pub rounds: usize,
    /// Record the latency of each operation (one reading of the clock).
    pub latencies: bool,
    /// Run RocksDB too.
    pub peers: bool,
    /// Other peers in the Puts.
    pub others: Vec<Other>,
    /// How thoroughly the device is measured.
    pub effort: Effort,
    /// Workload: Puts of new keys in random order (P1).
    pub puts: bool,
    /// Workload: overwriting a loaded data set with garbage collection on.
    pub overwrite: bool,
    /// How often `overwrite` writes the data set again.
    pub overwrite_times: f64,
    /// Workload: random gets and range scans.
    pub reads: bool,
    /// Operations of a read row.
    pub read_ops: u64,
    /// Workload: reopening a store whose process was killed.
    pub reopen: bool,
    /// Workload: new keys beside busy processors, for the longest put. `limit` says how many.
    pub stalls: bool,
    /// Workload: a queue, and a store of which every key is deleted. `limit` says how many.
    pub queue: bool,
    /// Workload: new keys, alone and beside short scans. `limit` says how many.
    pub scans: bool,
    /// How to start the process that is killed: program and arguments, to which the reopen workload
    /// appends what [`fill_until_killed`](super::fill_until_killed) needs.
    pub child: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            run: String::new(),
            dir: PathBuf::from("."),
            pool: PoolSource::Emulated,
            profile: None,
            variants: vec![
                Variant::Fsync,
                Variant::NoSync,
                Variant::SINGLE,
                Variant::DOUBLE,
            ],
            value_bytes: 4096,
            threads: 1,
            limit: Limit::PAPER,
            buffer_bytes: 8 << 20,
            preload_bytes: 0,
            cache_bytes: 128 << 20,
            rounds: 3,
            latencies: true,
            peers: false,
            others: Vec::new(),
            effort: Effort::FULL,
            puts: true,
            overwrite: false,
            overwrite_times: 3.0,
            reads: false,
            read_ops: 100_000,
            reopen: false,
            stalls: false,
            queue: false,
            scans: false,
            child: Vec::new(),
        }
    }
}

impl Config {
    /// Bytes of a key, as in P1.
    pub const KEY_BYTES: usize = 8;

    /// Bytes of a pair.
    #[must_use]
    pub fn pair_bytes(&self) -> u64 {
        (Self::KEY_BYTES + self.value_bytes) as u64
    }

    /// Keys of a data set of [`preload_bytes`](Self::preload_bytes); at least one.
    #[must_use]
    pub fn data_keys(&self) -> u64 {
        (self.preload_bytes / self.pair_bytes()).max(1)
    }

    /// Options of a store in `variant`.
    #[must_use]
    pub fn options(&self, variant: Variant) -> StoreOptions {
        StoreOptions::new()
            .variant(variant)
            .segment_size(self.buffer_bytes)
            .cache_size(self.cache_bytes)
    }

    /// The variant that workloads run in which do not compare variants: the last that has a
    /// pool, as in "double".
    #[must_use]
    pub fn main_variant(&self) -> Variant {
        self.variants
            .iter()
            .copied()
            .rfind(|v| matches!(v, Variant::Buffered(_)))
            .unwrap_or(Variant::DOUBLE)
    }

    pub(super) fn check(&self) -> Result<(), BenchError> {
        let bad = |what: &str| Err(BenchError::Config(what.to_owned()));
        if self.threads == 0 || self.rounds == 0 {
            return bad("at least one thread and one round are needed");
        }
        if self.limit.ops.is_none() && self.limit.seconds.is_none() {
            return bad("a number of operations or seconds is needed");
        }
        if self.limit.ops == Some(0) || self.limit.seconds.is_some_and(|s| s <= 0.0) {
            return bad("no operation fits into zero operations or seconds");
        }
        if self.puts && self.variants.is_empty() && !self.peers {
            return bad("no variant to measure");
        }
        Ok(())
    }
}

/// Who is told about a run's progress.
pub trait Watch: Sync {
    /// Something that is not a row is being done.
    fn note(&self, what: &str);
    /// A round of a row begins. `live` counts its operations.
    fn begin(&self, what: &str, limit: Limit, live: &Arc<Live>);
    /// A round of a row is over.
    fn end(&self, figures: &Figures);
}

/// Nobody.
pub struct WatchNothing;

impl Watch for WatchNothing {
    fn note(&self, _: &str) {}
    fn begin(&self, _: &str, _: Limit, _: &Arc<Live>) {}
    fn end(&self, _: &Figures) {}
}
