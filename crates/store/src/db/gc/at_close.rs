//! A small store is left small: before it closes, a log that is mostly garbage is collected.
//!
//! The collector allows for the garbage of four files, however little is live, and leaves the file
//! that grows alone. On a pool on a disk a put that is committed alone takes a page, so a thousand
//! tiny puts would leave 4 MiB of files. Here the last file is ended, and what is live in all of
//! them goes to a new one. Larger logs are left to the collector: a close is to be short.

use crate::{
    db::StoreCore,
    error::StoreError,
    log::{LogTail, VlogFile},
    stats::GcReport,
};

/// A larger log is not looked at.
const LOG_MAX: u64 = 64 << 20;
/// Less garbage is not worth it, nor is less than half of the log.
const GARBAGE_MIN: u64 = 2 << 20;

impl StoreCore {
    /// Collects a small log of which most is garbage. The index has all of it, and the files.
    pub(in crate::db) fn collect_before_close(&self) -> Result<(), StoreError> {
        let LogTail::Pool(_) = &self.tail else {
            return Ok(());
        };
        if !self.options.gc || self.log.reserve().is_short() {
            return Ok(());
        }
        // The collector may have written since the log was flushed. From here on nobody does.
        let mut progress = self.collector.collecting.lock();
        self.tail.flush()?;
        self.ingest_everything()?;
        let end = self.tail.drained();
        let extent = |file: &VlogFile| file.end().unwrap_or(end).saturating_sub(file.start);
        let files = self.log.files();
        let log_bytes: u64 = files.iter().map(|file| extent(file)).sum();
        if !(GARBAGE_MIN..=LOG_MAX).contains(&log_bytes) {
            return Ok(());
        }
        let garbage = |file: &VlogFile| {
            let share = self.sample(file, file.start + extent(file)).garbage();
            (extent(file) as f64 * share) as u64
        };
        let garbage: u64 = files.iter().map(|file| garbage(file)).sum();
        drop(files);
        if garbage < GARBAGE_MIN || garbage < log_bytes / 2 {
            return Ok(());
        }
        // What lies behind is cut off.
        debug_assert_eq!(self.tail.tail(), end);
        self.log.complete_at(end)?;
        self.collect_everything(&mut progress, &mut GcReport::default())?;
        drop(progress);
        self.tail.flush()?;
        self.ingest_everything()
    }
}
