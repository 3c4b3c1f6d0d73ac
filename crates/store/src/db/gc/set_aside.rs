//! Files that cannot be collected: set aside, named, and tried again now and then, while the others
//! are collected.
//!
//! A file is set aside for what is wrong with it:
//!
//! * a part that cannot be read, or damage;
//! * a record that cannot be appended to this log;
//! * a key of which the index cannot say where it leads;
//! * more live records than a resident log has room for.
//!
//! What keeps the store from writing at all is not the file's fault.

use crate::{error::StoreError, log::VlogFile, stats::SetAside};
use forebay_pool::Lsn;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A file is tried again when writers have written as much as it has, and each further time four
/// times as much.
const PATIENCE: u64 = 4;
/// Beyond so many tries the wait does not grow.
const TRIES_MAX: u32 = 12;

/// The files set aside in this session, by their start.
#[derive(Default)]
pub(super) struct AsideFiles {
    files: Mutex<BTreeMap<Lsn, AsideFile>>,
}

struct AsideFile {
    said: SetAside,
    tries: u32,
    /// What writers are to have written before it is tried again.
    again_at: u64,
}

impl AsideFiles {
    /// Sets `file` aside for `error`, while writers have written `written`.
    pub(super) fn add(&self, file: &VlogFile, error: &StoreError, written: u64) {
        let mut files = self.files.lock();
        let tries = files.get(&file.start).map_or(0, |entry| entry.tries);
        let wait = file.log_bytes().saturating_mul(PATIENCE.pow(tries));
        let entry = AsideFile {
            said: SetAside {
                file: file.path.display().to_string(),
                bytes: file.log_bytes(),
                reason: error.to_string(),
            },
            tries: (tries + 1).min(TRIES_MAX),
            again_at: written.saturating_add(wait),
        };
        files.insert(file.start, entry);
    }

    /// True if the file is set aside, and not to be tried again yet.
    pub(super) fn holds(&self, start: Lsn, written: u64) -> bool {
        let files = self.files.lock();
        files
            .get(&start)
            .is_some_and(|entry| written < entry.again_at)
    }

    /// The file was collected, or read, after all.
    pub(super) fn remove(&self, start: Lsn) {
        self.files.lock().remove(&start);
    }

    /// All are to be tried again.
    pub(super) fn try_all_again(&self) {
        for entry in self.files.lock().values_mut() {
            entry.again_at = 0;
        }
    }

    /// All of them, in log order.
    pub(super) fn said(&self) -> Vec<SetAside> {
        self.files
            .lock()
            .values()
            .map(|entry| entry.said.clone())
            .collect()
    }
}

/// True if it is `file` that cannot be collected; otherwise nothing can be at present.
pub(super) fn is_the_files(error: &StoreError, file: &VlogFile) -> bool {
    match error {
        StoreError::Damaged { .. }
        | StoreError::ValueLog { .. }
        | StoreError::Index(_)
        | StoreError::BatchTooLarge { .. }
        | StoreError::Full { .. } => true,
        StoreError::Io { path, .. } => *path == file.path,
        _ => false,
    }
}
