//! The one driver of all stores: loads the records, and runs the workloads on them (`operations`).
//! A process has one store; [`DriverOrder`] is what it is told, and each [`WorkloadOutcome`] a line
//! that it prints.

use super::{keys::Distribution, operations::WorkloadRun, workload::CoreWorkload};
use crate::{
    BenchError,
    data::{self, Values},
    histogram::Percentiles,
    wisckey::Limit,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    error::Error,
    io::Write,
    path::{Path, PathBuf},
};

/// What a store fails with.
pub type StoreFailure = Box<dyn Error + Send + Sync>;

/// Bytes of a key: `user` and twenty digits.
pub const KEY_BYTES: usize = 24;

/// A scan reads so many records at most, as in YCSB.
pub const SCAN_RECORDS_MAX: u64 = 100;

/// Bytes of the records that are loaded by one call.
const LOADED_AT_ONCE_BYTES: u64 = 1 << 20;

/// Whether each write is durable when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncMode {
    /// It is.
    Synced,
    /// Only what was synced is.
    Unsynced,
}

impl SyncMode {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Unsynced => "unsynced",
        }
    }
}

/// What the process of a store is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DriverOrder {
    /// The store's name: a peer's, or a variant of ours.
    pub store: String,
    /// An empty directory for it.
    pub dir: PathBuf,
    /// The pool of ours, in a variant that has one.
    pub pool: Option<PathBuf>,
    /// What the peers in C are driven by ([`Peer::driver`](crate::peers::Peer)).
    pub library: Option<PathBuf>,
    /// What a write promises.
    pub mode: SyncMode,
    /// In this order.
    pub workloads: Vec<CoreWorkload>,
    /// How records are chosen, if not as the workload does.
    pub distribution: Option<Distribution>,
    /// Records that are loaded.
    pub records: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations of a workload at most.
    pub ops_max: Option<u64>,
    /// Seconds of a workload at most.
    pub seconds_max: Option<f64>,
    /// Threads.
    pub threads: usize,
    /// Memory of the store's own cache.
    pub cache_bytes: u64,
    /// Bytes of a segment of ours.
    pub buffer_bytes: u64,
    /// Gives keys, values, and what is chosen: the same to all stores of a run.
    pub seed: u64,
}

impl DriverOrder {
    /// In the child: reads it from the process's argument, and has the process end with its parent.
    ///
    /// # Errors
    /// [`BenchError::Child`] if it is none; I/O errors.
    pub fn received(text: &str) -> Result<Self, BenchError> {
        let failed = BenchError::io("tying to its parent", Path::new("the child process"));
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| failed(e.into()))?;
        serde_json::from_str(text).map_err(|e| BenchError::Child(format!("got a bad order: {e}")))
    }

    /// Bytes of a record.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        (KEY_BYTES + self.value_bytes) as u64
    }

    /// When a workload is done.
    #[must_use]
    pub const fn limit(&self) -> Limit {
        Limit {
            ops: self.ops_max,
            seconds: self.seconds_max,
        }
    }
}

/// What one kind of operations took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct KindOutcome {
    /// How many.
    pub ops: u64,
    /// Of the operation alone.
    #[serde(flatten)]
    pub latency: Percentiles,
}

/// What a workload gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkloadOutcome {
    /// Which.
    pub workload: CoreWorkload,
    /// Operations.
    pub ops: u64,
    /// Until all that was written is durable.
    pub seconds: f64,
    /// Records in the store.
    pub records: u64,
    /// Bytes that the store's directory occupies, and its pool.
    pub occupied_bytes: u64,
    /// By the name of the kind.
    pub kinds: BTreeMap<String, KindOutcome>,
}

/// What a scan found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanCount {
    /// Records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl ScanCount {
    /// One more record, whose value goes to `buffer`, as to an application.
    pub fn add(&mut self, key: &[u8], value: &[u8], buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(value);
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
    }
}

/// A store under test.
pub trait DrivenStore: Sync {
    /// Puts all of these, which need not be durable before [`sync`](Self::sync).
    ///
    /// # Errors
    /// The store's.
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), StoreFailure>;

    /// Puts a pair, durable as the store was opened for.
    ///
    /// # Errors
    /// The store's.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreFailure>;

    /// The value of a key, which was copied to `buffer`.
    ///
    /// # Errors
    /// The store's.
    fn get<'b>(
        &self,
        key: &[u8],
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<&'b [u8]>, StoreFailure>;

    /// Reads so many records in the order of their keys, from this one on, and copies each value to
    /// `buffer`.
    ///
    /// # Errors
    /// The store's.
    fn scan(
        &self,
        from: &[u8],
        records: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<ScanCount, StoreFailure>;

    /// Makes all durable that was put.
    ///
    /// # Errors
    /// The store's.
    fn sync(&self) -> Result<(), StoreFailure>;
}

pub(super) fn failed(error: StoreFailure) -> BenchError {
    BenchError::Child(format!("failed: {error}"))
}

/// The key of a record.
pub(super) fn key(seed: u64, record: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"user00000000000000000000";
    let mut number = u64::from_be_bytes(data::key(seed, record));
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}

/// Loads `store`, runs all workloads on it, and prints each one's [`WorkloadOutcome`].
///
/// # Errors
/// The store's; [`BenchError::Wrong`] if a record is not there, or has what was not written to it.
pub fn drive(store: &dyn DrivenStore, order: &DriverOrder) -> Result<(), BenchError> {
    let values = Values::new(order.value_bytes);
    load(store, order, &values)?;
    let mut records = order.records;
    for &workload in &order.workloads {
        let run = WorkloadRun::new((store, order), workload, &values, records);
        let outcome = run.measure()?;
        records = outcome.records;
        let line = serde_json::to_string(&outcome);
        let line = line.map_err(|e| BenchError::Child(format!("cannot report: {e}")))?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").map_err(BenchError::io("reporting to", Path::new("the parent")))?;
    }
    Ok(())
}

/// Puts all records, each once, in the random order of their keys.
fn load(store: &dyn DrivenStore, order: &DriverOrder, values: &Values) -> Result<(), BenchError> {
    let at_once = (LOADED_AT_ONCE_BYTES / order.record_bytes()).max(1);
    let mut from = 0;
    while from < order.records {
        let to = order.records.min(from + at_once);
        let pair = |record| {
            let mut value = Vec::new();
            stamp(&mut value, values, record, 0);
            (key(order.seed, record).to_vec(), value)
        };
        let pairs: Vec<_> = (from..to).map(pair).collect();
        store.load(&pairs).map_err(failed)?;
        from = to;
    }
    store.sync().map_err(failed)
}

/// A value, which begins with its record's number.
pub(super) fn stamp(value: &mut Vec<u8>, values: &Values, record: u64, version: u64) {
    value.clear();
    value.extend_from_slice(values.value(record.wrapping_add(version)));
    let stamp = record.to_le_bytes();
    let bytes = value.len().min(stamp.len());
    value[..bytes].copy_from_slice(&stamp[..bytes]);
}
