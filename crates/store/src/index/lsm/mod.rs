//! The index itself: ingestion and publication; `opening`, and `merging` of its runs.
//!
//! # Why only the tables of lsm-tree
//! Everything above the tables is ours: the list of runs is the [manifest](super::manifest), the
//! present state is one shared pointer. A snapshot is a copy of that pointer: it costs no I/O,
//! waits for nothing but a pointer swap, and keeps its tables readable for as long as it lives.
//! There are no sequence numbers and no watermarks of open snapshots to keep track of. The `Tree`
//! of lsm-tree itself syncs its version file under the lock that readers take, and has the limits
//! that [manifest](super::manifest) names.
//!
//! # Ingestion, in order
//! 1. The run is written into new tables; each is synced, then its directory.
//! 2. `commit` is locked. The manifest with the new run in front and the new watermark is written
//!    to a temporary file, synced, renamed, and the directory is synced. This is the commit point.
//! 3. The new view is published and `commit` unlocked.
//!
//! A crash before 2 leaves tables that no manifest names; opening removes them. An error before 2
//! removes them at once. A compaction commits in the same way, with its inputs replaced by its
//! output.
//!
//! # Locks, in the order they are taken
//! `merges` (a compaction step holds it throughout) → `commit` (manifest writes; held across syncs)
//! → `published` (held for a pointer copy or swap only) or `retired`. Readers take `published`
//! only.
//!
//! # Memory
//! The block cache (`cache_bytes`), and outside of it what tables with whole filters and block
//! indexes keep in memory. For small keys that is some 1.4 bytes for each entry (filter 1.25,
//! indexes 0.15), more for long keys, one of which is kept for each block. When `pinned_bytes`
//! would be exceeded the oldest run is written with both in parts, which the block cache holds as
//! it does data.
//!
//! # Not its business
//! Two processes on one directory: the store holds the lock.
use super::{
    IndexCause, IndexError, IndexStats, RecordAddress, ValueCache, ValueForm,
    dead_stretch::StretchFinder,
    manifest::IndexManifest,
    merge::Merge,
    policy,
    run::TableRun,
    table::TableFile,
    view::IndexView,
    writer::{NewTables, RunWriter, TableMaker},
};
use crate::{keyspace::KeyspaceCatalogue, range_tombstones::RangeTombstone};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashSet,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

mod clearing;
mod copying;
mod merging;
mod opening;

pub(crate) use copying::NamedTable;

const MERGING_ALL: &str = "merging all runs";

/// Options to open an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOptions {
    /// Make a new index if the directory is missing or empty.
    pub create: bool,
    /// Capacity of the block cache, bytes.
    pub cache_bytes: u64,
    /// Memory that whole filters and block indexes may take before the oldest run's are cached in
    /// parts, bytes. Takes effect when tables are written.
    pub pinned_bytes: u64,
    /// Size at which a table of new entries is closed and the next begun, bytes. Large merges make
    /// larger ones, up to 32 times as large: one file is open for each table.
    pub table_bytes: u64,
    /// Length of the prefixes of which new tables have a filter, bytes of a user's key; 0: none.
    pub prefix_bytes: usize,
}

impl Default for IndexOptions {
    /// Creates; 64 MiB of cache, 256 MiB pinned (some 170 million entries), tables of 32 MiB.
    fn default() -> Self {
        Self {
            create: true,
            cache_bytes: 64 << 20,
            pinned_bytes: 256 << 20,
            table_bytes: 32 << 20,
            prefix_bytes: 0,
        }
    }
}

/// A merge of all runs that was asked for.
pub(crate) struct MergeOfAll {
    installed: Arc<AtomicBool>,
    /// Bytes of its inputs.
    pub(crate) bytes: u64,
}

/// The progress of a merge of all runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeState {
    /// So many bytes are written, or taken over.
    UnderWay(u64),
    /// Its output is in the place of its inputs.
    Installed,
    /// It was given up, by an error of another thread or for want of room: the inputs are there.
    GivenUp,
}

/// Keys and addresses in sorted tables on disk, in lsm-tree's format.
pub struct Index {
    maker: TableMaker,
    pinned_bytes: u64,
    /// Merges under way, each of newer runs than the one before it. Only the last is worked on:
    /// newer and smaller merges go first, so a large one does not hold up what keeps lookups short.
    merges: Mutex<Vec<Merge>>,
    /// Held while the manifest and with it the view is replaced.
    commit: Mutex<()>,
    /// The present state.
    published: RwLock<Arc<IndexView>>,
    /// Tables that are in no manifest any more; unlinked once no view holds them.
    retired: Mutex<Vec<Arc<TableFile>>>,
    /// Tables that the manifest did not name.
    leftovers: Mutex<Vec<u64>>,
}

