//! [`Snapshot`]: the store as of one moment.
//!
//! A [`SnapshotMoment`] is the log address that was the tail when it was taken: it sees what lies
//! below in the log, and nothing behind. Taking one freezes and copies nothing, and keeps no writer
//! waiting. Snapshots with nothing written between them share one:
//!
//! 1. It gets its number, before which no file is retired for good. From now on writers keep every
//!    version that they replace.
//! 2. The tail is read. Who appends behind it has found 1 to be so when it inserts.
//! 3. Each stripe that is locked is waited for: who appended before the tail holds its stripe until
//!    it has inserted.
//! 4. From now on writers keep versions below the highest open moment only.
//!
//! What a moment sees is kept as follows, so that it costs memory within the memtable's budget
//! only:
//!
//! 1. A write that replaces an address below the highest open moment ([`Snapshots::keep_below`])
//!    leaves it in the chunk as an older version, which counts towards the chunk's being full.
//! 2. When a chunk goes into the tables, it goes in steps, one for each open moment within it:
//!    first what that moment sees, then what was written behind it (`indexer`). After its step a
//!    moment reads from the tables of then instead of the chunk ([`SnapshotMoment::leave`]), which
//!    takes space on the disk until it is dropped, and no memory.
//!
//! Value-log files that it may lead to are unlinked only after it is dropped: those that begin
//! below its tail. What was begun behind that holds nothing that it sees, not even what the
//! collector copied there: it sees the original.

use super::{Store, StoreCore, Value};
use crate::{
    error::StoreError,
    index::{IndexError, IndexView, RecordAddress},
    keyspace::{KeyRoom, KeyspaceId, LiveKeyspace},
    memtable::{Chunk, ReadView},
};
use arc_swap::ArcSwap;
use forebay_pool::{Lsn, media::ProcessMark};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
};

/// Moments that are open at most: each costs the ingestion of its chunk a table.
const MOMENTS_MAX: usize = 1000;

/// The snapshots that are open, by the order in which they were taken.
pub(super) struct Snapshots {
    /// Whose they are: a forked child drops its copies, and none of these.
    process: ProcessMark,
    open: Mutex<OpenMoments>,
    /// Versions below are seen by an open moment: the highest one's limit; or by one that is being
    /// taken: all.
    keep_below: AtomicU64,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self {
            process: ProcessMark::take(),
            open: Mutex::default(),
            keep_below: AtomicU64::new(0),
        }
    }
}

#[derive(Default)]
struct OpenMoments {
    taken: u64,
    /// The number of one that is being taken: what it will see is kept as if it were open.
    taking: Option<u64>,
    /// By number; limits rise with them.
    moments: BTreeMap<u64, MomentHold>,
}

/// What an open moment keeps.
struct MomentHold {
    /// Versions below.
    limit: Lsn,
    /// Large values with lower numbers: those of later versions have this one or a higher.
    large_below: u64,
    moment: Weak<SnapshotMoment>,
}

impl Snapshots {
    /// A number that is higher than that of every snapshot taken so far.
    pub(super) fn next_number(&self) -> u64 {
        self.open.lock().taken + 1
    }

    /// True if no snapshot with a lower number than `number` is open that sees anything of the log
    /// from `start` on.
    pub(super) fn none_sees(&self, number: u64, start: Lsn) -> bool {
        self.none_keeps(number, |kept| kept.limit > start)
    }

    /// The same for large value `id`.
    pub(super) fn none_sees_large(&self, number: u64, id: u64) -> bool {
        self.none_keeps(number, |kept| kept.large_below > id)
    }

    fn none_keeps(&self, number: u64, keeps: impl Fn(&MomentHold) -> bool) -> bool {
        let open = self.open.lock();
        let is_taken = open.taking.is_some_and(|taking| taking < number);
        // What an earlier one keeps the last one keeps, too.
        let last = open.moments.range(..number).next_back();
        !is_taken && last.is_none_or(|(_, kept)| !keeps(kept))
    }

