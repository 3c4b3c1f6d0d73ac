//! How far the drain is.

use crate::FILES_MAX;
use forebay_pool::Lsn;

/// How far the drain is.
pub(super) struct DrainProgress {
    /// By file number: the segment that was open when the file's last sync began.
    pub(super) clean_from: Vec<Lsn>,
}

impl Default for DrainProgress {
    fn default() -> Self {
        Self {
            clean_from: vec![0; FILES_MAX],
        }
    }
}