impl Index {
    /// A cache of the log's values in the memory of the block cache.
    pub(crate) fn values(&self) -> ValueCache {
        ValueCache::new(Arc::clone(&self.maker.cache))
    }

    /// The store's keyspaces. Of those that were dropped no entry comes into a new table.
    pub(crate) fn keyspaces(&self) -> &Arc<KeyspaceCatalogue> {
        &self.maker.keyspaces
    }

    /// A writer of a run that no manifest will name.
    #[cfg(test)]
    pub(super) fn test_writer(&self) -> RunWriter {
        RunWriter::new(self.maker.clone(), false, "a test")
    }

    /// Ingests the keys of records at `lsn`, and deleted ranges, up to behind it.
    #[cfg(test)]
    pub(super) fn test_ingest(
        &self,
        keys: std::ops::Range<u32>,
        ranges: &[RangeTombstone],
        lsn: u64,
    ) {
        let keys: Vec<_> = keys.map(u32::to_be_bytes).collect();
        let mut entries = keys.iter().map(|key| (&key[..], RecordAddress::at(lsn)));
        let done = self.ingest_with(&mut entries, ranges.to_vec(), lsn + 1);
        assert!(done.is_ok(), "{:?}", done.err());
    }

    fn view(&self) -> Arc<IndexView> {
        Arc::clone(&self.published.read())
    }

    /// Writes the manifest for what `change` makes of the present view, and publishes that.
    /// Fails without effect; `new` is then unlinked.
    fn commit(
        &self,
        new: NewTables,
        change: impl FnOnce(&IndexView) -> Result<IndexView, IndexError>,
    ) -> Result<(), IndexError> {
        let _commit = self.commit.lock();
        let view = change(&self.view())?.settled();
        let manifest = IndexManifest::of(&view, self.maker.next_id.load(Ordering::Relaxed));
        forebay_pool::failpoint!("store:ingest-commit");
        if let Err(failure) = manifest.write(&self.maker.dir) {
            if failure.may_count {
                // After a crash this manifest may be the one in force: its tables must be there. If
                // it is not, they are leftovers.
                new.keep();
            }
            return Err(failure.error);
        }
        new.keep();
        let before = std::mem::replace(&mut *self.published.write(), Arc::new(view));
        let kept: HashSet<u64> = self.view().tables().map(|table| table.facts().id).collect();
        let gone = before
            .tables()
            .filter(|table| !kept.contains(&table.facts().id));
        self.retired.lock().extend(gone.cloned());
        Ok(())
    }

    /// Unlinks retired tables that no snapshot holds. Snapshots only ever drop a reference, so that
    /// no reader pays for the removal of a file.
    fn sweep(&self) {
        self.retired.lock().retain(|table| {
            let held = Arc::strong_count(table) > 1;
            if !held {
                // A file that cannot be unlinked now is a leftover at the next open.
                let _ = table.unlink();
            }
            held
        });
    }
}

impl Index {
    /// Makes a sorted run of keys part of the index, durably and as one step, together with the
    /// `watermark` up to which the log is then covered.
    ///
    /// `run` yields strictly ascending keys, tombstones included; it may be empty (the watermark
    /// still moves). A tombstone of a key that no table has is left out. Keys are 1 to
    /// [`KEY_BYTES_MAX`] bytes long. After a crash either all of it is there or nothing. One
    /// ingestion runs at a time; compaction may run beside it.
    ///
    /// # Errors
    /// I/O errors, a run or watermark that breaks these rules. The index then is as it was before,
    /// the space is given back, and the ingestion can be tried again.
    pub fn ingest(
        &self,
        run: &mut dyn Iterator<Item = (&[u8], RecordAddress)>,
        watermark: u64,
    ) -> Result<(), IndexError> {
        self.ingest_with(run, Vec::new(), watermark)
    }

    /// The same, with the ranges that were deleted below the watermark since the last ingestion.
    /// What they hide, also of the run, is not found from then on. They may be told again.
    ///
    /// # Errors
    /// As for [`ingest`](Self::ingest).
    pub(crate) fn ingest_with(
        &self,
        run: &mut dyn Iterator<Item = (&[u8], RecordAddress)>,
        ranges: Vec<RangeTombstone>,
        watermark: u64,
    ) -> Result<(), IndexError> {
        self.ingest_in_stretches(run, ranges, watermark, u64::MAX)
    }

