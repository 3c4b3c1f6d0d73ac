//! Opening: the manifest's tables, an empty index if there is none, and the leftovers of a crash.

use super::{Index, IndexOptions, failed};
use crate::disk::HeldDirectory;
use crate::index::{
    IndexCause, IndexError,
    manifest::{self, IndexManifest},
    run::TableRun,
    table::{self, TableFile},
    view::IndexView,
    writer::TableMaker,
};
use lsm_tree::Cache;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashSet,
    fs, io,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

const DOING: &str = "opening the index";

impl Index {
    /// Opens the index in `dir`, removing what a crash has left unfinished.
    ///
    /// # Errors
    /// I/O errors; no index there and `create` not set; a manifest or table that is missing,
    /// foreign or damaged. Tables are read in part only: [`Index::verify`] reads all.
    pub fn open(dir: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        if options.create {
            make_directory(dir).map_err(|e| failed(dir, DOING, IndexCause::Io(e)))?;
        }
        let held = HeldDirectory::open(dir).map_err(|e| failed(dir, DOING, IndexCause::Io(e)))?;
        let index = Self::open_unchanged(&held, options)?;
        index.remove_leftovers();
        Ok(index)
    }

    /// As [`open`](Self::open), in the directory `name` of the store's, but what a crash has left
    /// unfinished stays until [`remove_leftovers`](Self::remove_leftovers): the caller may find
    /// that this index is older than those files.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_below(
        store: &HeldDirectory,
        name: &str,
        options: IndexOptions,
    ) -> Result<Self, IndexError> {
        let held = match store.open_below(Path::new(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && options.create => store
                .make_below(Path::new(name))
                .and_then(|made| store.sync().map(|()| made)),
            held => held,
        };
        let held = held.map_err(|e| failed(&store.path().join(name), DOING, IndexCause::Io(e)))?;
        Self::open_unchanged(&held, options)
    }

    fn open_unchanged(dir: &Arc<HeldDirectory>, options: IndexOptions) -> Result<Self, IndexError> {
        let manifest = match IndexManifest::read(dir)? {
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
                    return Err(failed(dir.path(), DOING, IndexCause::Corrupt(found)));
                }
                tables.push(Arc::new(TableFile::open(dir, facts, &cache)?));
            }
            runs.extend(TableRun::new(dir.path(), tables)?);
        }
        let mut next_id = manifest.next_id;
        let mut leftovers = Vec::new();
        let names = dir.names();
        let names =
            names.map_err(|e| failed(dir.path(), "listing the tables", IndexCause::Io(e)))?;
        for id in names.iter().filter_map(|name| table::id_of(name)) {
            if !named.contains(&id) {
                leftovers.push(id);
            }
            next_id = next_id.max(id.saturating_add(1));
        }
        let watermark = manifest.watermark;
        Ok(Self {
            maker: TableMaker {
                dir: Arc::clone(dir),
                next_id: Arc::new(AtomicU64::new(next_id)),
                cache,
                table_bytes: options.table_bytes,
                keyspaces: Arc::default(),
                prefix_bytes: options.prefix_bytes,
                known: watermark,
            },
            pinned_bytes: options.pinned_bytes,
            merges: Mutex::default(),
            commit: Mutex::default(),
            published: RwLock::new(Arc::new(IndexView {
                runs,
                watermark,
                deleted: Arc::new(manifest.deleted),
                passed: Arc::default(),
            })),
            retired: Mutex::default(),
            leftovers: Mutex::new(leftovers),
        })
    }

    /// Unlinks the tables that no manifest named when the index was opened: what a crash has left.
    /// One that cannot be unlinked takes space and does no harm; its number is not used again.
    pub(crate) fn remove_leftovers(&self) {
        for id in self.leftovers.lock().drain(..) {
            let _ = self.maker.dir.remove(Path::new(&table::name_of(id)));
        }
    }
}