    /// The log address below which a writer that has appended keeps the versions that it replaces.
    #[inline]
    pub(super) fn keep_below(&self) -> Lsn {
        // Between the reservation of its place in the log and this load: on x86-64 the reservation
        // is a barrier itself.
        #[cfg(not(target_arch = "x86_64"))]
        fence(SeqCst);
        self.keep_below.load(Relaxed)
    }

    /// The open moments, the earliest first.
    pub(super) fn moments(&self) -> Vec<Arc<SnapshotMoment>> {
        let open = self.open.lock();
        let moments = open.moments.values();
        moments.filter_map(|kept| kept.moment.upgrade()).collect()
    }

    /// Step 1; step 4 when it is dropped. The caller holds `view_change`, so there is one at a
    /// time.
    fn begin(&self) -> TakingMoment<'_> {
        {
            let mut open = self.open.lock();
            open.taken += 1;
            open.taking = Some(open.taken);
        }
        self.keep_below.store(Lsn::MAX, SeqCst);
        fence(SeqCst);
        TakingMoment(self)
    }

    /// Lets writers keep what the open moments see.
    fn keep_what_is_seen(&self, open: &OpenMoments) {
        if open.taking.is_none() {
            let highest = open.moments.last_key_value();
            let limit = highest.map_or(0, |(_, kept)| kept.limit);
            self.keep_below.store(limit, Relaxed);
        }
    }

    /// Opens a moment at `limit`, with the present view, while one is being taken. It sees large
    /// values with numbers below `large_below`.
    fn open(
        self: &Arc<Self>,
        limit: Lsn,
        large_below: u64,
        view: Arc<ReadView>,
    ) -> Result<Arc<SnapshotMoment>, StoreError> {
        let mut open = self.open.lock();
        let last = open.moments.last_key_value();
        if let Some((_, last)) = last
            && last.limit == limit
            && let Some(moment) = last.moment.upgrade()
        {
            return Ok(moment);
        }
        if open.moments.len() >= MOMENTS_MAX {
            return Err(StoreError::TooManySnapshots {
                open: open.moments.len(),
            });
        }
        let number = open.taken;
        let moment = Arc::new(SnapshotMoment {
            number,
            limit,
            view: ArcSwap::new(view),
            snapshots: Arc::clone(self),
        });
        let kept = MomentHold {
            limit,
            large_below,
            moment: Arc::downgrade(&moment),
        };
        open.moments.insert(number, kept);
        Ok(moment)
    }
}

/// A moment is being taken.
struct TakingMoment<'a>(&'a Snapshots);

impl Drop for TakingMoment<'_> {
    fn drop(&mut self) {
        let mut open = self.0.open.lock();
        open.taking = None;
        self.0.keep_what_is_seen(&open);
    }
}

/// The moment that a snapshot sees.
pub(super) struct SnapshotMoment {
    number: u64,
    /// Versions below this log address.
    limit: Lsn,
    /// Where it sees them: replaced by one with fewer chunks, and the tables that these went into.
    view: ArcSwap<ReadView>,
    snapshots: Arc<Snapshots>,
}

impl SnapshotMoment {
    pub(super) fn limit(&self) -> Lsn {
        self.limit
    }

    pub(super) fn view(&self) -> Arc<ReadView> {
        self.view.load_full()
    }

    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Result<Option<RecordAddress>, IndexError> {
        self.view.load().find_below(hash, key, self.limit)
    }

    /// True if it reads from one of these chunks.
    pub(super) fn reads(&self, chunks: &[Arc<Chunk>]) -> bool {
        self.view.load().chunks().any(|c| is_among(chunks, c))
    }

    /// Reads from `tables`, which have all that the moment sees in `chunks`, instead of from these.
    pub(super) fn leave(&self, chunks: &[Arc<Chunk>], tables: Arc<IndexView>) {
        let view = self.view.load();
        let others = |c: &&Arc<Chunk>| !is_among(chunks, c);
        // What of it is hidden in these tables was left out, and so were tombstones in the place of
        // which there is a range: of what had gone into the tables by then, which the moment sees.
        let mut deleted = view.deleted.as_deref().cloned().unwrap_or_default();
        let of_tables = tables
            .deleted()
            .iter()
            .filter(|range| range.lsn < self.limit);
        of_tables.for_each(|range| deleted.add(range.clone()));
        self.view.store(Arc::new(ReadView {
            active: view.active.as_ref().filter(others).cloned(),
            frozen: view.frozen.iter().filter(others).cloned().collect(),
            tables,
            deleted: (!deleted.is_empty()).then(|| Arc::new(deleted)),
        }));
    }
}

