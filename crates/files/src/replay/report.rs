//! A recovery's report: the outcome of each lane and file.

use super::lane_contents::LoggedFile;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The outcome for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneOutcome {
    /// It held nothing.
    Empty,
    /// Its files were synced: they held its writes, or newer ones ([`FileReport::is_kept`]).
    Synced,
    /// Its records were written to its files.
    Replayed,
    /// Its records are kept; see the files' reasons.
    Refused,
    /// Its files were synced when the pool's disk failed, and may be newer: nothing was written to
    /// them.
    Newer,
    /// Records that could not be brought to their files were given up, as asked for.
    Discarded,
    /// Its owner is alive.
    InUse,
}

/// The outcome for a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileReport {
    /// The last path it is known by.
    #[serde(serialize_with = "crate::readable")]
    pub path: PathBuf,
    /// Writes and truncations of it.
    pub records: u64,
    /// Bytes written in them.
    pub bytes: u64,
    /// True if it holds something else than these, and is right: it was synced as it is, and they
    /// are dropped.
    pub is_kept: bool,
    /// True if it was not found, or cannot be opened: its whole file system was synced.
    pub is_missing: bool,
    /// The reason that it cannot be replayed, if it cannot, and the remedy.
    pub refused: Option<String>,
    /// Other work that was done, or left undone, and is worth knowing.
    pub note: Option<String>,
}

/// The outcome for a lane, and for its files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneReport {
    /// Number of the lane.
    pub lane: u32,
    /// Its owner.
    pub owner: String,
    /// Its outcome.
    pub outcome: LaneOutcome,
    /// Its files.
    pub files: Vec<FileReport>,
}

impl FileReport {
    /// Of a file of which nothing is decided yet.
    pub(super) fn of(file: &LoggedFile<'_>) -> Self {
        Self {
            path: file.path().to_owned(),
            records: file.changes.len() as u64,
            bytes: file.bytes(),
            is_kept: false,
            is_missing: false,
            refused: None,
            note: None,
        }
    }
}