/// Makes a directory and those above it, durably, where they are missing.
fn make_directory(dir: &Path) -> io::Result<()> {
    let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let made = dir.ancestors().take_while(missing).count();
    if made == 0 {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    // The name of each directory made is durable when the one above it is synced.
    let above = dir.ancestors().skip(1).take(made);
    above
        .map(HeldDirectory::open)
        .try_for_each(|above| above?.sync())
}

/// Makes an empty index where there is none. Only an empty directory counts as none: tables or
/// foreign files without a manifest mean that something has been lost or mistaken.
fn create(dir: &HeldDirectory, allowed: bool) -> Result<IndexManifest, IndexError> {
    let corrupt = |found: String| Err(failed(dir.path(), DOING, IndexCause::Corrupt(found)));
    let names = dir.names();
    let names = names.map_err(|e| failed(dir.path(), DOING, IndexCause::Io(e)))?;
    if let Some(name) = names.iter().find(|name| *name != manifest::TEMPORARY) {
        return corrupt(format!("no {} here, but {name}", manifest::NAME));
    }
    if !allowed {
        return corrupt("an empty directory, no index".into());
    }
    let manifest = IndexManifest::default();
    manifest.write(dir).map_err(|failure| failure.error)?;
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use crate::{
        index::{
            Index, IndexEntry, IndexOptions,
            manifest::{NAME, TEMPORARY},
        },
        range_tombstones::{RangeTombstone, RangeTombstones},
    };
    use std::{collections::BTreeMap, fs, ops::Bound::Unbounded, path::Path};

    type DirectoryFiles = BTreeMap<String, Vec<u8>>;

    fn small() -> IndexOptions {
        IndexOptions {
            table_bytes: 8 << 10,
            ..IndexOptions::default()
        }
    }

    /// All that it has.
    fn contents(index: &Index) -> (u64, Vec<IndexEntry>, RangeTombstones) {
        let view = index.snapshot();
        let entries = view.range((Unbounded, Unbounded)).map(Result::unwrap);
        let deleted = RangeTombstones::clone(view.deleted());
        (view.watermark(), entries.collect(), deleted)
    }

    fn files(dir: &Path) -> DirectoryFiles {
        let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
        entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, fs::read(entry.path()).unwrap())
            })
            .collect()
    }

    /// What a power cut leaves at each step: tables of which the last one is cut, the manifest that
    /// is to be, cut anywhere, or in its place.
    fn cut_at_each_step(before: &DirectoryFiles, after: &DirectoryFiles) -> Vec<DirectoryFiles> {
        let mut cuts = vec![before.clone()];
        let mut found = before.clone();
        for (name, table) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
            for bytes in [0, table.len() / 2, table.len()] {
                found.insert(name.clone(), table[..bytes].to_vec());
                cuts.push(found.clone());
            }
        }
        let manifest = &after[NAME];
        for bytes in (0..manifest.len()).step_by(97).chain([manifest.len()]) {
            found.insert(TEMPORARY.to_owned(), manifest[..bytes].to_vec());
            cuts.push(found.clone());
        }
        cuts.push(after.clone());
        cuts
    }

    /// Promise (store): After a power cut at any step in which deleted ranges come into the index,
    /// they are there with all that came with them, or nothing of both.
    #[test]
    fn an_ingestion_of_ranges_cut_at_any_step_is_there_or_not() {
        let work = tempfile::tempdir().unwrap();
        let live = work.path().join("live");
        let index = Index::open(&live, small()).unwrap();
        index.test_ingest(0..6000, &[], 1000);
        let (before, had) = (files(&live), contents(&index));
        let ranges = [
            RangeTombstone::new(&1600u32.to_be_bytes(), Some(&4400u32.to_be_bytes()), 1500),
            RangeTombstone::new(&5600u32.to_be_bytes(), None, 1600),
        ];
        let tell = |index: &Index| index.test_ingest(2400..7200, &ranges, 2000);
        tell(&index);
        let (after, has) = (files(&live), contents(&index));
        assert_eq!((had.1.len(), has.1.len()), (6000, 6400));
        assert!(before.len() > 1 && after.len() > before.len() + 1);
        drop(index);
        let cuts = cut_at_each_step(&before, &after);
        for (step, left) in cuts.iter().enumerate() {
            let dir = work.path().join("found");
            fs::create_dir(&dir).unwrap();
            left.iter()
                .for_each(|(name, bytes)| fs::write(dir.join(name), bytes).unwrap());
            let index = Index::open(&dir, small()).unwrap();
            let is_done = step == cuts.len() - 1;
            assert!(
                contents(&index) == *if is_done { &has } else { &had },
                "{step}"
            );
            // They may be told again.
            tell(&index);
            assert!(contents(&index) == has, "{step}");
            index.verify().unwrap();
            fs::remove_dir_all(&dir).unwrap();
        }
    }
}