/// True if it is one of them.
pub(super) fn is_among(chunks: &[Arc<Chunk>], chunk: &Arc<Chunk>) -> bool {
    chunks.iter().any(|other| Arc::ptr_eq(other, chunk))
}

impl Drop for SnapshotMoment {
    fn drop(&mut self) {
        if !self.snapshots.process.is_here() {
            return;
        }
        let mut open = self.snapshots.open.lock();
        open.moments.remove(&self.number);
        self.snapshots.keep_what_is_seen(&open);
    }
}

/// A view of the store that does not change. Space that is dead by now but alive in it is kept
/// until it is dropped.
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<StoreCore>,
    moment: Arc<SnapshotMoment>,
    /// When it was taken: what expires later is there.
    time: u64,
    /// Of which it shows the keys; `None` for the default one.
    keyspace: Option<Arc<LiveKeyspace>>,
}

impl Store {
    /// The store as of now: every write acknowledged before, and none that begins later.
    ///
    /// # Errors
    /// [`StoreError::TooManySnapshots`].
    ///
    /// ```
    /// use forebay_store::ScanRange;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put(b"boat", b"blue")?;
    /// let before = store.snapshot()?;
    /// store.delete(b"boat")?;
    /// assert_eq!(before.get(b"boat")?.as_deref(), Some(&b"blue"[..]));
    /// assert_eq!(before.scan(ScanRange::all())?.count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Snapshot::new(&self.shared)
    }
}

impl Snapshot {
    pub(super) fn new(shared: &Arc<StoreCore>) -> Result<Self, StoreError> {
        shared.check_process()?;
        let moment = {
            // Against an ingestion, which tells those that are open then to read from the tables.
            let _changing = shared.view_change.lock();
            let _taking = shared.snapshots.begin();
            let limit = shared.tail.tail();
            // After that: a value gets its number before its record is appended.
            let large_below = shared.large.next_id();
            for stripe in shared.locks.stripes() {
                if stripe.is_locked() {
                    drop(stripe.lock());
                }
            }
            // What was inserted under those that were not locked any more is seen from now on.
            fence(SeqCst);
            shared
                .snapshots
                .open(limit, large_below, shared.view.load_full())?
        };
        Ok(Self {
            shared: Arc::clone(shared),
            moment,
            time: shared.options.clock.now(),
            keyspace: None,
        })
    }

    /// The same moment of this keyspace.
    pub(super) fn of(&self, keyspace: Arc<LiveKeyspace>) -> Self {
        Self {
            keyspace: Some(keyspace),
            ..self.clone()
        }
    }

    /// The same moment of the default one.
    pub(super) fn of_default(&self) -> Self {
        Self {
            keyspace: None,
            ..self.clone()
        }
    }

    /// The number of the keyspace whose keys it shows; refused if that was dropped.
    pub(super) fn keyspace_id(&self) -> Result<KeyspaceId, StoreError> {
        if let Some(keyspace) = &self.keyspace {
            keyspace.check()?;
        }
        Ok(self.keyspace_number())
    }

    /// The same, also if it was dropped: who reads with it finds that out.
    pub(super) fn keyspace_number(&self) -> KeyspaceId {
        let keyspace = self.keyspace.as_ref();
        keyspace.map_or(KeyspaceId::DEFAULT, |keyspace| keyspace.id())
    }

    /// True of what expires then, or never, as of the snapshot.
    pub(super) fn is_alive(&self, expiry: Option<u64>) -> bool {
        expiry.is_none_or(|expiry| self.time < expiry)
    }

    /// The same, as if it had been taken then.
    pub(super) fn at(self, time: u64) -> Self {
        Self { time, ..self }
    }

    /// Time at which it was taken.
    pub(super) fn time(&self) -> u64 {
        self.time
    }

