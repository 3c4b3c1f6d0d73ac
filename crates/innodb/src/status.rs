//! The cache's status for people: its process writes it to a file every second.

use crate::{boot_clock::BootTime, control_files, settings::Settings};
use forebay_flash::{AdmissionPolicy, CacheStats, WritePolicy};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    thread,
    time::Duration,
};
use uuid::Uuid;

/// A cache's state, and its work since its process opened it. Counts are pages unless they say
/// something else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// The process that has it.
    pub pid: u32,
    /// The run that it is of, as [`ENV_FLASH_RUN`](crate::ENV_FLASH_RUN) names it.
    pub run: Uuid,
    /// Time of this status: seconds of `CLOCK_MONOTONIC`.
    pub said_at: BootTime,
    /// The flash file's path, for a reader: parts that are no text stand as U+FFFD.
    pub flash: String,
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
    /// Pages of long rows that passed the cache by: reads that did not find theirs.
    pub bypassed: u64,
    /// Of these, pages that were read ahead of a scan.
    pub read_ahead: u64,
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
    /// Syncs of files for them.
    pub home_syncs: u64,
    /// Pages that left without being written: superseded, clean, or dropped.
    pub dropped_versions: u64,
    /// Of the pages written to the files, those that flash never had: it failed, or was gone
    /// around.
    pub around_pages: u64,
    /// Times that flash failed to write or sync.
    pub flash_errors: u64,
    /// Pages that were found damaged on flash, or that it could not read.
    pub damaged: u64,
    /// The last failure of flash, if it has taken nothing since.
    pub trouble: Option<String>,
    /// False while policy *adaptive* goes around flash, which takes no less than the files.
    pub flash_pays: bool,
    /// True while with *adaptive* no page comes in that is only read: flash is not much faster to
    /// read than the files, but takes less for writes.
    pub written_only: bool,
    /// The settings in force.
    pub settings: Settings,
    /// While the cache is given another size.
    pub resizing: Option<ResizeProgress>,
    /// The last ten seconds, minute, ten minutes and hour, as far as its process has had it so
    /// long; a tenth more or less.
    pub windows: Vec<RecentWindow>,
}

/// A resize under way: pages that have to go home, and those that have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeProgress {
    /// The size that the cache is to have.
    pub bytes: u64,
    /// Pages that went home, of so many in this round.
    pub done: u64,
    /// See above.
    pub of: u64,
}

/// A cache's work in the last so many seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentWindow {
    /// Number of seconds.
    pub seconds: u64,
    /// Reads that found their page.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Bytes of pages that came in.
    pub page_bytes: u64,
    /// Bytes written to flash.
    pub flash_bytes: u64,
    /// Bytes written to the files.
    pub home_bytes: u64,
}

impl RecentWindow {
    /// Between two moments.
    pub(crate) fn of(seconds: u64, now: &CacheStats, then: &CacheStats) -> Self {
        Self {
            seconds,
            hits: now.hits - then.hits,
            misses: now.misses - then.misses,
            page_bytes: now.page_bytes - then.page_bytes,
            flash_bytes: now.flash_bytes - then.flash_bytes,
            home_bytes: now.home_bytes - then.home_bytes,
        }
    }

    /// As people say it: ten seconds, a minute.
    fn name(&self) -> String {
        match self.seconds {
            60 => "minute".to_owned(),
            3600 => "hour".to_owned(),
            minutes if minutes > 60 && minutes.is_multiple_of(60) => {
                format!("{} minutes", minutes / 60)
            }
            seconds => format!("{seconds} seconds"),
        }
    }
}

impl CacheStatus {
    pub(crate) fn of(stats: &CacheStats, windows: Vec<RecentWindow>) -> Self {
        Self {
            pid: std::process::id(),
            said_at: BootTime::now(),
            slots: stats.slots,
            slots_used: stats.slots_used,
            pages: stats.pages,
            dirty_pages: stats.dirty_pages,
            lost_pages: stats.lost_pages,
            hits: stats.hits,
            misses: stats.misses,
            recent_hits: windows.first().map_or(0, |window| window.hits),
            recent_misses: windows.first().map_or(0, |window| window.misses),
            windows,
            bypassed: stats.bypassed,
            read_ahead: stats.read_ahead,
            enqueued: stats.enqueued,
            admitted: stats.admitted,
            second_chances: stats.second_chances,
            page_bytes: stats.page_bytes,
            flash_bytes: stats.flash_bytes,
            flash_syncs: stats.flash_syncs,
            home_pages: stats.home_pages,
            home_batches: stats.home_batches,
            home_syncs: stats.home_syncs,
            dropped_versions: stats.dropped_versions,
            around_pages: stats.around_pages,
            flash_errors: stats.flash_errors,
            damaged: stats.damaged,
            ..Self::default()
        }
    }

