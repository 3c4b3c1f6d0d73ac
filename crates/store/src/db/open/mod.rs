//! Opening a store. docs/store-format.md, "Opening".
//!
//! 1. Lock the directory; read the manifest, or make a new store (`directory`).
//! 2. If the manifest says that a pool holds the end of the log, that pool must have been given:
//!    claim the lane (`lane`).
//! 3. Open the value-log files and the index, and refuse what is not of one moment (`session`).
//! 4. Find where the log ends (`log_end`).
//! 5. Make that the end, and the tail with which the log goes on (`log_end`).
//! 6. Replay the log above the index's watermark into the memtable ([`recovery`](super::recovery)).
//! 7. Remove what nothing leads to.
//! 8. Note the new session in the manifest, with the pool it uses, before anything is appended
//!    (`session`).
//!
//! Then the threads start. Any step may be cut and repeated; a refusal leaves the manifest as it
//! was, and every file that holds log.

mod directory;
mod lane;
mod log_end;
mod look;
mod session;

pub(super) use directory::{StoreLock, lock_backups};

use super::{
    BackgroundThreads, OpeningNumber, Store, StoreCore, gc::Collector, locks::Locks,
    range_watch::RangeWatches, snapshot::Snapshots, threads::RunningThreads,
};
use crate::{
    compression::Compressor,
    dictionaries::DictionaryFiles,
    disk::{Disk, RealDisk, SyncMeter},
    error::StoreError,
    large_values::LargeValues,
    log::LogTail,
    memtable::{Chunk, ReadView},
    options::{Durability, StoreOptions},
};
use arc_swap::ArcSwap;
use forebay_pool::{Pool, PoolPersistence, Recovered, media::ProcessMark};
use log_end::OpenedLog;
use parking_lot::Mutex;
use session::OpeningSession;
use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

/// How often a store is collected before it is opened on a full disk.
const COLLECTIONS: u32 = 8;

impl StoreOptions {
    /// Opens the store in `dir`, making it if there is none, and recovers what the last session
    /// acknowledged.
    ///
    /// [`Durability::Buffered`] needs a `pool`; the others take `None`. If the last session was not
    /// closed, `pool` must be the one it used, whatever the durability.
    ///
    /// # Errors
    /// [`StoreError`] for everything that can be wrong; nothing is changed or lost then.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// use forebay_store::{StoreOptions, Durability};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (pool_path, dir) = (dir.path().join("pool"), dir.path().join("data"));
    /// let pool = PoolOptions::new().emulated(true).create(&pool_path)?;
    /// let store = StoreOptions::new().open(&dir, &pool)?; // a put costs a memory copy
    /// store.close()?;
    /// let store = StoreOptions::new().durability(Durability::Fsync).open(&dir, None)?; // a put costs an fsync
    /// # Ok(())
    /// # }
    /// ```
    pub fn open<'a>(
        &self,
        dir: impl AsRef<Path>,
        pool: impl Into<Option<&'a Pool>>,
    ) -> Result<Store, StoreError> {
        let disk = RealDisk::with_open_files(self.open_log_files());
        let meter = disk.meter();
        self.open_on(Arc::new(disk), Some(meter), dir, pool)
    }

    /// As [`open`](Self::open), with the value log, large values and manifest on `disk`, for tests.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_on<'a>(
        &self,
        disk: Arc<dyn Disk>,
        meter: Option<Arc<SyncMeter>>,
        dir: impl AsRef<Path>,
        pool: impl Into<Option<&'a Pool>>,
    ) -> Result<Store, StoreError> {
        let (dir, pool) = (dir.as_ref(), pool.into());
        let opened = Store::start(self, Arc::clone(&disk), meter.clone(), dir, pool);
        match (opened, pool) {
            (Err(error @ StoreError::NoRoomToOpen { .. }), Some(pool))
                if !matches!(self.durability, Durability::Buffered(_)) && !self.salvage =>
            {
                match self.make_room(&disk, dir, pool) {
                    true => Store::start(self, disk, meter, dir, Some(pool)),
                    false => Err(error),
                }
            }
            (opened, _) => opened,
        }
    }

    /// What was left in a lane has no room in the files: as a store that goes on in the lane it can
    /// be opened, and then collected. False if that makes no room.
    fn make_room(&self, disk: &Arc<dyn Disk>, dir: &Path, pool: &Pool) -> bool {
        let options = self.clone().durability(Durability::DOUBLE).gc(false);
        let opened = Store::start(&options, Arc::clone(disk), None, dir, Some(pool));
        opened.is_ok_and(|store| {
            let goes_on = |_: &u32| store.gc().is_ok_and(|report| report.reclaimed_bytes > 0);
            (0..COLLECTIONS).take_while(goes_on).for_each(drop);
            store.close().is_ok()
        })
    }
}