    pub(super) fn shared(&self) -> &StoreCore {
        &self.shared
    }

    pub(super) fn view(&self) -> &SnapshotMoment {
        &self.moment
    }

    /// The key's value as of the snapshot.
    ///
    /// # Errors
    /// I/O errors and damage.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let before = store.snapshot()?;
    /// store.put("boat", "red")?;
    /// assert_eq!(before.get("boat")?.as_deref(), Some(&b"blue"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<Option<Value>, StoreError> {
        let (id, mut room) = (self.keyspace_id()?, KeyRoom::new());
        let key = id.stored(key.as_ref(), &mut room);
        let found = self.shared.get_in(&self.moment, key)?;
        Ok(found.filter(|value| self.is_alive(value.expiry())))
    }

    /// As [`Store::contains_key`], as of the snapshot.
    ///
    /// # Errors
    /// I/O errors and damage of the index.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let before = store.snapshot()?;
    /// store.put("boat", "red")?;
    /// store.delete("boat")?;
    /// assert!(before.contains_key("boat")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn contains_key(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool, StoreError> {
        let (id, mut room) = (self.keyspace_id()?, KeyRoom::new());
        let key = id.stored(key.as_ref(), &mut room);
        self.shared.contains_in(&self.moment, key, self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::Snapshots;
    use crate::{Durability, StoreOptions};
    use std::{
        sync::{Arc, mpsc},
        thread,
        time::Duration,
    };

    #[test]
    fn a_file_retired_while_a_snapshot_is_taken_is_kept_for_it() {
        let snapshots = Arc::new(Snapshots::default());
        let before = snapshots.next_number();
        let taking = snapshots.begin();
        // A file whose records were written again behind the tail that the snapshot has read.
        let retired = snapshots.next_number();
        assert!(!snapshots.none_sees(retired, 0));
        assert!(snapshots.none_sees(before, 0));
        drop(taking);
        assert!(snapshots.none_sees(retired, 0));
    }

    #[test]
    fn a_moment_keeps_what_begins_below_its_tail_alone() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().durability(Durability::NoSync);
        let store = options.open(dir.path().join("store"), None).unwrap();
        let (snapshots, large) = (&store.shared.snapshots, &store.shared.large);
        store.put(b"key", b"value").unwrap();
        let snapshot = store.snapshot().unwrap();
        let limit = snapshot.moment.limit();
        store.put(b"key", b"another").unwrap();
        let retired = snapshots.next_number();
        assert!(!snapshots.none_sees(retired, limit - 1) && snapshots.none_sees(retired, limit));
        assert!(!snapshots.none_sees_large(retired, large.next_id() - 1));
        assert!(snapshots.none_sees_large(retired, large.next_id()));
    }

    /// Promise (store): A snapshot or a scan keeps no writer waiting.
    #[test]
    fn a_snapshot_that_waits_for_one_writer_keeps_no_other_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().durability(Durability::NoSync);
        let store = options.open(dir.path().join("store"), None).unwrap();
        let (held, other) = (1_u32, 2_u32);
        let key = |i: u32| i.to_be_bytes();
        store.put(&key(held), b"before").unwrap();
        // As a writer that lost its processor between its append and its insert.
        let writer = store.shared.locks.stripe().lock();
        thread::scope(|scope| {
            let snapshot = scope.spawn(|| store.snapshot().unwrap());
            while store.shared.snapshots.open.lock().taking.is_none() {
                thread::yield_now();
            }
            let (done, is_done) = mpsc::channel();
            let (store, key) = (&store, &key);
            scope.spawn(move || done.send(store.put(&key(other), b"meanwhile")));
            let put = is_done.recv_timeout(Duration::from_secs(60));
            assert!(!snapshot.is_finished());
            drop(writer);
            put.expect("the put waits for the snapshot").unwrap();
            let snapshot = snapshot.join().unwrap();
            assert_eq!(&*snapshot.get(&key(held)).unwrap().unwrap(), b"before");
            assert!(snapshot.get(&key(other)).unwrap().is_none());
        });
        let settled = store.shared.snapshots.keep_below();
        assert_eq!(settled, 0, "versions are kept though no snapshot is open");
    }
}
