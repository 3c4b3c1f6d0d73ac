//! The store: one log, one index, and the threads behind them.
//!
//! | thread | does | in |
//! |---|---|---|
//! | writers | append to the log's tail, insert into the active chunk | `write`, `update`, `transaction` |
//! | readers | look into the view, read the log | `read`, `scan` |
//! | drain (two) | move sealed segments from the pool to the files | `log::drain` |
//! | index | sorts frozen chunks and merges them into the index | `indexer` |
//! | compaction | merges the index's tables; makes dictionaries of small values | `indexer`, `dictionaries` |
//! | collector | gives back the space of dead records, in files or in a resident log | `gc` |
//!
//! Lock order: `view_change`, then keys in order, then the stripes in order, then a shard of a
//! chunk or the lane's own lock. The manifest's lock is taken last, behind that of a change of
//! keyspaces, which itself comes before the stripes. No lock is held while a file is synced, but
//! for those of a writer with [`Durability::Fsync`](crate::Durability).

mod brake;
mod check;
mod close;
mod compact;
mod copying;
mod dead_starts;
mod delete_range;
mod dictionaries;
mod disk_full;
mod gc;
mod indexer;
mod keyspace;
mod locks;
mod multi_get;
mod open;
mod prefetch;
mod range;
mod range_watch;
mod read;
mod reading;
mod recovery;
mod sample;
mod scan;
mod snapshot;
mod threads;
mod transaction;
mod update;
mod value;
mod value_sample;
mod verify;
mod write;

pub use keyspace::Keyspace;
pub use range::ScanRange;
pub use reading::ReadOnlyStore;
pub use scan::Scan;
pub use snapshot::Snapshot;
pub use transaction::{DetachedTransaction, Transaction, TransactionScan};
pub use value::Value;
pub use write::Batch;

use self::locks::Locks;
use crate::{
    compression::Compressor,
    dictionaries::DictionaryFiles,
    disk::{Disk, SyncMeter},
    error::StoreError,
    index::{Index, ValueCache},
    large_values::LargeValues,
    log::{LogTail, ValueLog},
    memtable::{Chunk, ReadView},
    options::StoreOptions,
    salvage::GivenUp,
    stats::{Stats, WaitStats, WriterWaits},
};
use arc_swap::ArcSwap;
use brake::Brake;
use dead_starts::DeadStarts;
use disk_full::RefusedWrite;
use forebay_pool::{Lsn, WaitMeter, media::ProcessMark};
use gc::Collector;
use open::StoreLock;
use parking_lot::{Condvar, Mutex};
use range_watch::RangeWatches;
use snapshot::Snapshots;
use std::{
    hash::BuildHasher,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
};
use threads::RunningThreads;
use uuid::Uuid;

/// An embedded key-value store. Share it by reference between any number of threads.
///
/// Dropping it [closes](Self::close) it as well as that goes, unless
/// [`StoreOptions::close_on_drop`] is switched off; an error is told by [`close`](Self::close)
/// alone. Where a close fails, or a process ends without one, nothing acknowledged is lost, and the
/// next opening recovers.
///
/// It is the process's that opened it. In a child that is forked from that, every call on it, and
/// on its snapshots and scans, fails with [`StoreError::Forked`], and dropping it there changes
/// nothing of its parent's. A child that neither drops it, nor executes another program, nor ends
/// keeps it locked when its parent has died.
pub struct Store {
    shared: Arc<StoreCore>,
    threads: Vec<JoinHandle<()>>,
    /// Dropped when they have ended.
    _running: RunningThreads,
    /// Locked as long as the store is open.
    lock: Option<StoreLock>,
    /// To be closed when it is dropped.
    closes: bool,
}

