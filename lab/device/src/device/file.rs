//! Which files a device knows, and where it keeps what it knows of them.

use super::{Device, mixed};
use crate::shared::FileState;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// Places in the table of files in which a file may be.
const PROBES: usize = 32;

/// A file as the devices know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKey(pub(super) u64);

impl FileKey {
    /// The file with this device number and inode.
    #[must_use]
    pub const fn new(dev: u64, ino: u64) -> Self {
        Self(mixed(mixed(dev) ^ ino) | 1)
    }

    /// The key as a word, to be kept where there is only room for one.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// The key that [`to_word`](Self::to_word) gave.
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// A place in the file, as the queue knows it.
    pub(super) fn place(self, offset: u64) -> u64 {
        self.0.wrapping_add(offset)
    }
}

impl Device<'_> {
    /// The number of the device that the file was opened on, if it is known.
    pub(crate) fn known_on(files: &[FileState], key: FileKey) -> Option<usize> {
        let found = probes(files, key).find(|file| file.key.load(Relaxed) == key.0)?;
        (found.device.load(Relaxed) as usize).checked_sub(1)
    }

    /// What is known of the file; if there are too many, in another's place.
    pub(super) fn file(&self, key: FileKey) -> &FileState {
        for file in probes(self.files, key) {
            let found = match file.key.load(Relaxed) {
                0 => file.key.compare_exchange(0, key.0, AcqRel, Relaxed),
                other => Err(other),
            };
            if found == Ok(0) || found == Err(key.0) {
                return file;
            }
        }
        let file = &self.files[first_probe(self.files, key)];
        self.clear(file);
        file.key.store(key.0, Relaxed);
        file
    }
}

fn first_probe(files: &[FileState], key: FileKey) -> usize {
    (key.0 >> 1) as usize % files.len()
}

/// Where a file may be.
fn probes(files: &[FileState], key: FileKey) -> impl Iterator<Item = &FileState> {
    let from = first_probe(files, key);
    (from..from + PROBES).map(|at| &files[at % files.len()])
}
