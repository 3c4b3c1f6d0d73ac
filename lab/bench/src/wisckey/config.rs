//! A run's settings: its store and peers, its pool, and its limits.

use crate::{device::Effort, peers::Peer, scratch::PoolSource};
use forebay_device::memory::Profile;
use forebay_store::{Durability, StoreOptions};
use std::path::PathBuf;

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
    pub const PAPER: Self = Self::of_ops(262_144);

    /// So many operations.
    #[must_use]
    pub const fn of_ops(ops: u64) -> Self {
        Self {
            ops: Some(ops),
            seconds: None,
        }
    }
}

/// What is done with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Puts of new keys in random order (P1).
    Puts,
    /// Overwriting a loaded data set with garbage collection on.
    Overwrite,
    /// Random gets and range scans.
    Reads,
    /// Reopening a store whose process was killed.
    Reopen,
    /// New keys beside busy processors, for the longest put. The limit says how many.
    Stalls,
    /// A queue, and a store of which every key is deleted. The limit says how many.
    Queue,
    /// New keys, alone and beside short scans. The limit says how many.
    Scans,
}

/// Bytes of a value of the workloads that are not about values.
pub(super) const SMALL_VALUE_BYTES: usize = 100;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is done.
    pub workload: Workload,
    /// Name of the run, to tell rows of different lengths apart. May be empty.
    pub run: String,
    /// Where the stores are made, in a scratch directory that is removed again.
    pub dir: PathBuf,
    /// Where the pools come from.
    pub pool: PoolSource,
    /// Slow the pool down to this device.
    pub profile: Option<Profile>,
    /// Variants of the store, in the order of the rows.
    pub variants: Vec<Durability>,
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
    /// Have our rows of writes sampled by perf ([`crate::perf`]), which slows them.
    pub is_sampled: bool,
    /// Peers: RocksDB in all workloads that have one, with its values apart in reads, the others in
    /// the Puts.
    pub peers: Vec<Peer>,
    /// How thoroughly the device is measured.
    pub effort: Effort,
    /// Operations of a read row.
    pub read_ops: u64,
    /// Have each store loaded, read and removed before the next one is loaded: there is room for
    /// one.
    pub is_one_by_one: bool,
    /// `forebay-lab`, as which the process is started that the reopen workload kills.
    pub program: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workload: Workload::Puts,
            run: String::new(),
            dir: PathBuf::from("."),
            pool: PoolSource::Emulated,
            profile: None,
            variants: vec![
                Durability::Fsync,
                Durability::NoSync,
                Durability::SINGLE,
                Durability::DOUBLE,
            ],
            value_bytes: 4096,
            threads: 1,
            limit: Limit::PAPER,
            buffer_bytes: 8 << 20,
            preload_bytes: 0,
            cache_bytes: 128 << 20,
            rounds: 3,
            latencies: true,
            is_sampled: false,
            peers: Vec::new(),
            effort: Effort::FULL,
            read_ops: 100_000,
            is_one_by_one: false,
            program: PathBuf::new(),
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
    pub fn options(&self, variant: Durability) -> StoreOptions {
        StoreOptions::new()
            .durability(variant)
            .segment_size(self.buffer_bytes)
            .cache_size(self.cache_bytes)
    }

    /// The variant that workloads run in which do not compare variants: the last that has a
    /// pool, as in "double".
    #[must_use]
    pub fn main_variant(&self) -> Durability {
        self.variants
            .iter()
            .copied()
            .rfind(|v| matches!(v, Durability::Buffered(_)))
            .unwrap_or(Durability::DOUBLE)
    }
}
