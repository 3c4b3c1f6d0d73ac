//! The index itself: opening, ingestion, publication, compaction.
//!
//! # Why only the tables of lsm-tree
//! Everything above the tables is ours: the list of runs is the [manifest](super::manifest), the
//! present state is one shared pointer. A snapshot is a copy of that pointer, so it costs no I/O, waits
//! for nothing but a pointer swap, and keeps its tables readable for as long as it lives; there are no sequence
//! numbers and no watermarks of open snapshots to keep track of. lsm-tree's own `Tree` syncs its version
//! file under the lock that readers take, and has the limits that [manifest](super::manifest) names.
//!
//! # Ingestion, in order
//! 1. The run is written into new tables; each is synced, then its directory.
//! 2. `commit` is locked. The manifest with the new run in front and the new watermark is written to a
//!    temporary file, synced, renamed, and the directory is synced. This is the commit point.
//! 3. The new view is published and `commit` unlocked.
//!
//! A crash before 2 leaves tables that no manifest names; opening removes them. An error before 2 removes
//! them at once. A compaction commits in the same way, with its inputs replaced by its output.
//!
//! # Locks, in the order they are taken
//! `merges` (a compaction step holds it throughout) → `commit` (manifest writes; held across syncs) →
//! `published` (held for a pointer copy or swap only) or `retired`. Readers take `published` only.
//!
//! # Memory
//! The block cache (`cache_bytes`), and outside of it what tables with whole filters and block indexes keep
//! in memory: for small keys some 1.4 bytes for each entry (filter 1.25, indexes 0.15; more for long
//! keys, one of which is kept for each block). When `pinned_bytes` would be exceeded the oldest run is
//! written with both in parts, which the block cache holds as it does data.
//!
//! # Not its business
//! Two processes on one directory: the store holds the lock.
use super::{
    Address, Form, Index, IndexCause, IndexError, IndexSnapshot, IndexStats, ValueCache,
    manifest::{self, Manifest},
    merge::Merge,
    policy,
    run::Run,
    table::{self, TableFile},
    view::View,
    writer::{NewTables, RunWriter, TableMaker},
};
use lsm_tree::Cache;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Memory for whole filters and block indexes that an entry is estimated to take, in tenths of a byte.
const PINNED_PER_ENTRY_TENTHS: u64 = 15;

/// How to open an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOptions {
    /// Make a new index if the directory is missing or empty.
    pub create: bool,
    /// Capacity of the block cache, bytes.
    pub cache_bytes: u64,
    /// How much memory whole filters and block indexes may take before the oldest run's are cached in
    /// parts, bytes. Takes effect when tables are written.
    pub pinned_bytes: u64,
    /// Size at which a table of new entries is closed and the next begun, bytes. Large merges make larger ones, up to 32 times as large:
    /// one file is open for each table.
    pub table_bytes: u64,
}

impl Default for IndexOptions {
    /// Creates; 64 MiB of cache, 256 MiB pinned (some 170 million entries), tables of 32 MiB.
    fn default() -> Self {
        Self {
            create: true,
            cache_bytes: 64 << 20,
            pinned_bytes: 256 << 20,
            table_bytes: 32 << 20,
        }
    }
}

/// [`Index`] over tables in lsm-tree's format.
pub struct LsmIndex {
    maker: TableMaker,
    pinned_bytes: u64,
    /// Merges under way, each of newer runs than the one before it. Only the last is worked on: newer and
    /// smaller merges go first, so a large one does not hold up what keeps lookups short.
    merges: Mutex<Vec<Merge>>,
    /// Held while the manifest and with it the view is replaced.
    commit: Mutex<()>,
    /// The present state.
    published: RwLock<Arc<View>>,
    /// Tables that are in no manifest any more; unlinked once no view holds them.
    retired: Mutex<Vec<Arc<TableFile>>>,
    /// Table files that the manifest did not name.
    leftovers: Mutex<Vec<PathBuf>>,
}

