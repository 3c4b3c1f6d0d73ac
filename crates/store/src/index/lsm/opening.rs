//! Opening: the manifest's tables, an empty index where there is none, and what a crash has left.

use super::{Index, IndexOptions, failed};
use crate::index::{
    IndexCause, IndexError,
    manifest::{self, Manifest},
    run::Run,
    table::{self, TableFile},
    view::IndexView,
    writer::TableMaker,
};
use lsm_tree::Cache;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

impl Index {
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

    /// As [`open`](Self::open), but what a crash has left unfinished stays until [`remove_leftovers`](Self::remove_leftovers): the
    /// caller may find that this index is older than those files.
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
            published: RwLock::new(Arc::new(IndexView {
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
