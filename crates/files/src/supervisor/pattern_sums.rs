//! A run's sums by the pattern that names the file: a figure for each file would be without bound,
//! and would end when a log is renamed. A file counts for the pattern that its path matched first
//! when it was registered, so a sum never shrinks.

use super::{SupervisorState, run::RunState};
use crate::{policy, shared::FileState};
use serde::{Deserialize, Serialize};
use std::{
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Sums over the files that a pattern names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternSum {
    /// The pattern.
    pub pattern: String,
    /// Files that are absorbed now.
    pub files: u64,
    /// Files, made plain or not, that cannot be synced at present.
    pub failing_files: u64,
    /// Writes that went to the pool too.
    pub writes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Syncs that returned at once.
    pub syncs: u64,
}

impl PatternSum {
    fn add(&mut self, [writes, bytes, syncs]: [u64; 3]) {
        for (sum, more) in [
            (&mut self.writes, writes),
            (&mut self.bytes, bytes),
            (&mut self.syncs, syncs),
        ] {
            // Any process of the run may write over the counts.
            *sum = sum.wrapping_add(more);
        }
    }
}

impl SupervisorState {
    /// The pattern that names a file of this path: its place among the run's.
    pub(super) fn pattern_of(&self, path: &Path) -> Option<usize> {
        let path = path.as_os_str().as_bytes();
        let patterns = &self.options.patterns;
        (patterns.iter()).position(|pattern| policy::matches(pattern.as_bytes(), path))
    }
}

impl RunState {
    /// The sum of absorbed writes of each of the run's patterns.
    pub(super) fn absorbed(&self, shared: &SupervisorState) -> Vec<PatternSum> {
        let patterns = shared.options.patterns.iter();
        let mut sums: Vec<PatternSum> = patterns
            .map(|pattern| PatternSum {
                pattern: pattern.clone(),
                ..PatternSum::default()
            })
            .collect();
        // A file is in one of the two at any time.
        let known = self.files.lock();
        for (pattern, before) in self.forgotten.lock().sums() {
            if let Some(sum) = pattern.and_then(|at| sums.get_mut(at)) {
                sum.add(before);
            }
        }
        for (number, known) in known.iter() {
            let file = &self.page.files[number];
            let Some(sum) = known.pattern.and_then(|at| sums.get_mut(at)) else {
                continue;
            };
            // One that is plain by now stays known until the lane has nothing of it.
            sum.files += u64::from(file.stamp().state == FileState::Absorbed);
            sum.failing_files += u64::from(file.error().is_some());
            let count = |count: &AtomicU64| count.load(Relaxed);
            sum.add([&file.writes, &file.bytes, &file.syncs].map(count));
        }
        sums
    }
}