    /// The same, with deleted ranges in the place of tombstones where so many keys of older tables
    /// are dead in a row. The tables do not tell of these keys any more: who looks one up asks what
    /// is [deleted](IndexView::deleted).
    ///
    /// # Errors
    /// As for [`ingest`](Self::ingest).
    pub(crate) fn ingest_in_stretches(
        &self,
        run: &mut dyn Iterator<Item = (&[u8], RecordAddress)>,
        mut ranges: Vec<RangeTombstone>,
        watermark: u64,
        dead_min: u64,
    ) -> Result<(), IndexError> {
        const DOING: &str = "ingesting a run";
        self.sweep();
        let maker = TableMaker {
            known: watermark,
            ..self.maker.clone()
        };
        let mut writer = RunWriter::new(maker, false, DOING);
        // Merges that go on beside take keys away and add none.
        let older = self.view();
        let deleted = older.with_deleted(&ranges);
        let mut finder = StretchFinder::new(&older, &deleted, watermark, dead_min);
        for (key, address) in run {
            let is_hidden = !deleted.is_empty() && deleted.hides(key, address.lsn);
            if is_hidden || self.maker.keyspaces.is_dead(key) {
                continue;
            }
            // A tombstone that hides nothing is none.
            if address.form != ValueForm::Tombstone || older.may_hold(key) {
                finder.add(key, address, &mut writer)?;
            }
        }
        ranges.append(&mut finder.finish(&mut writer)?);
        drop((older, deleted));
        let new = writer.finish()?;
        let run = TableRun::new(self.maker.dir.path(), new.tables.clone())?;
        self.commit(new, |view| {
            if watermark < view.watermark {
                let what = format!(
                    "a watermark of {watermark}, below the present {}",
                    view.watermark
                );
                return Err(failed(
                    self.maker.dir.path(),
                    DOING,
                    IndexCause::Invalid(what),
                ));
            }
            let runs = run.into_iter().chain(view.runs.iter().cloned()).collect();
            Ok(IndexView {
                runs,
                watermark,
                deleted: view.with_deleted(&ranges),
                passed: Arc::clone(&view.passed),
            })
        })
    }

    /// The watermark that the tables on disk themselves state: the log below it is covered.
    pub fn watermark(&self) -> u64 {
        self.view().watermark
    }

    /// The present state of the tables. It does not change under its holder and costs no I/O.
    pub fn snapshot(&self) -> Arc<IndexView> {
        self.view()
    }

    /// Does one step of compaction, about the writing of one table; true if there is more to do.
    ///
    /// # Errors
    /// I/O errors and damaged tables; the index stays as it was. What was to be merged is merged
    /// anew at a later call.
    pub fn compact(&self) -> Result<bool, IndexError> {
        self.compact_within(u64::MAX)
    }

    /// As [`compact`](Self::compact), but begins no merge of more than `room` bytes: its output
    /// stands beside its inputs until it is done.
    ///
    /// # Errors
    /// As [`compact`](Self::compact).
    pub(crate) fn compact_within(&self, room: u64) -> Result<bool, IndexError> {
        self.sweep();
        let mut merges = self.merges.lock();
        let view = self.view();
        let view = self.without_hidden_tables(view, &mut merges)?;
        let due = self.due(&view, &merges, room);
        if due > 0 {
            if due == view.runs.len() {
                view.passed.begin_merge();
            }
            merges.push(self.begin(&view, 0..due));
        } else if let Some(run) = self.to_clear(&view, &merges, room)? {
            merges.push(self.begin(&view, run..run + 1));
        }
        // An old view must not outlive its use here: it holds files that are to be unlinked.
        drop(view);
        self.step(&mut merges)?;
        let view = self.view();
        Ok(!merges.is_empty()
            || self.due(&view, &merges, room) > 0
            || self.to_clear(&view, &merges, room)?.is_some())
    }

    /// True if a merge is called for, and none of no more than `room` bytes.
    pub(crate) fn lacks(&self, room: u64) -> bool {
        let (merges, view) = (self.merges.lock(), self.view());
        self.due(&view, &merges, room) == 0 && self.due(&view, &merges, u64::MAX) > 0
    }

    /// Tombstones that scans have passed over since the index was opened.
    pub(crate) fn passed_tombstones(&self) -> u64 {
        self.view().passed.all()
    }

    /// True if scans have passed over as many tombstones as there are entries since the last merge
    /// of all: [`compact`](Self::compact) would merge them away.
    pub fn is_passed_over(&self) -> bool {
        let view = self.view();
        let passed = view.passed.since_merge();
        passed > 0 && { policy::is_dense(view.entries().0, view.dead_entries(), passed) }
    }

    /// Merges all tables there are into one sorted run, without tombstones or replaced entries.
    ///
    /// # Errors
    /// As for [`compact`](Self::compact).
    pub fn merge_all(&self) -> Result<(), IndexError> {
        let merge = self.begin_merge_of_all(u64::MAX)?;
        loop {
            match self.step_of_all(&merge)? {
                MergeState::UnderWay(_) => {}
                MergeState::Installed => return Ok(()),
                MergeState::GivenUp => return Err(self.given_up()),
            }
        }
    }