/// State that the store's threads share.
pub(crate) struct StoreCore {
    dir: PathBuf,
    /// The store is that process's.
    process: ProcessMark,
    disk: Arc<dyn Disk>,
    options: StoreOptions,
    uuid: Uuid,
    opening: OpeningNumber,
    survives: String,
    /// Each put is committed before it returns: the pool needs that, and the options say so.
    commits_puts: bool,
    given_up: GivenUp,
    /// The last write that had no room.
    refused: Mutex<Option<RefusedWrite>>,
    log: Arc<ValueLog>,
    tail: LogTail,
    index: Arc<Index>,
    /// Values that were read lately.
    values: ValueCache,
    large: LargeValues,
    /// Of the default keyspace's values.
    compressor: Compressor,
    /// Of all values.
    dictionaries: DictionaryFiles,
    hasher: foldhash::fast::RandomState,
    locks: Locks,
    view: ArcSwap<ReadView>,
    /// Held while the view is replaced.
    view_change: Mutex<()>,
    /// Deletes of ranges in this session; counted under all stripes.
    range_deletes: AtomicU64,
    /// An empty chunk, its memory touched, for the next freeze.
    spare: Mutex<Option<Chunk>>,
    snapshots: Arc<Snapshots>,
    range_watches: RangeWatches,
    /// Held by a transaction that has met several conflicts, while it runs again.
    turn: Mutex<()>,
    collector: Collector,
    /// Held by a compaction.
    compacting: Mutex<()>,
    background: BackgroundThreads,
    /// Held by drain threads while they take a segment and its place.
    drain_order: Mutex<()>,
    meter: Option<Arc<SyncMeter>>,
}

/// The number of an opening in this process. A copy of a store has its identity, and other
/// keyspaces by the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpeningNumber(u64);

impl OpeningNumber {
    fn next() -> Self {
        static OPENINGS: AtomicU64 = AtomicU64::new(0);
        Self(OPENINGS.fetch_add(1, Relaxed))
    }
}

/// How the background threads are told what to do, and tell how it goes.
#[derive(Default)]
struct BackgroundThreads {
    state: Mutex<BackgroundState>,
    /// The state changed.
    changed: Condvar,
    stop: AtomicBool,
    /// Keys hidden by memory that scans have passed over since the last ingestion that they asked
    /// for.
    passed: AtomicU64,
    dead_starts: DeadStarts,
    /// All keys that scans have passed over, for the statistics.
    scan_passed: AtomicU64,
    brake: Brake,
    /// Freezes of full chunks by the writers that filled them.
    freezes: WaitMeter,
}

#[derive(Default)]
struct BackgroundState {
    /// Something was frozen, or is wanted in the index.
    index_work: bool,
    /// The log below this address is to come into the index, whether a chunk is full or not.
    ingest_to: Lsn,
    /// The tables changed.
    compaction_work: bool,
    /// Why the index cannot be written, if it cannot.
    index_trouble: Option<String>,
}

impl StoreCore {
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Refuses what a forked child asks of its parent's store, before any lock is taken: a thread
    /// that the child does not have may hold it. One load.
    #[inline]
    fn check_process(&self) -> Result<(), StoreError> {
        match self.process.is_here() {
            true => Ok(()),
            false => Err(StoreError::Forked),
        }
    }

    fn stopping(&self) -> bool {
        self.background.stop.load(Relaxed)
    }

    /// Replaces the view by what `change` makes of it.
    fn change_view(&self, change: impl FnOnce(&ReadView) -> ReadView) {
        let _changing = self.view_change.lock();
        let next = change(&self.view.load());
        self.view.store(Arc::new(next));
    }

    /// What writers waited for.
    fn waits(&self) -> WriterWaits {
        let (index, drain) = self.background.brake.waits();
        let segment = match &self.tail {
            LogTail::Pool(lane) => lane.blocked().into(),
            LogTail::Resident(_) | LogTail::File(_) | LogTail::ReadOnly(_) => WaitStats::default(),
        };
        WriterWaits {
            index,
            collector: self.collector.waits(),
            drain,
            segment,
            freeze: self.background.freezes.read().into(),
        }
    }

    /// Where the log is complete in the index.
    fn watermark(&self) -> Lsn {
        self.index.watermark()
    }
}

impl Store {
    /// Makes all that was put, deleted and written before durable, wherever it is: only with
    /// [`StoreOptions::commit_puts`] switched off on a disk, and with
    /// [`Durability::NoSync`](crate::Durability::NoSync), is there anything to do. Cheaper than a
    /// [`flush`](Self::flush), after which it is in the files.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`] if the pool failed, [`StoreError::Io`] if a file did: what was not
    /// durable before may be lost.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (pool_path, dir) = (dir.path().join("pool"), dir.path().join("data"));
    /// use forebay_pool::PoolOptions;
    /// use forebay_store::StoreOptions;
    /// let pool = PoolOptions::new().on_disk(true).create(&pool_path)?;
    /// let store = StoreOptions::new().commit_puts(false).open(&dir, &pool)?;
    /// store.put(b"alice", b"70")?; // a copy to memory
    /// store.put(b"bob", b"130")?;
    /// store.commit()?; // one write to the disk: both are durable
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit(&self) -> Result<(), StoreError> {
        self.shared.check_process()?;
        self.shared.tail.commit_written()
    }

