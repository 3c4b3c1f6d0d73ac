//! A workload on one store, by several threads: chooses each operation and its record, does it, and
//! times it.

use super::{
    driver::{
        DrivenStore, DriverOrder, KindOutcome, SCAN_RECORDS_MAX, WorkloadOutcome, failed, key,
        stamp,
    },
    keys::{InsertedRecords, RecordChooser},
    workload::{CoreWorkload, OperationKind},
};
use crate::{
    BenchError,
    data::{Random, Values},
    histogram::Latencies,
    scratch::disk_bytes,
    threads::in_threads,
};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

/// Records that there may be when `workload` is done: twice the inserts that are to be expected, as
/// in YCSB.
fn expected_records(order: &DriverOrder, workload: CoreWorkload, records: u64) -> u64 {
    let inserts = order.ops_max.unwrap_or(order.records) * workload.inserts() * 2 / 100;
    records + inserts
}

/// Bytes that a file or a directory occupies; none of a device.
fn occupied(path: &Path) -> u64 {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => disk_bytes(path),
        Ok(meta) if meta.is_file() => meta.blocks() * 512,
        _ => 0,
    }
}

/// A workload that is being run.
pub(super) struct WorkloadRun<'a> {
    store: &'a dyn DrivenStore,
    order: &'a DriverOrder,
    workload: CoreWorkload,
    values: &'a Values,
    inserted: InsertedRecords,
    expected: u64,
}

/// Latencies of each kind, in the order of [`OperationKind::ALL`].
type KindLatencies = [Option<Latencies>; OperationKind::ALL.len()];

impl<'a> WorkloadRun<'a> {
    /// One on a store that has so many records, all of `order`'s and what was inserted since.
    pub fn new(
        (store, order): (&'a dyn DrivenStore, &'a DriverOrder),
        workload: CoreWorkload,
        values: &'a Values,
        records: u64,
    ) -> Self {
        Self {
            store,
            order,
            workload,
            values,
            inserted: InsertedRecords::after(records),
            expected: expected_records(order, workload, records),
        }
    }

    /// Runs it, until all that was written is durable.
    pub fn measure(&self) -> Result<WorkloadOutcome, BenchError> {
        let start = Instant::now();
        let limit = self.order.limit();
        let deadline = limit.seconds.map(|s| start + Duration::from_secs_f64(s));
        let threads = self.order.threads as u64;
        let ops_max = limit.ops.unwrap_or(u64::MAX);
        let share = |thread| ops_max / threads + u64::from(thread < ops_max % threads);
        let per_thread = in_threads(self.order.threads, |thread| {
            self.work(thread, share(thread), deadline)
        })?;
        self.store.sync().map_err(failed)?;
        let seconds = start.elapsed().as_secs_f64();
        let mut kinds: BTreeMap<String, (u64, Latencies)> = BTreeMap::new();
        for (counts, latencies) in &per_thread {
            for (nth, kind) in OperationKind::ALL.iter().enumerate() {
                if let Some(theirs) = &latencies[nth] {
                    let all = kinds.entry(kind.name().to_owned()).or_default();
                    all.0 += counts[nth];
                    all.1.merge(theirs);
                }
            }
        }
        let pool = self.order.pool.as_deref().map_or(0, occupied);
        Ok(WorkloadOutcome {
            workload: self.workload,
            ops: kinds.values().map(|(ops, _)| ops).sum(),
            seconds,
            records: self.inserted.present(),
            occupied_bytes: occupied(&self.order.dir) + pool,
            kinds: kinds
                .into_iter()
                .map(|(name, (ops, latencies))| {
                    let latency = latencies.percentiles();
                    (name, KindOutcome { ops, latency })
                })
                .collect(),
        })
    }

    /// One thread's share.
    fn work(
        &self,
        thread: u64,
        share: u64,
        deadline: Option<Instant>,
    ) -> Result<([u64; OperationKind::ALL.len()], KindLatencies), BenchError> {
        let (order, workload) = (self.order, self.workload);
        let seed = order.seed ^ (workload as u64 + 1) << 32 ^ thread;
        let mut random = Random::new(seed);
        let distribution = order.distribution.unwrap_or(workload.distribution());
        let mut chooser = RecordChooser::new(distribution, self.inserted.present(), self.expected);
        let mut latencies: KindLatencies = Default::default();
        let mut counts = [0; OperationKind::ALL.len()];
        let mut buffers = Buffers::default();
        for version in 0..share {
            let kind = workload.kind(random.below(100));
            let record = match kind {
                OperationKind::Insert => self.inserted.begin(),
                _ => chooser.next(&mut random, self.inserted.present()),
            };
            let length = match kind {
                OperationKind::Scan => 1 + random.below(SCAN_RECORDS_MAX),
                _ => 1,
            };
            stamp(&mut buffers.written, self.values, record, version);
            let start = Instant::now();
            self.operate(kind, record, length, &mut buffers)?;
            let now = Instant::now();
            let nth = kind as usize;
            let ns = now.duration_since(start).as_nanos() as u64;
            latencies[nth].get_or_insert_default().record(ns);
            counts[nth] += 1;
            if kind == OperationKind::Insert {
                self.inserted.end(record);
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                break;
            }
        }
        Ok((counts, latencies))
    }

    fn operate(
        &self,
        kind: OperationKind,
        record: u64,
        length: u64,
        buffers: &mut Buffers,
    ) -> Result<(), BenchError> {
        let key = key(self.order.seed, record);
        match kind {
            OperationKind::Read => self.read(&key, record, &mut buffers.read),
            OperationKind::Update | OperationKind::Insert => {
                self.store.put(&key, &buffers.written).map_err(failed)
            }
            OperationKind::ReadModifyWrite => {
                self.read(&key, record, &mut buffers.read)?;
                self.store.put(&key, &buffers.written).map_err(failed)
            }
            OperationKind::Scan => {
                let found = self.store.scan(&key, length, &mut buffers.read);
                let found = found.map_err(failed)?;
                let whole = found.bytes == found.records * self.order.record_bytes();
                let is_right = (1..=length).contains(&found.records) && whole;
                is_right.then_some(()).ok_or_else(|| {
                    BenchError::Wrong(format!("a scan of {length} records found {found:?}"))
                })
            }
        }
    }

    fn read(&self, key: &[u8], record: u64, buffer: &mut Vec<u8>) -> Result<(), BenchError> {
        let found = self.store.get(key, buffer).map_err(failed)?;
        let stamp = record.to_le_bytes();
        let bytes = self.order.value_bytes.min(stamp.len());
        let is_right = found.is_some_and(|value| {
            value.len() == self.order.value_bytes && value.starts_with(&stamp[..bytes])
        });
        is_right.then_some(()).ok_or_else(|| {
            let key = key.escape_ascii();
            BenchError::Wrong(format!("the record {key} is not there as it was written"))
        })
    }
}

/// A thread's: what it writes, and what it read.
#[derive(Default)]
struct Buffers {
    written: Vec<u8>,
    read: Vec<u8>,
}
