//! Opening and closing. docs/store-format.md, "Opening".
//!
//! 1. Lock the directory; read the manifest, or make a new store.
//! 2. If the manifest says that a pool holds the end of the log, that pool must have been given: claim the lane.
//! 3. Open the value-log files and the index; find where the log ends.
//! 4. Replay the log above the index's watermark into the memtable.
//! 5. Note the new session in the manifest, with the pool it uses, before anything is appended.
//! 6. Start the threads.

use super::{
    Background, STRIPES, Shared, Store, Stripe, Writers,
    check::Parts,
    gc::Collector,
    recovery::{find_end, walk},
    snapshot::Snapshots,
};
use crate::{
    disk::{Disk, RealDisk, SyncMeter},
    error::StoreError,
    given_up::GivenUp,
    index::{Index, IndexOptions, LsmIndex},
    large::LargeValues,
    log::{FileHead, Head, Resident, Unnamed, ValueLog, drain, drain_one},
    manifest::{self, Manifest, PoolRef, State},
    memtable::{Chunk, View},
    options::{Options, Variant},
};
use arc_swap::ArcSwap;
use forebay_pool::{ClaimOptions, Lane, Lsn, Pool, Recovered, segment::next_start};
use parking_lot::Mutex;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

const LOCK: &str = "LOCK";
const INDEX: &str = "index";
/// Drain threads of a lane with several buffers: one segment's sync overlaps the next one's write.
const DRAINS: usize = 2;
/// How long after a panic a thread is started again.
const RESTART: Duration = Duration::from_millis(100);

