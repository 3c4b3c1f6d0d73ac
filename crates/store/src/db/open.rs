//! Opening and closing. docs/store-format.md, "Opening".
//!
//! 1. Lock the directory; read the manifest, or make a new store.
//! 2. If the manifest says that a pool holds the end of the log, that pool must have been given: claim the lane.
//! 3. Open the value-log files and the index; find where the log ends.
//! 4. Note the new session in the manifest, with the pool it uses, before anything is appended.
//! 5. Replay the log above the index's watermark into the memtable.
//! 6. Start the threads.

use super::{
    Background, STRIPES, Shared, Store, Stripe, gc::Collector, recovery::find_end,
    snapshot::Snapshots,
};
use crate::{
    disk::{Disk, RealDisk, SyncMeter},
    error::StoreError,
    index::{Index, IndexOptions, LsmIndex},
    large::LargeValues,
    log::{FileHead, Head, ValueLog, drain},
    manifest::{Manifest, PoolRef, State},
    memtable::{Chunk, View},
    options::{Options, Variant},
};
use arc_swap::ArcSwap;
use forebay_pool::{ClaimOptions, Lane, Lsn, Pool, Recovered, segment::next_start};
use parking_lot::Mutex;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
};

const LOCK: &str = "LOCK";
const INDEX: &str = "index";
/// Drain threads of a lane with several buffers: one segment's sync overlaps the next one's write.
const DRAINS: usize = 2;

impl Store {
    /// Opens the store in `dir`, making it if the options say so, and recovers what the last session acknowledged.
    ///
    /// A buffered variant needs `pool`. If the last session was not closed, `pool` must be the one it used, whatever the variant.
    ///
    /// # Errors
    /// [`StoreError`] for everything that can be wrong; nothing is changed or lost then.
    pub fn open(dir: &Path, pool: Option<&Pool>, options: &Options) -> Result<Self, StoreError> {
        let disk = RealDisk::default();
        let meter = disk.meter();
        Self::open_on(Arc::new(disk), Some(meter), dir, pool, options)
    }