    /// Waits until everything acknowledged before is in the value-log files on the disk.
    ///
    /// # Errors
    /// [`StoreError::Stalled`] if they cannot be written; nothing is lost then.
    /// [`StoreError::Replaced`] if they were removed.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put(b"boat", b"blue")?;
    /// store.flush()?; // the files are complete: good for a copy of them
    /// # Ok(())
    /// # }
    /// ```
    pub fn flush(&self) -> Result<(), StoreError> {
        self.shared.check_process()?;
        self.shared.tail.flush()?;
        // What was removed takes writes, and nothing finds them.
        self.shared.log.check_exists()
    }

    /// The records and files that this opening gave up, with [`StoreOptions::salvage`], in words.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// for what in store.given_up() {
    ///     eprintln!("lost: {what}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn given_up(&self) -> Vec<String> {
        match self.shared.check_process() {
            Ok(()) => self.shared.given_up.said(),
            Err(_) => Vec::new(),
        }
    }

    /// Sizes and counts. In a forked child, whose the store is not, only [`Stats::trouble`], which
    /// says that.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// let stats = store.stats();
    /// println!("{}: {} writes, {} bytes of value log", stats.durability, stats.writes, stats.value_log_bytes);
    /// if let Some(why) = stats.trouble {
    ///     eprintln!("{why}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }
}

impl StoreCore {
    fn stats(&self) -> Stats {
        if let Err(forked) = self.check_process() {
            return Stats {
                trouble: Some(forked.to_string()),
                ..Stats::default()
            };
        }
        let view = self.view.load();
        let chunks = || view.chunks();
        let (sync_calls, sync_seconds, sync_cpu_seconds) = self
            .meter
            .as_ref()
            .map_or((0, 0.0, 0.0), |meter| meter.read());
        let (large_value_bytes, large_value_files) = self.large.size();
        let value_log_bytes = self.log.disk_bytes();
        self.look_first();
        let garbage = self.collector.estimate();
        let index_trouble = self.background.state.lock().index_trouble.clone();
        Stats {
            writes: self
                .locks
                .stripes()
                .map(|stripe| stripe.lock().writes)
                .sum(),
            durability: match self.options.resident {
                true => format!("resident, {}", self.options.durability),
                false => self.options.durability.to_string(),
            },
            survives: self.survives.clone(),
            log_tail: self.tail.tail(),
            log_drained: self.tail.drained(),
            log_indexed: self.watermark(),
            value_log_bytes,
            value_log_files: self.log.files().len() as u64,
            large_value_bytes,
            large_value_files,
            garbage_bytes: garbage.garbage_bytes,
            space_amplification: garbage.space_amplification(),
            gc_relocated_bytes: self.collector.relocated_bytes(),
            gc_files_removed: self.collector.files_removed(),
            memtable_bytes: chunks().map(|chunk| chunk.bytes() as u64).sum(),
            memory_bytes_max: (self.options.memtable_bytes * StoreOptions::CHUNKS_MAX) as u64
                + self.options.cache_bytes,
            memtable_keys: chunks().map(|chunk| chunk.len() as u64).sum(),
            keyspaces: self.keyspaces().list(),
            dropped_keyspaces: self.keyspaces().dropped().len() as u64,
            scan_passed_keys: self.background.scan_passed.load(Relaxed)
                + self.index.passed_tombstones(),
            waits: self.waits(),
            compression: self.compressor.stats(),
            dictionaries: self.dictionaries.named().len() as u64,
            dictionary_bytes: self.dictionaries.bytes(),
            index: self.index.stats(),
            sync_calls,
            sync_seconds,
            sync_cpu_seconds,
            set_aside: self.collector.set_aside(),
            leftovers: self.log.leftovers(),
            given_up: self.given_up.said(),
            trouble: (self.tail.failed())
                .map(|failed| failed.to_string())
                .or(index_trouble)
                .or_else(|| self.log.reserve().is_short().then(|| self.why_full()))
                .or_else(|| self.tail.stalled())
                .or_else(|| self.refused())
                .or_else(|| self.collector.trouble())
                .or_else(|| self.dictionaries.trouble()),
        }
    }
}
