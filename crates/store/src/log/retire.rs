//! Retires a value-log file: out of the manifest first, then out of the set and off the disk.
//!
//! The manifest remembers a file as collected until no power cut can bring its name back. One that
//! cannot be unlinked is a leftover: it takes space and does no harm.

use super::{unlisted_files::UnlistedFiles, value_log::ValueLog};
use crate::error::StoreError;
use forebay_pool::Lsn;
use std::{io, path::Path, sync::Arc};

impl ValueLog {
    /// Takes files out of the manifest, durably, which says that they were collected, at a time
    /// when the index was complete below `watermark`. They can still be read, and are on the disk,
    /// until [`unlink`](Self::unlink).
    pub(crate) fn retire(&self, gone: &[Lsn], watermark: Lsn) -> Result<(), StoreError> {
        let _changing = self.place.lock();
        self.note(|state| {
            state.files.retain(|file| !gone.contains(&file.start));
            state.retired.extend(gone);
            state.indexed_to = state.indexed_to.max(watermark);
        })
    }

    /// Forgets retired files and unlinks them.
    pub(crate) fn unlink(&self, gone: &[Lsn]) {
        let _changing = self.place.lock();
        let (gone, kept): (Vec<_>, Vec<_>) = self
            .files()
            .iter()
            .cloned()
            .partition(|file| gone.contains(&file.start));
        self.files.store(Arc::new(kept));
        for file in gone {
            self.unlink_file(file.start, &file.path);
        }
        // Before a drain, which waits for the same lock, takes what there is.
        self.reserve().fill_again();
    }

    /// Unlinks what is dead. What cannot be unlinked stays, and is said to
    /// ([`leftovers`](Self::leftovers)): it takes space and does no harm.
    pub(crate) fn unlink_dead(&self, unnamed: &[UnlistedFiles]) {
        // One of that name may have been begun anew meanwhile.
        let files = self.files();
        let gone = |found: &&UnlistedFiles| files.iter().all(|file| file.start != found.start);
        for found in unnamed.iter().filter(gone) {
            self.unlink_file(found.start, &found.path);
        }
    }

    /// Unlinks a file that is in the manifest no more. One that cannot be unlinked takes space and
    /// does no harm: an opening tries again.
    pub(super) fn unlink_file(&self, start: Lsn, path: &Path) {
        match self.disk.remove(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                let why = StoreError::io("removing", path)(e).to_string();
                self.leftovers.lock().insert(start, why);
            }
            _ => self.unlinked.lock().push(start),
        }
    }

    /// Files that could not be unlinked, and why.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        self.leftovers.lock().values().cloned().collect()
    }

    /// Those files.
    pub(crate) fn left_over(&self) -> Vec<Lsn> {
        self.leftovers.lock().keys().copied().collect()
    }

    /// The unlinked files, once no power cut can bring them back.
    pub(crate) fn unlinked_for_good(&self) -> Result<Vec<Lsn>, StoreError> {
        let unlinked = self.unlinked.lock().clone();
        self.disk
            .sync_dir(&self.dir)
            .map_err(StoreError::io("syncing", &self.dir))?;
        Ok(unlinked)
    }
}