impl Store {
    /// Opens the store in `dir`, making it if the options say so, and recovers what the last session acknowledged.
    ///
    /// A buffered variant needs `pool`. If the last session was not closed, `pool` must be the one it used, whatever the variant.
    ///
    /// # Errors
    /// [`StoreError`] for everything that can be wrong; nothing is changed or lost then.
    pub fn open(dir: &Path, pool: Option<&Pool>, options: &Options) -> Result<Self, StoreError> {
        let disk = RealDisk::with_open_files(options.open_log_files());
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
            None => {
                // Nobody else is about to make one, now that the lock is held.
                check_directory(dir, options.create)?;
                let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
                disk.sync_dir(above.unwrap_or(Path::new(".")))
                    .map_err(StoreError::io("syncing", dir))?;
                Manifest::create(&*disk, dir)?
            }
        };
        let state = manifest.state().clone();
        let given_up = GivenUp::new(dir, options.salvage);
        let lane = claim_left(dir, &state, pool, options, &given_up)?;
        let manifest = Arc::new(Mutex::new(manifest));
        let (log, unnamed) = ValueLog::open(
            Arc::clone(&disk),
            dir,
            options.file_bytes,
            Arc::clone(&manifest),
            given_up.clone(),
        )?;
        let index = LsmIndex::open_unchanged(
            &dir.join(INDEX),
            IndexOptions {
                create: state.epoch == 0,
                cache_bytes: options.cache_bytes,
                ..IndexOptions::default()
            },
        )?;
        let large = LargeValues::open(Arc::clone(&disk), dir, state.uuid, state.large_from)?;
        let session = Session {
            disk,
            manifest,
            log: Arc::new(log),
            unnamed,
            state,
            pool,
            options,
            given_up,
        };
        let lane = session.check(dir, lane, index.watermark())?;
        let large_next = large.next_id();
        let Begun {
            head,
            files_end,
            recovered,
            epoch,
        } = session.begin(dir, lane, index.watermark())?;
        let index = Arc::new(index);
        let active = Arc::new(Chunk::new(options.memtable_bytes, index.watermark(), false));
        let stripe = || {
            Stripe(Mutex::new(Writers {
                writes: 0,
                active: Arc::clone(&active),
            }))
        };
        let stripes = (0..STRIPES).map(|_| stripe()).collect();
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            survives: survives(options.variant, pool),
            options: options.clone(),
            uuid: session.state.uuid,
            head,
            hasher: foldhash::fast::RandomState::default(),
            stripes,
            view: ArcSwap::from_pointee(View {
                active: Some(active),
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
            values: index.values(),
            index: Arc::clone(&index) as Arc<dyn Index>,
            given_up: session.given_up.clone(),
            large,
            disk: Arc::clone(&session.disk),
            manifest: Arc::clone(&session.manifest),
            log: Arc::clone(&session.log),
        });
        shared.replay(files_end, recovered.as_ref())?;
        forebay_pool::failpoint!("store:replayed");
        drop(recovered);
        // Only now that all is found well is anything removed.
        if session.state.log_end.is_none() {
            shared.remove_unreferenced_large(session.state.large_from)?;
        }
        index.remove_leftovers();
        session.note(epoch, large_next, index.watermark())?;
        let mut store = Self {
            shared,
            threads: Vec::new(),
            lock: Some(lock),
        };
        store.start_threads()?;
        Ok(store)
    }

    /// Drains and syncs everything, merges the memtable into the index, gives the pool's lane back, and closes: the next opening
    /// has nothing to replay and may use another pool or none.
    ///
    /// A snapshot that is still open reads on, from the files. A resident store's log stays in the pool, which the next opening needs.
    ///
    /// # Errors
    /// What went wrong; the store is closed all the same, and nothing is lost.
    pub fn close(mut self) -> Result<(), StoreError> {
        // The collector writes as well, so it ends first; what it has begun is garbage at most.
        self.shared.end_collection();
        self.shared.head.flush()?;
        self.shared.ingest_everything()?;
        self.stop();
        // Kept until the manifest is written: the next session goes by what it says.
        let _lock = self.lock.take();
        let shared = Arc::clone(&self.shared);
        drop(self);
        if let Head::Resident(_) = shared.head {
            // The log stays where it is, and the manifest says so.
            return Ok(());
        }
        let (end, watermark) = (shared.head.drained(), shared.watermark());
        // Snapshots that are still open read the files from now on.
        if let Head::Pool(lane) = &shared.head
            && !lane.give_back()
        {
            return Err(StoreError::Stalled {
                reason: "something was written to its lane of the pool while it was closed"
                    .to_owned(),
            });
        }
        let unlinked = shared.log.unlinked_for_good()?;
        shared.manifest.lock().update(&*shared.disk, |state| {
            state.pool = None;
            state.log_end = Some(end);
            state.indexed_to = state.indexed_to.max(watermark);
            state.no_longer_retired(&unlinked);
        })
    }

    /// Starts the threads behind the store.
    fn start_threads(&mut self) -> Result<(), StoreError> {
        let drains = match &self.shared.head {
            Head::Pool(lane) => DRAINS.min(lane.segments()),
            Head::File(_) | Head::Resident(_) => 0,
        };
        for _ in 0..drains {
            self.start_thread("forebay-drain", Shared::run_drain)?;
        }
        self.start_thread("forebay-index", Shared::run_indexer)?;
        self.start_thread("forebay-compact", Shared::run_compaction)?;
        match self.shared.head {
            _ if !self.shared.options.gc => {}
            Head::Resident(_) => self.start_thread("forebay-gc", Shared::run_resident_collector)?,
            _ => self.start_thread("forebay-gc", Shared::run_collector)?,
        }
        Ok(())
    }

    /// Starts a thread. One that panics is started again after a pause; writers that wait for it are told.
    fn start_thread(&mut self, name: &'static str, run: fn(&Shared)) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let guarded = move || {
            while catch_unwind(AssertUnwindSafe(|| run(&shared))).is_err() && !shared.stopping() {
                shared.report_panic(name);
                thread::sleep(RESTART);
            }
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(guarded)
            .map_err(StoreError::io("starting a thread for", &self.shared.dir))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends the threads.
    fn stop(&mut self) {
        self.shared.background.stop.store(true, SeqCst);
        self.shared.background.changed.notify_all();
        if let Some(lane) = self.shared.head.lane() {
            lane.close();
        }
        for thread in self.threads.drain(..) {
            // They catch what panics in them.
            let _ = thread.join();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Takes the store's lock, making its directory if `create` says so. A directory that holds something else is
/// left as it is.
fn lock(dir: &Path, create: bool) -> Result<File, StoreError> {
    if dir.exists() {
        check_directory(dir, create)?;
    } else if create {
        create_directory(dir).map_err(StoreError::io("creating", dir))?;
    } else {
        return Err(StoreError::NotAStore {
            dir: dir.to_owned(),
            found: "the directory does not exist".to_owned(),
        });
    }
    let path = dir.join(LOCK);
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

/// Makes a directory and those above it, durably.
fn create_directory(dir: &Path) -> io::Result<()> {
    let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let made = dir.ancestors().take_while(missing).count();
    fs::create_dir_all(dir)?;
    // The name of each directory made is durable when the one above it is synced.
    for above in dir.ancestors().skip(1).take(made) {
        let above = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        File::open(above)?.sync_all()?;
    }
    Ok(())
}

/// Refuses a directory that holds neither a store nor nothing at all.
fn check_directory(dir: &Path, create: bool) -> Result<(), StoreError> {
    let refuse = |found: String| {
        Err(StoreError::NotAStore {
            dir: dir.to_owned(),
            found,
        })
    };
    if !dir.is_dir() {
        return refuse("it is no directory".to_owned());
    }
    let mut others = Vec::new();
    for entry in fs::read_dir(dir).map_err(StoreError::io("listing", dir))? {
        let name = entry
            .map_err(StoreError::io("listing", dir))?
            .file_name()
            .to_string_lossy()
            .into_owned();
        if name == manifest::NAME {
            return Ok(());
        }
        if name != LOCK && name != manifest::TEMPORARY {
            others.push(name);
        }
    }
    if !others.is_empty() {
        others.sort();
        return refuse(format!("it has no MANIFEST, but {}", others.join(", ")));
    }
    if !create {
        return refuse("it has no MANIFEST".to_owned());
    }
    Ok(())
}

/// The lane that the last session left something in.
fn claim_left(
    dir: &Path,
    state: &State,
    pool: Option<&Pool>,
    options: &Options,
    given_up: &GivenUp,
) -> Result<Option<(Lane, Recovered)>, StoreError> {
    let claim = |pool: &Pool| pool.claim(state.uuid, &claim_options(dir, options, state.epoch, 0));
    let Some(left) = &state.pool else {
        // A pool that has records of this store all the same is ahead of its manifest, which is an earlier copy.
        let Some(pool) = pool.filter(|_| state.epoch > 0) else {
            return Ok(None);
        };
        if !pool.has_lane(state.uuid)? {
            return Ok(None);
        }
        let (lane, recovered) = claim(pool)?;
        if recovered.records().next().is_some() {
            return Ok(Some((lane, recovered)));
        }
        // Taken by an opening that was cut before it was noted.
        drop(recovered);
        return match lane.remove() {
            true => Ok(None),
            false => Err(StoreError::damaged(
                pool.path(),
                "an empty lane has records",
            )),
        };
    };
    let missing = |found: String| StoreError::DataInPool {
        dir: dir.to_owned(),
        pool_path: left.path.clone(),
        pool_uuid: left.uuid,
        found,
    };
    let Some(pool) = pool.filter(|pool| pool.superblock().uuid == left.uuid) else {
        if options.salvage {
            given_up.say(format!(
                "what was in the pool {} (uuid {}) and in no value-log file",
                left.path, left.uuid
            ));
            return Ok(None);
        }
        return Err(missing(pool.map_or_else(
            || "no pool was given".to_owned(),
            |given| {
                let (path, uuid) = (given.path().display(), given.superblock().uuid);
                format!("the pool {path} (uuid {uuid}) was given")
            },
        )));
    };
    let Some(last) = pool.last_session(state.uuid)? else {
        // A close that was cut between giving the lane back, drained, and saying so here.
        return Ok(None);
    };
    // Programs that noted no collected files could give a lane a lower number.
    if last < state.epoch && state.retired.is_some() {
        let found = format!(
            "the pool {} has what session {last} left in it, and MANIFEST is of session {}: the pool is older",
            pool.path().display(),
            state.epoch
        );
        let gives_up = "what was written since and is not in a value-log file".to_owned();
        if !options.salvage {
            return Err(StoreError::NotOneMoment {
                dir: dir.to_owned(),
                found,
                gives_up,
            });
        }
        given_up.say(format!("{gives_up}: {found}"));
    }
    claim(pool).map(Some).map_err(Into::into)
}

/// The session that claims gets a higher number than `epoch`.
fn claim_options(dir: &Path, options: &Options, epoch: u32, start: Lsn) -> ClaimOptions {
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
        epoch_above: epoch,
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
    /// Value-log files that the manifest does not name.
    unnamed: Vec<Unnamed>,
    state: State,
    pool: Option<&'a Pool>,
    options: &'a Options,
    given_up: GivenUp,
}

/// What a session begins with.
struct Begun {
    head: Head,
    /// The end of the log in the files.
    files_end: Lsn,
    /// What the lane had beyond it.
    recovered: Option<Recovered>,
    /// The session's number.
    epoch: u32,
}

impl Session<'_> {
    /// Finds where the log ends and makes the head with which it goes on: step 3.
    fn begin(
        &self,
        dir: &Path,
        lane: Option<(Lane, Recovered)>,
        watermark: Lsn,
    ) -> Result<Begun, StoreError> {
        let buffered = matches!(self.options.variant, Variant::Buffered(_));
        let salvage = self.options.salvage;
        let mut epoch = self.state.epoch.saturating_add(1);
        // The index may have been told of the seal behind the last record.
        let lost = (lane.as_ref()).is_some_and(|(_, r)| next_start(r.end()) < watermark);
        let files_end = match lane {
            Some((lane, recovered)) if buffered && !lost && self.is_enough(&lane) => {
                if self.options.resident {
                    self.walk(watermark, recovered.head())?;
                }
                return Ok(Begun {
                    epoch: lane.epoch(),
                    head: self.head(lane, recovered.head())?,
                    files_end: recovered.head(),
                    recovered: Some(recovered),
                });
            }
            Some((lane, recovered)) => {
                epoch = epoch.max(lane.epoch());
                self.walk(watermark, recovered.head())?;
                self.empty(lane, recovered)?
            }
            None => match self.state.log_end.filter(|_| !salvage) {
                Some(end) => {
                    self.walk(watermark, end)?;
                    end
                }
                None => match find_end(&self.log, self.state.uuid, watermark, salvage)? {
                    // What the index was told of need not be there.
                    end if salvage && end <= watermark => self.log.content_end(end)?,
                    end => end,
                },
            },
        };
        // Never below what the index was told of, where a replay would not look; nor at addresses that it leads to.
        let start = next_start(files_end.max(watermark));
        let closed = self.state.log_end.is_some() && !salvage;
        self.log.end_at(watermark, files_end, epoch, closed)?;
        if start > next_start(files_end) {
            self.log.complete_at(next_start(files_end))?;
        }
        let Some(pool) = self.pool.filter(|_| buffered) else {
            let head = FileHead::new(
                self.state.uuid,
                epoch,
                self.options.segment_bytes,
                self.options.variant == Variant::Fsync,
                Arc::clone(&self.log),
                start,
            );
            return Ok(Begun {
                head: Head::File(head),
                files_end,
                recovered: None,
                epoch,
            });
        };
        let claim = || {
            pool.claim(
                self.state.uuid,
                &claim_options(dir, self.options, epoch.saturating_sub(1), start),
            )
        };
        let (lane, recovered) = claim()?;
        Ok(Begun {
            epoch: lane.epoch().max(epoch),
            head: self.head(lane, start)?,
            files_end,
            recovered: Some(recovered),
        })
    }

    /// Refuses parts that are not of one moment, before anything is changed; with salvage, notes what they cost. The lane, unless its
    /// content is given up.
    fn check(
        &self,
        dir: &Path,
        lane: Option<(Lane, Recovered)>,
        watermark: Lsn,
    ) -> Result<Option<(Lane, Recovered)>, StoreError> {
        let parts = Parts {
            log: &self.log,
            unnamed: &self.unnamed,
            state: &self.state,
            watermark,
            lane: lane.as_ref().map(|(_, recovered)| recovered),
        };
        if !self.options.salvage {
            parts.refuse_contradictions(dir)?;
            return Ok(lane);
        }
        let found = parts.contradictions()?;
        for contradiction in &found {
            let (gives_up, found) = (&contradiction.gives_up, &contradiction.found);
            self.given_up.say(format!("{gives_up}: {found}"));
        }
        for file in &self.unnamed {
            if !file.is_dead(&self.state, watermark) {
                self.given_up.set_aside(&*self.disk, &file.path)?;
            }
        }
        match lane {
            Some((lane, recovered)) if found.iter().any(|c| c.lane_is_stale) => {
                drop(recovered);
                // The files have more: what the lane has must not be written over it.
                while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
                    sealed.release();
                }
                match lane.remove() {
                    true => Ok(None),
                    false => Err(StoreError::damaged(dir, "its lane could not be given up")),
                }
            }
            lane => Ok(lane),
        }
    }

    /// Checks that the log in the files can be read in order from one address to another, before it is built on.
    fn walk(&self, from: Lsn, to: Lsn) -> Result<(), StoreError> {
        if self.options.salvage {
            return Ok(());
        }
        walk(&self.log, self.state.uuid, from, to, |_, _| Ok(()))
    }

    /// False if a resident log is to have more room than this lane.
    fn is_enough(&self, lane: &Lane) -> bool {
        match self.options.variant {
            Variant::Buffered(buffers) if self.options.resident => {
                lane.segments() >= usize::from(buffers)
            }
            _ => true,
        }
    }

    /// The head of a log that goes on in `lane`, which begins at `start`.
    fn head(&self, lane: Lane, start: Lsn) -> Result<Head, StoreError> {
        let lane = Box::new(lane);
        if !self.options.resident {
            return Ok(Head::Pool(lane));
        }
        self.log.complete_at(start)?;
        // A session that ended in the middle of a segment leaves it short. If the collector has no empty one to copy to, the oldest goes
        // to a file, as it would without resident.
        let usage = lane.usage();
        if usage.segments_used == usage.segments && lane.segment().is_none() {
            drain_one(&lane, &self.log)?;
            self.log.complete_at(lane.usage().head)?;
        }
        Ok(Head::Resident(Resident::new(lane)))
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

    /// Removes what no manifest names and notes the session in the manifest, at which the index is complete below `watermark`.
    fn note(&self, epoch: u32, large_next: u64, watermark: Lsn) -> Result<(), StoreError> {
        let dead: Vec<_> = self
            .unnamed
            .iter()
            .filter(|file| file.is_dead(&self.state, watermark))
            .cloned()
            .collect();
        self.log.unlink_dead(&dead);
        // Behind this no power cut brings one of them back.
        self.log.unlinked_for_good()?;
        let left = self.log.left_over();

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
            state.retired = Some(left);
            state.indexed_to = watermark;
        })
    }
}

impl Shared {
    fn run_drain(&self) {
        if let Head::Pool(lane) = &self.head {
            drain(lane, &self.log, &self.drain_order, &self.background.stop);
        }
    }

    /// Tells those who wait for a thread that it panicked.
    fn report_panic(&self, name: &str) {
        let reason = format!("the thread {name} panicked; the standard error output has more");
        match (&self.head, name) {
            (_, "forebay-gc") => self.collector.release_writers(),
            (Head::Pool(lane), "forebay-drain") => lane.set_stalled(reason),
            _ => self.set_index_trouble(Some(reason)),
        }
    }

    /// Removes the large values that were written since the last opening and whose record was never appended.
    fn remove_unreferenced_large(&self, from: u64) -> Result<(), StoreError> {
        let mut buffer = Vec::new();
        for id in self.large.ids()?.into_iter().filter(|&id| id >= from) {
            let referenced = match self.large.key_of(id) {
                Ok(key) => match self.leads_to(&key, id, &mut buffer) {
                    // Whoever reads the key will be told.
                    Err(StoreError::Damaged { .. }) => true,
                    found => found?,
                },
                // A header that is damaged, rather than never written, may be an acknowledged value's: its file stays.
                Err(StoreError::Damaged { .. }) => !self.large.never_written(id)?,
                Err(e) => return Err(e),
            };
            match referenced {
                true => {}
                // What led to it may be among what was given up.
                false if self.options.salvage => {
                    self.given_up.set_aside(&*self.disk, &self.large.path(id))?;
                }
                false => self.large.remove(id)?,
            }
        }
        Ok(())
    }
}