    /// Whole or not at all. Where its process can make no other file: over what is there, and a
    /// reader that finds a part reads it again.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        // It may make none there, or there is no room for one.
        const OVER: [io::ErrorKind; 3] = [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::StorageFull,
            io::ErrorKind::QuotaExceeded,
        ];
        // Where its file system is full it can be written over, and says more then than it did.
        const ROOM: usize = 4096;
        let mut bytes = serde_json::to_vec(self)?;
        bytes.resize(bytes.len().next_multiple_of(ROOM), b'\n');
        match control_files::replace(path, &bytes, |_| Ok(())) {
            Err(e) if OVER.contains(&e.kind()) => {
                let mut options = OpenOptions::new();
                options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
                let mut file = options.write(true).open(path)?;
                file.write_all(&bytes)?;
                file.set_len(bytes.len() as u64)
            }
            written => written,
        }
    }

    /// The last status of the process that has the cache.
    ///
    /// # Errors
    /// What the operating system says; `InvalidData` if it is no status.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&control_files::bytes_of(path)?)?)
    }

    /// The last status of the process that has the cache in this run. None if it said nothing yet:
    /// what is there is of an earlier one.
    #[must_use]
    pub fn of_run(path: &Path, run: Uuid) -> Option<Self> {
        let said = whole(|| Self::read(path)).ok();
        said.filter(|status| status.run == run)
    }

    /// True for ten seconds after it was said, as it is every second. Whether its process is there
    /// does not count: another one may be about to go on with it, and its number is that of its own
    /// PID namespace.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.said_at.is_recent()
    }

    /// True if flash fails in nothing, and no page is lost.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.trouble.is_none() && self.lost_pages == 0
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
        let recent = self.windows.iter().map(|window| {
            let share = percent(window.hits, window.hits + window.misses);
            format!("{share} in the last {}", window.name())
        });
        let recent = match recent.collect::<Vec<_>>() {
            none if none.is_empty() => String::new(),
            some => format!(" ({})", some.join(", ")),
        };
        let mut lines = vec![
            format!(
                "flash cache {}: {} pages, of them {} newer than in the files; {} of its {} slots used, {} versions a page",
                self.flash,
                self.pages,
                self.dirty_pages,
                self.slots_used,
                self.slots,
                ratio(self.slots_used, self.pages),
            ),
            format!(
                "flash cache: reads that found their page {}{}; {} pages of scans passed by, {} of them read ahead; pages that came in: {} written, {} read; {} second chances",
                percent(self.hits, self.hits + self.misses),
                recent,
                self.bypassed,
                self.read_ahead,
                self.enqueued,
                self.admitted,
                self.second_chances,
            ),
            format!(
                "flash cache: {} bytes written to flash a byte of pages; {} syncs of flash; {} pages written to the files in {} batches, {} superseded or clean when they left",
                ratio(self.flash_bytes, self.page_bytes),
                self.flash_syncs,
                self.home_pages,
                self.home_batches,
                self.dropped_versions,
            ),
        ];
        let settings = self.settings.in_words();
        lines.extend(settings.map(|words| format!("flash cache: {words}")));
        lines.extend(self.remarks());
        lines
    }

    /// Remarks on unusual states.
    fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.around_pages > 0 {
            lines.push(format!(
                "flash cache: {} pages went to the files without having been on flash",
                self.around_pages
            ));
        }
        if self.settings.policy == Some(WritePolicy::Adaptive) && !self.flash_pays {
            lines.push(
                "flash cache: flash takes no less than the files: pages go straight to the files, and those on flash leave it".to_owned(),
            );
        }
        if self.written_only && self.settings.contents == Some(AdmissionPolicy::All) {
            lines.push(
                "flash cache: flash is not much faster to read than the files: pages that are only read do not come in".to_owned(),
            );
        }
        if let Some(resizing) = &self.resizing {
            lines.push(format!(
                "flash cache: it is being given {} bytes; {} of {} pages whose slots go are in the files",
                resizing.bytes, resizing.done, resizing.of
            ));
        }
        if let Some(trouble) = &self.trouble {
            lines.push(format!(
                "flash cache: {trouble}. Pages go straight to the files"
            ));
        }
        if self.lost_pages > 0 || self.damaged > 0 {
            lines.push(format!(
                "flash cache: {} reads found a page damaged, or not at all; of {} pages the newest version is lost",
                self.damaged, self.lost_pages
            ));
        }
        lines
    }
}

/// Reads a status again as long as it is a part of one: it is just being
/// [written](CacheStatus::write) over another.
fn whole(mut read: impl FnMut() -> io::Result<CacheStatus>) -> io::Result<CacheStatus> {
    const TRIES: usize = 10;
    const AGAIN: Duration = Duration::from_millis(10);
    for _ in 1..TRIES {
        match read() {
            Err(e) if is_part(&e) => thread::sleep(AGAIN),
            whole => return whole,
        }
    }
    read()
}

fn is_part(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, UnexpectedEof};
    matches!(error.kind(), InvalidData | UnexpectedEof)
}

#[cfg(test)]
mod tests;
