//! How the cache is, for people: written to a file every second by the process that has it.

use forebay_flash::Stats;
use serde::{Deserialize, Serialize};
use std::{io, path::Path};
use uuid::Uuid;

/// How a cache is, and what it did since its process opened it. Counts are pages unless they say something else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The process that has it.
    pub pid: u32,
    /// The flash file.
    pub flash: std::path::PathBuf,
    /// The cache.
    pub cache: Uuid,
    /// Slots, and those in use by any version.
    pub slots: u64,
    /// See above.
    pub slots_used: u64,
    /// Pages in the cache.
    pub pages: u64,
    /// Pages that are newer than in the files.
    pub dirty_pages: u64,
    /// Of these, pages that were damaged on flash.
    pub lost_pages: u64,
    /// Reads that found their page, and that did not.
    pub hits: u64,
    /// See above.
    pub misses: u64,
    /// The same in about the last ten seconds.
    pub recent_hits: u64,
    /// See above.
    pub recent_misses: u64,
    /// Written pages that came in.
    pub enqueued: u64,
    /// Pages that came in when they were read.
    pub admitted: u64,
    /// Pages that were kept for a second turn because they had been read.
    pub second_chances: u64,
    /// Bytes of pages that came in.
    pub page_bytes: u64,
    /// Bytes written to flash.
    pub flash_bytes: u64,
    /// Syncs of flash.
    pub flash_syncs: u64,
    /// Pages written to the files.
    pub home_pages: u64,
    /// Batches in which they were written.
    pub home_batches: u64,
}

impl Status {
    pub(crate) fn of(stats: &Stats, earlier: &Stats) -> Self {
        Self {
            pid: std::process::id(),
            slots: stats.slots,
            slots_used: stats.slots_used,
            pages: stats.pages,
            dirty_pages: stats.dirty_pages,
            lost_pages: stats.lost_pages,
            hits: stats.hits,
            misses: stats.misses,
            recent_hits: stats.hits - earlier.hits,
            recent_misses: stats.misses - earlier.misses,
            enqueued: stats.enqueued,
            admitted: stats.admitted,
            second_chances: stats.second_chances,
            page_bytes: stats.page_bytes,
            flash_bytes: stats.flash_bytes,
            flash_syncs: stats.flash_syncs,
            home_pages: stats.home_pages,
            home_batches: stats.home_batches,
            ..Self::default()
        }
    }

    /// Whole or not at all.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let aside = path.with_extension("new");
        std::fs::write(&aside, serde_json::to_vec(self)?)?;
        std::fs::rename(&aside, path)
    }

    /// What the process that has the cache said last.
    ///
    /// # Errors
    /// What the operating system says; `InvalidData` if it is no status.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }

    /// In words, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let percent = |part: u64, whole: u64| match whole {
            0 => "–".to_owned(),
            whole => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
        };
        let ratio = |part: u64, whole: u64| match whole {
            0 => "–".to_owned(),
            whole => format!("{:.2}", part as f64 / whole as f64),
        };
        vec![
            format!(
                "flash cache {}: {} pages, of them {} newer than in the files; {} of its {} slots used, {} versions a page",
                self.flash.display(),
                self.pages,
                self.dirty_pages,
                self.slots_used,
                self.slots,
                ratio(self.slots_used, self.pages),
            ),
            format!(
                "flash cache: reads that found their page {} ({} in the last ten seconds); pages that came in: {} written, {} read; {} second chances",
                percent(self.hits, self.hits + self.misses),
                percent(self.recent_hits, self.recent_hits + self.recent_misses),
                self.enqueued,
                self.admitted,
                self.second_chances,
            ),
            format!(
                "flash cache: {} bytes written to flash a byte of pages; {} syncs of flash; {} pages written to the files in {} batches",
                ratio(self.flash_bytes, self.page_bytes),
                self.flash_syncs,
                self.home_pages,
                self.home_batches,
            ),
        ]
    }
}