    /// As [`open`](Self::open), with the value log, large values and manifest on `disk`, for tests.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_on(
        disk: Arc<dyn Disk>,
        meter: Option<Arc<SyncMeter>>,
        dir: &Path,
        pool: Option<&Pool>,
        options: &Options,
    ) -> Result<Self, StoreError> {
        options.check()?;
        if matches!(options.variant, Variant::Buffered(_)) && pool.is_none() {
            return Err(StoreError::PoolNeeded {
                variant: options.variant.to_string(),
            });
        }
        let lock = lock(dir, options.create)?;
        let manifest = match Manifest::read(dir)? {
            Some(manifest) => manifest,
            None => create(&*disk, dir, options.create)?,
        };
        let state = manifest.state().clone();
        let lane = claim_left(dir, &state, pool, options)?;
        let manifest = Arc::new(Mutex::new(manifest));
        let log = ValueLog::open(
            Arc::clone(&disk),
            dir,
            options.file_bytes,
            Arc::clone(&manifest),
        )?;
        let index = LsmIndex::open(
            &dir.join(INDEX),
            IndexOptions {
                create: state.epoch == 0,
                cache_bytes: options.cache_bytes,
                ..IndexOptions::default()
            },
        )?;
        let large = LargeValues::open(Arc::clone(&disk), dir, state.uuid)?;
        let session = Session {
            disk,
            manifest,
            log: Arc::new(log),
            state,
            pool,
            options,
        };
        let (head, files_end, recovered) =
            session.begin(dir, lane, index.watermark(), large.next_id())?;
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            survives: survives(options.variant, pool),
            options: options.clone(),
            uuid: session.state.uuid,
            head,
            hasher: foldhash::fast::RandomState::default(),
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            view: ArcSwap::from_pointee(View {
                active: Some(Arc::new(Chunk::new(
                    options.memtable_bytes,
                    index.watermark(),
                    false,
                ))),
                frozen: Vec::new(),
                tables: index.snapshot(),
            }),
            view_change: Mutex::default(),
            spare: Mutex::default(),
            snapshots: Arc::new(Snapshots::default()),
            collector: Collector::default(),
            background: Background::default(),
            drain_order: Mutex::default(),
            meter,
            index: Arc::new(index),
            large,
            disk: session.disk,
            manifest: session.manifest,
            log: session.log,
        });
        shared.replay(files_end, recovered.as_ref())?;
        drop(recovered);
        if session.state.log_end.is_none() {
            shared.remove_unreferenced_large(session.state.large_from)?;
        }
        let threads = start_threads(&shared);
        Ok(Self {
            shared,
            threads,
            _lock: lock,
        })
    }

    /// Drains and syncs everything, merges the memtable into the index, gives the pool's lane back, and closes: the next opening
    /// has nothing to replay and may use another pool or none.
    ///
    /// A snapshot that is still open keeps the lane; then the next opening needs the same pool.
    ///
    /// # Errors
    /// What went wrong; the store is closed all the same, and nothing is lost.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.shared.head.flush()?;
        self.shared.ingest_everything()?;
        self.stop();
        let shared = Arc::clone(&self.shared);
        drop(self);
        let Ok(shared) = Arc::try_unwrap(shared).map_err(drop) else {
            return Ok(());
        };
        let end = shared.head.tail();
        if let Head::Pool(lane) = shared.head
            && !lane.remove()
        {
            return Ok(());
        }
        let mut manifest = shared.manifest.lock();
        manifest.update(&*shared.disk, |state| {
            state.pool = None;
            state.log_end = Some(end);
        })
    }

    /// Ends the threads.
    fn stop(&mut self) {
        self.shared.background.stop.store(true, SeqCst);
        self.shared.background.changed.notify_all();
        if let Head::Pool(lane) = &self.shared.head {
            lane.close();
        }
        for thread in self.threads.drain(..) {
            // A panic of a thread was reported by it.
            let _ = thread.join();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Takes the store's lock.
fn lock(dir: &Path, create: bool) -> Result<File, StoreError> {
    if !dir.exists() && !create {
        return Err(StoreError::NotAStore {
            dir: dir.to_owned(),
            found: "the directory does not exist".to_owned(),
        });
    }
    let path = dir.join(LOCK);
    if create {
        fs::create_dir_all(dir).map_err(StoreError::io("creating", dir))?;
    } else if !path.exists() {
        return Err(StoreError::NotAStore {
            dir: dir.to_owned(),
            found: "it has no LOCK file".to_owned(),
        });
    }
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(StoreError::io("opening", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse {
            dir: dir.to_owned(),
        }),
        Err(TryLockError::Error(e)) => Err(StoreError::io("locking", &path)(e)),
    }
}

/// Makes a new store in a directory that holds nothing else.
fn create(disk: &dyn Disk, dir: &Path, create: bool) -> Result<Manifest, StoreError> {
    let names = disk.list(dir).map_err(StoreError::io("listing", dir))?;
    let others: Vec<_> = names
        .iter()
        .filter(|name| *name != LOCK && *name != "MANIFEST.tmp")
        .map(String::as_str)
        .collect();
    if !create || !others.is_empty() {
        return Err(StoreError::NotAStore {
            dir: dir.to_owned(),
            found: if others.is_empty() {
                "it has no MANIFEST".to_owned()
            } else {
                format!("it has no MANIFEST, but {}", others.join(", "))
            },
        });
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    disk.sync_dir(parent.unwrap_or(Path::new(".")))
        .map_err(StoreError::io("syncing", dir))?;
    Manifest::create(disk, dir)
}

/// The lane that the last session left something in, if the manifest says so.
fn claim_left(
    dir: &Path,
    state: &State,
    pool: Option<&Pool>,
    options: &Options,
) -> Result<Option<(Lane, Recovered)>, StoreError> {
    let Some(left) = &state.pool else {
        return Ok(None);
    };
    let missing = |found: String| StoreError::DataInPool {
        dir: dir.to_owned(),
        pool_path: left.path.clone(),
        pool_uuid: left.uuid,
        found,
    };
    let pool = pool.ok_or_else(|| missing("no pool was given".to_owned()))?;
    let given = pool.superblock().uuid;
    if given != left.uuid {
        return Err(missing(format!(
            "the pool {} (uuid {given}) was given",
            pool.path().display()
        )));
    }
    if !pool.has_lane(state.uuid)? {
        // A close that was cut between giving the lane back, drained, and saying so here.
        return Ok(None);
    }
    Ok(Some(pool.claim(
        state.uuid,
        &claim_options(dir, state, options, 0),
    )?))
}

fn claim_options(dir: &Path, state: &State, options: &Options, start: Lsn) -> ClaimOptions {
    ClaimOptions {
        buffers: match options.variant {
            Variant::Buffered(buffers) => buffers,
            Variant::Fsync | Variant::NoSync => 1,
        },
        label: format!(
            "store {}",
            dir.canonicalize()
                .unwrap_or_else(|_| dir.to_owned())
                .display()
        ),
        start,
        epoch_above: state.epoch,
        salvage: options.salvage,
    }
}

fn survives(variant: Variant, pool: Option<&Pool>) -> String {
    match (variant, pool) {
        (Variant::Buffered(_), Some(pool)) => pool.survives().to_string(),
        (Variant::NoSync, _) => {
            "survives a process crash only (nothing is synced: a power cut loses recent writes)"
                .to_owned()
        }
        _ => "survives a power cut (each write is synced)".to_owned(),
    }
}

/// What an opening works with until there is a store.
struct Session<'a> {
    disk: Arc<dyn Disk>,
    manifest: Arc<Mutex<Manifest>>,
    log: Arc<ValueLog>,
    state: State,
    pool: Option<&'a Pool>,
    options: &'a Options,
}

impl Session<'_> {
    /// Finds where the log ends and makes the head with which it goes on: steps 3 and 4. Gives the end of the log in
    /// the files, and what the lane had beyond it.
    fn begin(
        &self,
        dir: &Path,
        lane: Option<(Lane, Recovered)>,
        watermark: Lsn,
        large_next: u64,
    ) -> Result<(Head, Lsn, Option<Recovered>), StoreError> {
        let buffered = matches!(self.options.variant, Variant::Buffered(_));
        let files_end = match lane {
            Some((lane, recovered)) if buffered => {
                self.note(lane.epoch(), large_next)?;
                let files_end = recovered.head();
                return Ok((Head::Pool(Box::new(lane)), files_end, Some(recovered)));
            }
            Some((lane, recovered)) => self.empty(lane, recovered)?,
            None => match self.state.log_end {
                Some(end) => end,
                None => find_end(&self.log, self.state.uuid, watermark, self.options.salvage)?,
            },
        };
        let start = next_start(files_end);
        let epoch = self.state.epoch.saturating_add(1);
        self.log.seal_at(files_end, epoch)?;
        let Some(pool) = self.pool.filter(|_| buffered) else {
            self.note(epoch, large_next)?;
            let head = FileHead::new(
                self.state.uuid,
                epoch,
                self.options.segment_bytes,
                self.options.variant == Variant::Fsync,
                Arc::clone(&self.log),
                start,
            );
            return Ok((Head::File(head), files_end, None));
        };
        let claim = || {
            pool.claim(
                self.state.uuid,
                &claim_options(dir, &self.state, self.options, start),
            )
        };
        let (mut lane, recovered) = claim()?;
        if recovered.head() != start {
            // Taken by an opening that was cut before it was noted: empty, but at an old address.
            drop(recovered);
            if !lane.remove() {
                return Err(StoreError::damaged(
                    pool.path(),
                    "its lane of this store holds records that the store does not know of",
                ));
            }
            lane = claim()?.0;
        }
        self.note(lane.epoch().max(epoch), large_next)?;
        Ok((Head::Pool(Box::new(lane)), files_end, None))
    }

    /// Moves everything that the lane holds to the value-log files and gives the lane back; where the log ends then.
    fn empty(&self, lane: Lane, recovered: Recovered) -> Result<Lsn, StoreError> {
        drop(recovered);
        let end = lane.seal();
        let (order, stop) = (Mutex::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| drain(&lane, &self.log, &order, &stop));
            let drained = lane.wait_drained(end);
            stop.store(true, SeqCst);
            drained
        })?;
        if lane.remove() {
            Ok(end)
        } else {
            Err(StoreError::damaged(
                &self
                    .pool
                    .map_or_else(Default::default, |p| p.path().to_owned()),
                "the drained lane is not empty",
            ))
        }
    }

    /// Notes the session in the manifest.
    fn note(&self, epoch: u32, large_next: u64) -> Result<(), StoreError> {
        let pool = match self.options.variant {
            Variant::Buffered(_) => self.pool.map(|pool| PoolRef {
                uuid: pool.superblock().uuid,
                path: pool
                    .path()
                    .canonicalize()
                    .unwrap_or_else(|_| pool.path().to_owned())
                    .display()
                    .to_string(),
            }),
            Variant::Fsync | Variant::NoSync => None,
        };
        self.manifest.lock().update(&*self.disk, |state| {
            state.epoch = epoch;
            state.pool = pool;
            state.log_end = None;
            state.large_from = large_next;
        })
    }
}