impl Store {
    fn start(
        options: &StoreOptions,
        disk: Arc<dyn Disk>,
        meter: Option<Arc<SyncMeter>>,
        dir: &Path,
        pool: Option<&Pool>,
    ) -> Result<Self, StoreError> {
        options.check(pool.is_some_and(Pool::needs_commit))?;
        if matches!(options.durability, Durability::Buffered(_)) && pool.is_none() {
            return Err(StoreError::PoolNeeded {
                durability: options.durability.to_string(),
            });
        }
        if pool.is_some_and(|it| it.durability() == PoolPersistence::MachineLossOnceCommitted) {
            let what = "the pool lies in other machines' memory, and a put would not say that a copy is missing there: \
                        give the store a pool on a disk or on persistent memory";
            return Err(StoreError::BadOption {
                what: what.to_owned(),
            });
        }
        let running = RunningThreads::begin()?;
        let (held, mut lock) = directory::lock(dir, options.create)?;
        let opened = held.to_lock().and_then(|open| disk.hold(dir, &open));
        opened.map_err(StoreError::io("opening", dir))?;
        let manifest = directory::manifest(&*disk, &held, options.create)?;
        let (session, lane) = OpeningSession::find(disk, &held, manifest, pool, options)?;
        lock.take_log(&held)?;
        let large = LargeValues::open(
            Arc::clone(&session.disk),
            dir,
            session.state.uuid,
            session.state.large_from,
        )?;
        let lane = session.check(lane)?;
        session.size_reserve(lane.as_ref());
        let large_next = large.next_id();
        let OpenedLog {
            tail,
            files_end,
            recovered,
            epoch,
        } = session.open_log(lane)?;
        let shared = Arc::new(session.shared(tail, large, meter));
        let left = recovered.iter().flat_map(Recovered::records);
        shared.check_keyspaces()?;
        shared.replay(files_end, left)?;
        forebay_pool::failpoint!("store:replayed");
        drop(recovered);
        // Only now that all is found well is anything removed.
        if !session.state.is_closed() {
            shared.remove_unreferenced_large(session.state.large_from)?;
        }
        session.index.remove_leftovers();
        session
            .note(epoch, large_next)
            .map_err(|e| match e.is_full_disk() {
                true => session.no_room(0, e.to_string()),
                false => e,
            })?;
        let dictionaries = &session.state.keyspaces.dictionaries;
        shared.dictionaries.remove_leftovers(dictionaries);
        shared.begin_dictionaries();
        let mut store = Self {
            shared,
            threads: Vec::new(),
            _running: running,
            lock: Some(lock),
            closes: false,
        };
        store.start_threads()?;
        store.closes = options.close_on_drop;
        Ok(store)
    }
}

impl OpeningSession<'_> {
    /// What the threads of the store share: an empty memtable over the index as it is.
    fn shared(
        &self,
        tail: LogTail,
        large: LargeValues,
        meter: Option<Arc<SyncMeter>>,
    ) -> StoreCore {
        let hasher = foldhash::fast::RandomState::default();
        let active = Arc::new(Chunk::new(
            self.options.memtable_bytes,
            self.watermark(),
            false,
            hasher.clone(),
        ));
        StoreCore {
            dir: self.dir.to_owned(),
            process: ProcessMark::take(),
            survives: durability(self.options, self.pool),
            commits_puts: self.options.commit_puts && tail.needs_commit(),
            options: self.options.clone(),
            uuid: self.state.uuid,
            opening: OpeningNumber::next(),
            tail,
            hasher,
            locks: Locks::new(&active),
            view: ArcSwap::from_pointee(ReadView::new(
                Some(active),
                Vec::new(),
                self.index.snapshot(),
            )),
            view_change: Mutex::default(),
            range_deletes: AtomicU64::new(0),
            spare: Mutex::default(),
            snapshots: Arc::new(Snapshots::default()),
            range_watches: RangeWatches::default(),
            turn: Mutex::default(),
            collector: Collector::default(),
            compacting: Mutex::default(),
            background: BackgroundThreads::default(),
            drain_order: Mutex::default(),
            meter,
            values: self.index.values(),
            index: Arc::clone(&self.index),
            given_up: self.given_up.clone(),
            refused: Mutex::default(),
            large,
            compressor: Compressor::new(self.options.compression),
            dictionaries: DictionaryFiles::open(
                Arc::clone(&self.disk),
                self.dir,
                self.state.uuid,
                &self.state.keyspaces.dictionaries,
            ),
            disk: Arc::clone(&self.disk),
            log: Arc::clone(&self.log),
        }
    }
}

fn durability(options: &StoreOptions, pool: Option<&Pool>) -> String {
    match (options.durability, pool) {
        (Durability::Buffered(_), Some(pool)) if pool.needs_commit() && !options.commit_puts => {
            format!("{}, once it is committed", pool.durability())
        }
        (Durability::Buffered(_), Some(pool)) => pool.durability().to_string(),
        (Durability::NoSync, _) => {
            "survives a process crash only (nothing is synced: a power cut loses recent writes)"
                .to_owned()
        }
        _ => "survives a power cut (each write is synced)".to_owned(),
    }
}