    /// The error of a merge that was given up.
    pub(crate) fn given_up(&self) -> IndexError {
        let what = "the merge of all its runs was given up; what it has is as it was. Try again";
        let what = IndexCause::Invalid(what.to_owned());
        failed(self.maker.dir.path(), MERGING_ALL, what)
    }

    /// Begins a merge of all runs in the place of those under way, if there is anything to leave
    /// out.
    ///
    /// # Errors
    /// If it may write more than `room` bytes, a full disk's: nothing is begun then, nor given up.
    /// As for [`compact`](Self::compact).
    pub(crate) fn begin_merge_of_all(&self, room: u64) -> Result<MergeOfAll, IndexError> {
        let mut merges = self.merges.lock();
        let view = self.without_hidden_tables(self.view(), &mut merges)?;
        let has_dead = view.dead_entries() > 0 || !view.deleted.is_empty();
        let has_dropped = !self.maker.keyspaces.dropped().is_empty();
        if view.runs.len() <= 1 && !has_dead && !has_dropped {
            merges.clear();
            return Ok(MergeOfAll {
                installed: Arc::new(AtomicBool::new(true)),
                bytes: 0,
            });
        }
        let mut merge = self.begin(&view, 0..view.runs.len());
        let bytes = merge.rest_bytes();
        if bytes > room {
            let what = format!(
                "no room: what is merged stands beside the index until it is done, which takes up \
                 to {bytes} bytes, and {room} may be used. Make room, and try again"
            );
            let what = IndexCause::Io(io::Error::new(io::ErrorKind::StorageFull, what));
            return Err(failed(self.maker.dir.path(), MERGING_ALL, what));
        }
        view.passed.begin_merge();
        let installed = Arc::new(AtomicBool::new(false));
        merge.asked_for = Some(Arc::clone(&installed));
        // Of what these have half done, all is read again.
        merges.clear();
        merges.push(merge);
        let bytes = view.runs.iter().map(|run| run.bytes()).sum();
        Ok(MergeOfAll { installed, bytes })
    }

    /// Does a step of the merges under way, for this one; how far it is then. Another thread may
    /// have done the last one.
    ///
    /// # Errors
    /// As for [`compact`](Self::compact).
    pub(crate) fn step_of_all(&self, of_all: &MergeOfAll) -> Result<MergeState, IndexError> {
        let mut merges = self.merges.lock();
        let installed = || of_all.installed.load(Ordering::Relaxed);
        if !installed() {
            self.step(&mut merges)?;
        }
        let is_it = |merge: &&Merge| {
            let asked_for = merge.asked_for.as_ref();
            asked_for.is_some_and(|flag| Arc::ptr_eq(flag, &of_all.installed))
        };
        Ok(match merges.iter().find(is_it) {
            _ if installed() => MergeState::Installed,
            Some(merge) => MergeState::UnderWay(merge.done_bytes()),
            None => MergeState::GivenUp,
        })
    }

    /// Gives up the merges under way. What they have written is unlinked now, while the directory
    /// is the caller's: another who opens the index may give its tables the same numbers.
    pub(crate) fn give_up_merges(&self) {
        self.merges.lock().clear();
    }

    /// Sizes and counts for `stats`.
    pub fn stats(&self) -> IndexStats {
        let view = self.view();
        let mut stats = IndexStats {
            runs: view.runs.len() as u64,
            memory_bytes: self.maker.cache.size(),
            ..IndexStats::default()
        };
        for table in view.tables() {
            stats.tables += 1;
            stats.disk_bytes += table.facts().bytes;
            stats.entries += table.entries();
            stats.tombstones += table.tombstones();
            stats.memory_bytes += table.pinned_bytes();
        }
        stats.deleted_ranges = view.deleted.len() as u64;
        stats
    }

    /// Reads every table whole and checks its checksums and order.
    ///
    /// # Errors
    /// The first table that is damaged, named.
    pub fn verify(&self) -> Result<(), IndexError> {
        let view = self.view();
        if IndexManifest::read(&self.maker.dir)?.is_none() {
            let found = IndexCause::Corrupt("the manifest is missing".into());
            return Err(failed(self.maker.dir.path(), "verifying the index", found));
        }
        view.tables().try_for_each(|table| table.verify())
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        // In a forked child the tables, and a lock that another thread held, are the parent's.
        if self.maker.dir.is_own() {
            self.sweep();
        }
    }
}

fn failed(path: &Path, doing: &'static str, cause: IndexCause) -> IndexError {
    IndexError {
        path: path.to_owned(),
        doing,
        cause,
    }
}