fn start_threads(shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    let mut start = |name: &str, run: fn(&Shared)| {
        let shared = Arc::clone(shared);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&shared));
        threads.extend(thread);
    };
    if let Head::Pool(lane) = &shared.head {
        for _ in 0..DRAINS.min(lane.segments()) {
            start("forebay-drain", Shared::run_drain);
        }
    }
    start("forebay-index", Shared::run_indexer);
    start("forebay-compact", Shared::run_compaction);
    if shared.options.gc {
        start("forebay-gc", Shared::run_collector);
    }
    threads
}

impl Shared {
    fn run_drain(&self) {
        if let Head::Pool(lane) = &self.head {
            drain(lane, &self.log, &self.drain_order, &self.background.stop);
        }
    }

    /// Removes the large values that were written since the last opening and whose record was never appended.
    fn remove_unreferenced_large(&self, from: u64) -> Result<(), StoreError> {
        let mut buffer = Vec::new();
        for id in self.large.ids()?.into_iter().filter(|&id| id >= from) {
            let referenced = match self.large.key_of(id) {
                Ok(key) => self.leads_to(&key, id, &mut buffer)?,
                // Its header was never completed, so it was never pointed to.
                Err(StoreError::Damaged { .. }) => false,
                Err(e) => return Err(e),
            };
            if !referenced {
                self.large.remove(id)?;
            }
        }
        Ok(())
    }
}
