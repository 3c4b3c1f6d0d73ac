//! The files of a run, the busiest first.

use super::history::WatchedRun;
use forebay_files::supervisor::FileStatus;
use std::{collections::HashMap, path::Path};

/// A file of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct FileRow {
    /// Its path.
    pub path: String,
    /// Writes a second that were absorbed in the last interval. None if that is not known.
    pub writes: Option<f64>,
    /// Syncs a second.
    pub syncs: Option<f64>,
    /// Bytes a second.
    pub bytes: Option<f64>,
    /// All bytes that were absorbed.
    pub all_bytes: u64,
    /// Its state.
    pub state: String,
    /// True if it cannot be synced.
    pub is_failing: bool,
}

impl FileRow {
    fn of(file: &FileStatus, before: Option<(&FileStatus, f64)>) -> Self {
        let rate = |count: fn(&FileStatus) -> u64| {
            let (before, seconds) = before?;
            Some(count(file).saturating_sub(count(before)) as f64 / seconds)
        };
        let state = match (&file.error, file.retired) {
            (Some(error), _) => format!("FAILS: {error}"),
            (None, true) => "plain".to_owned(),
            (None, false) => "absorbed".to_owned(),
        };
        Self {
            path: file.path.display().to_string(),
            writes: rate(|file| file.writes),
            syncs: rate(|file| file.syncs),
            bytes: rate(|file| file.bytes),
            all_bytes: file.bytes,
            state,
            is_failing: file.error.is_some(),
        }
    }
}

/// Those of a run: files that cannot be synced first, then by their syncs and bytes of the last
/// interval.
pub fn of_run(run: &WatchedRun) -> Vec<FileRow> {
    let before = run.before.as_ref();
    let seconds = before.map(|before| run.status.uptime_seconds - before.uptime_seconds);
    let seconds = seconds.filter(|seconds| *seconds > 0.0);
    let known: HashMap<&Path, &FileStatus> = (before.iter())
        .flat_map(|before| &before.files)
        .map(|file| (file.path.as_path(), file))
        .collect();
    // A new path is that of a new file or of a renamed one: what it did before is not known.
    let rows = run.status.files.iter().map(|file| {
        let before = known.get(file.path.as_path());
        FileRow::of(file, before.copied().zip(seconds))
    });
    let mut rows: Vec<FileRow> = rows.collect();
    rows.sort_by(|one, other| {
        let by = |figure: fn(&FileRow) -> f64| figure(other).total_cmp(&figure(one));
        (other.is_failing.cmp(&one.is_failing))
            .then_with(|| by(|file| file.syncs.unwrap_or(0.0)))
            .then_with(|| by(|file| file.bytes.unwrap_or(0.0)))
            .then_with(|| other.all_bytes.cmp(&one.all_bytes))
            .then_with(|| one.path.cmp(&other.path))
    });
    rows
}