impl LsmIndex {
    /// Opens the index in `dir`, removing what a crash has left unfinished.
    ///
    /// # Errors
    /// I/O errors; no index there and `create` not set; a manifest or table that is missing, foreign or
    /// damaged. Tables are read in part only: [`Index::verify`] reads all.
    pub fn open(dir: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        let index = Self::open_unchanged(dir, options)?;
        index.remove_leftovers();
        Ok(index)
    }

    /// As [`open`](Self::open), but what a crash has left unfinished stays until [`remove_leftovers`](Self::remove_leftovers): whoever
    /// opens it may find that this index is older than those files.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_unchanged(dir: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        let manifest = match Manifest::read(dir)? {
            Some(manifest) => manifest,
            None => create(dir, options.create)?,
        };
        let cache = Arc::new(Cache::with_capacity_bytes(options.cache_bytes));
        let mut runs = Vec::with_capacity(manifest.runs.len());
        let mut named = HashSet::new();
        for facts in &manifest.runs {
            let mut tables = Vec::with_capacity(facts.len());
            for &facts in facts {
                if !named.insert(facts.id) {
                    let found = format!("the manifest names table {} twice", facts.id);
                    return Err(failed(dir, "opening the index", IndexCause::Corrupt(found)));
                }
                tables.push(Arc::new(TableFile::open(dir, facts, &cache)?));
            }
            runs.extend(Run::new(dir, tables)?);
        }
        let mut next_id = manifest.next_id;
        let mut leftovers = Vec::new();
        for (id, path) in table_files(dir)? {
            if !named.contains(&id) {
                leftovers.push(path);
            }
            next_id = next_id.max(id.saturating_add(1));
        }
        let watermark = manifest.watermark;
        Ok(Self {
            maker: TableMaker {
                dir: dir.into(),
                next_id: Arc::new(AtomicU64::new(next_id)),
                cache,
                table_bytes: options.table_bytes,
            },
            pinned_bytes: options.pinned_bytes,
            merges: Mutex::default(),
            commit: Mutex::default(),
            published: RwLock::new(Arc::new(View {
                runs,
                watermark,
                passed: Arc::default(),
            })),
            retired: Mutex::default(),
            leftovers: Mutex::new(leftovers),
        })
    }

    /// Unlinks the tables that no manifest named when the index was opened: what a crash has left. One that cannot be unlinked takes
    /// space and does no harm; its number is not used again.
    pub(crate) fn remove_leftovers(&self) {
        for path in self.leftovers.lock().drain(..) {
            let _ = fs::remove_file(path);
        }
    }

    /// A cache of the log's values in the memory of the block cache.
    pub(crate) fn values(&self) -> ValueCache {
        ValueCache::new(Arc::clone(&self.maker.cache))
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&self.published.read())
    }

    /// Writes the manifest for what `change` makes of the present view, and publishes that.
    /// Fails without effect; `new` is then unlinked.
    fn commit(
        &self,
        new: NewTables,
        change: impl FnOnce(&View) -> Result<View, IndexError>,
    ) -> Result<(), IndexError> {
        let _commit = self.commit.lock();
        let view = change(&self.view())?;
        let manifest = Manifest {
            watermark: view.watermark,
            next_id: self.maker.next_id.load(Ordering::Relaxed),
            runs: view
                .runs
                .iter()
                .map(|run| run.tables().iter().map(|table| table.facts()).collect())
                .collect(),
        };
        forebay_pool::failpoint!("store:ingest-commit");
        if let Err(failure) = manifest.write(&self.maker.dir) {
            if failure.may_count {
                // After a crash this manifest may be the one in force: its tables must be there. If it
                // is not, they are leftovers.
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

    /// Unlinks retired tables that no snapshot holds. Snapshots only ever drop a reference, so that no
    /// reader pays for the removal of a file.
    fn sweep(&self) {
        self.retired.lock().retain(|table| {
            let held = Arc::strong_count(table) > 1;
            if !held {
                // A file that cannot be unlinked now is a leftover at the next open.
                let _ = fs::remove_file(table.path());
            }
            held
        });
    }

    /// Begins a merge of the `width` newest runs of `view`.
    fn begin(&self, view: &View, width: usize) -> Merge {
        let inputs = view.runs[..width].to_vec();
        let oldest = width == view.runs.len();
        let entries: u64 = inputs
            .iter()
            .flat_map(|run| run.tables())
            .map(|table| table.entries())
            .sum();
        let in_parts =
            oldest && entries.saturating_mul(PINNED_PER_ENTRY_TENTHS) / 10 > self.pinned_bytes;
        let bytes = inputs.iter().map(|run| run.bytes()).sum();
        let maker = TableMaker {
            table_bytes: policy::table_bytes(self.maker.table_bytes, bytes, in_parts),
            ..self.maker.clone()
        };
        Merge::new(inputs, oldest, in_parts, maker)
    }

    /// Puts a finished merge's output in the place of its inputs.
    fn install(&self, merge: Merge) -> Result<(), IndexError> {
        let (inputs, new) = merge.finish();
        let output = Run::new(&self.maker.dir, new.tables.clone())?;
        self.commit(new, |view| {
            // Runs are only ever added in front, and only a merge takes runs away; merges share none.
            let mut runs = view.runs.clone();
            let first = inputs.first();
            let at = runs
                .iter()
                .position(|run| first.is_some_and(|input| Arc::ptr_eq(run, input)));
            let Some(at) = at else {
                let what = "the runs that were merged are there no longer".into();
                return Err(failed(
                    &self.maker.dir,
                    "merging runs",
                    IndexCause::Invalid(what),
                ));
            };
            runs.splice(at..(at + inputs.len()).min(runs.len()), output);
            Ok(View {
                runs,
                watermark: view.watermark,
                passed: Arc::clone(&view.passed),
            })
        })
    }

    /// The merge that the present runs call for, if any, given the merges under way.
    fn due(&self, view: &View, merges: &[Merge]) -> usize {
        let (entries, tombstones) = view.entries();
        let dense = policy::is_dense(entries, tombstones, view.passed.load(Ordering::Relaxed));
        if dense && merges.is_empty() {
            return view.runs.len();
        }
        let free = view
            .runs
            .iter()
            .take_while(|run| !merges.iter().any(|merge| merge.takes(run)));
        let sizes: Vec<u64> = free.map(|run| run.bytes()).collect();
        policy::pick(&sizes)
    }

    /// Works on the newest merge; an error gives it up.
    fn step(&self, merges: &mut Vec<Merge>) -> Result<(), IndexError> {
        let Some(mut merge) = merges.pop() else {
            return Ok(());
        };
        if merge.step()? {
            self.install(merge)?;
            self.sweep();
        } else {
            merges.push(merge);
        }
        Ok(())
    }
}

impl Index for LsmIndex {
    fn ingest(
        &self,
        run: &mut dyn Iterator<Item = (&[u8], Address)>,
        watermark: u64,
    ) -> Result<(), IndexError> {
        const DOING: &str = "ingesting a run";
        self.sweep();
        let mut writer = RunWriter::new(self.maker.clone(), false, DOING);
        // Merges that go on beside take keys away and add none.
        let older = self.view();
        for (key, address) in run {
            // A tombstone that hides nothing is none.
            if address.form != Form::Tombstone || older.may_hold(key) {
                writer.add(key, address)?;
            }
        }
        drop(older);
        let new = writer.finish()?;
        let run = Run::new(&self.maker.dir, new.tables.clone())?;
        self.commit(new, |view| {
            if watermark < view.watermark {
                let what = format!(
                    "a watermark of {watermark}, below the present {}",
                    view.watermark
                );
                return Err(failed(&self.maker.dir, DOING, IndexCause::Invalid(what)));
            }
            let runs = run.into_iter().chain(view.runs.iter().cloned()).collect();
            Ok(View {
                runs,
                watermark,
                passed: Arc::clone(&view.passed),
            })
        })
    }

    fn watermark(&self) -> u64 {
        self.view().watermark
    }

    fn snapshot(&self) -> Arc<dyn IndexSnapshot> {
        self.view()
    }

    fn compact(&self) -> Result<bool, IndexError> {
        self.sweep();
        let mut merges = self.merges.lock();
        let view = self.view();
        let due = self.due(&view, &merges);
        if due > 0 {
            if due == view.runs.len() {
                view.passed.store(0, Ordering::Relaxed);
            }
            merges.push(self.begin(&view, due));
        }
        // An old view must not outlive its use here: it holds files that are to be unlinked.
        drop(view);
        self.step(&mut merges)?;
        Ok(!merges.is_empty() || self.due(&self.view(), &merges) > 0)
    }

    fn is_passed_over(&self) -> bool {
        let view = self.view();
        let passed = view.passed.load(Ordering::Relaxed);
        passed > 0 && {
            let (entries, tombstones) = view.entries();
            policy::is_dense(entries, tombstones, passed)
        }
    }

    fn merge_all(&self) -> Result<(), IndexError> {
        let mut merges = self.merges.lock();
        // What is half merged would be read twice; it goes into the one large merge.
        merges.clear();
        let view = self.view();
        if view.runs.len() > 1 || view.tables().any(|table| table.tombstones() > 0) {
            merges.push(self.begin(&view, view.runs.len()));
        }
        drop(view);
        while !merges.is_empty() {
            self.step(&mut merges)?;
        }
        Ok(())
    }

    fn stats(&self) -> IndexStats {
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
        stats
    }

    fn verify(&self) -> Result<(), IndexError> {
        let view = self.view();
        if Manifest::read(&self.maker.dir)?.is_none() {
            let found = IndexCause::Corrupt("the manifest is missing".into());
            return Err(failed(&self.maker.dir, "verifying the index", found));
        }
        view.tables().try_for_each(|table| table.verify())
    }
}

impl Drop for LsmIndex {
    fn drop(&mut self) {
        self.sweep();
    }
}

fn failed(path: &Path, doing: &'static str, cause: IndexCause) -> IndexError {
    IndexError {
        path: path.to_owned(),
        doing,
        cause,
    }
}

/// The table files in `dir`, by number.
fn table_files(dir: &Path) -> Result<Vec<(u64, PathBuf)>, IndexError> {
    let fail = |e| failed(dir, "listing the tables", IndexCause::Io(e));
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if let Some(id) = entry.file_name().to_str().and_then(table::id_of) {
            found.push((id, entry.path()));
        }
    }
    Ok(found)
}

/// Makes an empty index where there is none. Only an empty directory counts as none: tables or foreign
/// files without a manifest mean that something has been lost or mistaken.
fn create(dir: &Path, allowed: bool) -> Result<Manifest, IndexError> {
    const DOING: &str = "opening the index";
    let io_error = |e| failed(dir, DOING, IndexCause::Io(e));
    let corrupt = |found: String| Err(failed(dir, DOING, IndexCause::Corrupt(found)));
    match fs::read_dir(dir) {
        Ok(entries) => {
            for entry in entries {
                let name = entry.map_err(io_error)?.file_name();
                if name != manifest::TEMPORARY {
                    return corrupt(format!(
                        "no {} here, but {}",
                        manifest::NAME,
                        name.display()
                    ));
                }
            }
            if !allowed {
                return corrupt("an empty directory, no index".into());
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound && allowed => {
            let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
            let made = dir.ancestors().take_while(missing).count();
            fs::create_dir_all(dir).map_err(io_error)?;
            // The name of each directory made is durable when the one above it is synced.
            for above in dir.ancestors().skip(1).take(made) {
                let above = if above.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    above
                };
                manifest::sync_dir(above).map_err(io_error)?;
            }
        }
        Err(e) => return Err(io_error(e)),
    }
    let manifest = Manifest::default();
    manifest.write(dir).map_err(|failure| failure.error)?;
    Ok(manifest)
}
