//! Files that a device knows, and its table of them.

use super::{Device, key::FileKey};
use crate::shared::FileState;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// Places in the table of files in which a file may be.
const PROBES: usize = 32;

impl Device<'_> {
    /// The number of the device that the file was opened on, if it is known.
    pub(crate) fn known_on(files: &[FileState], key: FileKey) -> Option<usize> {
        let found = probes(files, key).find(|file| file.key.load(Relaxed) == key.to_word())?;
        (found.device.load(Relaxed) as usize).checked_sub(1)
    }

    /// What is known of the file; if there are too many, in another's place.
    pub(super) fn file(&self, key: FileKey) -> &FileState {
        for file in probes(self.files, key) {
            let found = match file.key.load(Relaxed) {
                0 => file.key.compare_exchange(0, key.to_word(), AcqRel, Relaxed),
                other => Err(other),
            };
            if found == Ok(0) || found == Err(key.to_word()) {
                return file;
            }
        }
        let file = &self.files[first_probe(self.files, key)];
        self.clear(file);
        file.key.store(key.to_word(), Relaxed);
        file
    }
}

fn first_probe(files: &[FileState], key: FileKey) -> usize {
    (key.to_word() >> 1) as usize % files.len()
}

/// Where a file may be.
fn probes(files: &[FileState], key: FileKey) -> impl Iterator<Item = &FileState> {
    let from = first_probe(files, key);
    (from..from + PROBES).map(|at| &files[at % files.len()])
}
