//! The drain's progress.

use forebay_pool::Lsn;

/// The drain's progress.
pub(super) struct DrainProgress {
    /// By file number: the segment that was open when the file's last sync began.
    pub(super) clean_from: Vec<Lsn>,
}

impl DrainProgress {
    /// Of so many numbers, of whose files nothing is synced.
    pub(super) fn of(places: usize) -> Self {
        Self {
            clean_from: vec![0; places],
        }
    }
}
