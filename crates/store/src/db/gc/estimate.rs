//! Looking at the whole log: its garbage, the most that this may be, and the file with the most of
//! it. By samples, see `sample`.

use super::CollectionProgress;
use crate::{
    db::StoreCore,
    log::{COPY_MORE, LogTail, VlogFile, copy_bytes},
};
use forebay_pool::Lsn;
use std::{
    collections::{HashSet, hash_map::Entry},
    sync::Arc,
};

/// Part of the garbage that the options allow for; the rest is for what sampling gets wrong and
/// records' headers.
const AIM: f64 = 0.8;
/// However little is live, garbage of so many files is allowed for.
const FILES_MIN: u64 = 4;
/// A sample is looked at again when as much was written as one in so many parts of the log.
const LOOKS: u64 = 20;

/// The last look at the whole log.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::db) struct Estimate {
    pub(in crate::db) log_bytes: u64,
    pub(in crate::db) garbage_bytes: u64,
    /// The part of it in files that cannot be collected.
    pub(super) stuck_bytes: u64,
}

impl Estimate {
    pub(super) fn live_bytes(&self) -> u64 {
        self.log_bytes.saturating_sub(self.garbage_bytes)
    }

    pub(in crate::db) fn space_amplification(&self) -> f64 {
        if self.log_bytes == 0 {
            return 1.0;
        }
        self.log_bytes as f64 / self.live_bytes().max(1) as f64
    }

    /// Garbage that the log may hold, in files of `file_bytes`, so that the files take no more than
    /// `max` times the live data. Two files more than the log has may be there: the preallocated
    /// space of the last one, and one whose live records are being copied.
    pub(super) fn allowance(&self, max: f64, file_bytes: u64) -> u64 {
        let share = (self.live_bytes() as f64 * (max - 1.0) * AIM) as u64;
        share.max(FILES_MIN * file_bytes) - 2 * file_bytes
    }
}

/// The findings of a look at the whole log.
#[derive(Default)]
pub(super) struct LogEstimate {
    pub(super) estimate: Estimate,
    /// The file to collect next, and its share of garbage.
    pub(super) ripe: Option<(f64, Arc<VlogFile>)>,
    /// The largest share of garbage of a file that the index does not cover.
    pub(super) waiting: f64,
}

impl StoreCore {
    /// Looks at the whole log, if no thread has yet and none collects now.
    pub(in crate::db) fn look_first(&self) {
        if self.collector.estimate.lock().is_some() || matches!(self.tail, LogTail::Resident(_)) {
            return;
        }
        if let Some(mut progress) = self.collector.collecting.try_lock() {
            self.look(&mut progress);
        }
    }

    /// Room for copies on a full disk: what is free or kept, and the rest of the last file, less
    /// what the lane holds, which is drained before them.
    fn copy_room(&self, tail: Lsn, drained: Lsn) -> u64 {
        let files = self.log.files();
        let last = files.last().filter(|file| file.end().is_none());
        let rest = last.map_or(0, |file| (file.start + file.bytes).saturating_sub(drained));
        let rest = match self.tail.lane() {
            Some(lane) => rest - rest % lane.segment_bytes(),
            None => rest,
        };
        let room = self.log.room_bytes().saturating_add(rest);
        room.saturating_sub(tail.saturating_sub(drained))
    }

    /// Bytes of the index's entries for each byte of a log of `log_bytes`.
    fn index_share(&self, log_bytes: u64) -> f64 {
        let index = self.index.stats();
        let entry = index.disk_bytes as f64 / index.entries.max(1) as f64;
        let live = index.entries.saturating_sub(index.tombstones) as f64;
        live * entry / log_bytes.max(1) as f64
    }

    /// Looks at the whole log. A file of which nothing can be read is set aside.
    pub(super) fn look(&self, progress: &mut CollectionProgress) -> LogEstimate {
        self.look_below(progress, Lsn::MAX)
    }

    /// The same; the file to collect next is one that ends by `below`.
    pub(super) fn look_below(&self, progress: &mut CollectionProgress, below: Lsn) -> LogEstimate {
        let (tail, whole, drained) = (self.tail.tail(), self.whole_below(), self.tail.drained());
        let retired: HashSet<Lsn> = progress.retired.iter().map(|(start, _)| *start).collect();
        let files: Vec<_> = self
            .log
            .files()
            .iter()
            .filter(|file| !retired.contains(&file.start))
            .cloned()
            .collect();
        let extent = |file: &VlogFile| file.end().unwrap_or(tail.max(file.start)) - file.start;
        let (written, live) = (self.written(), self.collector.estimate().live_bytes());
        let mut look = LogEstimate::default();
        look.estimate.log_bytes = files.iter().map(|file| extent(file)).sum();
        let (room, index_share) = match self.log.reserve().wants_room() {
            true => (
                self.copy_room(tail, drained),
                self.index_share(look.estimate.log_bytes),
            ),
            false => (u64::MAX, 0.0),
        };
        progress
            .samples
            .retain(|start, _| files.iter().any(|file| file.start == *start));
        for file in &files {
            // What still grows, and what cannot be read (yet), counts as live.
            let Some(end) = file.end() else { continue };
            if end > drained {
                continue;
            }
            let sample = match progress.samples.entry(file.start) {
                Entry::Vacant(none) => none.insert(self.sample(file, end)),
                Entry::Occupied(known) => known.into_mut(),
            };
            if sample.is_empty()
                && let Some(error) = sample.unreadable.take()
            {
                self.collector.aside.add(file, &error, written);
            }
            if sample.written_since(written) > look.estimate.log_bytes / LOOKS {
                self.look_again(sample);
            }
            let garbage = sample.garbage_at(written, live);
            let garbage_bytes = (extent(file) as f64 * garbage) as u64;
            look.estimate.garbage_bytes += garbage_bytes;
            if self.collector.aside.holds(file.start, written) {
                look.estimate.stuck_bytes += garbage_bytes;
            } else if end > whole {
                look.waiting = look.waiting.max(garbage);
            } else {
                let written_again = sample.written_again_at(written, live);
                let copied = (extent(file) as f64 * written_again) as u64;
                // Half a copy on a full disk takes room and gives none. Nor does the copy of tiny
                // records, whose entries in the index take more than their garbage. What has
                // expired takes a delete.
                let fits = copied == 0
                    || copy_bytes(copied).min(extent(file) + COPY_MORE) <= room
                        && garbage_bytes as f64 > copied as f64 * index_share;
                let is_next = fits && end <= below;
                if is_next && look.ripe.as_ref().is_none_or(|(most, _)| garbage > *most) {
                    look.ripe = Some((garbage, Arc::clone(file)));
                }
            }
        }
        *self.collector.estimate.lock() = Some(look.estimate);
        look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_files_of_live_data_and_allowed_garbage_keep_to_the_limit() {
        for live in [1, 10, 100, 1000, 100_000].map(|n| n * MIB) {
            for max in [1.1, 1.5, 3.0] {
                let file_bytes = (live / 32).clamp(16 * MIB, 512 * MIB);
                let estimate = Estimate {
                    log_bytes: live,
                    ..Estimate::default()
                };
                let files = live + estimate.allowance(max, file_bytes) + 2 * file_bytes;
                let limit = ((live as f64 * max) as u64).max(live + FILES_MIN * file_bytes);
                assert!(files <= limit, "{live} {max}");
            }
        }
    }
}
