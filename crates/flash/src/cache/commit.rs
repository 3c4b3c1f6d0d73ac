//! Commit: incoming pages become durable. docs/flash-format.md, "Commit".
//!
//! 1. *Out*: the open group ends; every group in memory that is not written is written.
//! 2. *Sync* flash.
//! 3. *Record*: only now the lane says what is in the slots.
//!
//! One thread commits for all that wait: a thread that finds its pages recorded when its turn comes
//! has nothing left to do.

use super::{Cache, group::Group};
use crate::{
    error::FlashError,
    layout::PAGE_ENTRY,
    record::{FRONT, PAGES},
};
use std::{
    io::IoSlice,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

impl Cache {
    /// Makes all positions below `to` durable, which are in the queue or behind its front.
    pub(super) fn commit(&self, to: u64) -> Result<(), FlashError> {
        let _leader = self.committing.lock();
        if self.is_durable_below(to) {
            return Ok(());
        }
        self.close_group();
        let groups: Vec<Arc<Group>> = self.state.lock().pending.iter().cloned().collect();
        let begun = Instant::now();
        self.write_durably(|| {
            for group in &groups {
                if forebay_pool::fault_enabled!("flash-metadata-first") {
                    self.record_pages(group.end())?;
                }
                forebay_pool::failpoint!("flash:write");
                self.write_group(group)?;
            }
            forebay_pool::failpoint!("flash:written");
            Ok(())
        })?;
        forebay_pool::failpoint!("flash:synced");
        if let Some(last) = groups.last() {
            self.record_pages(last.end())?;
        }
        let before: Duration = groups.iter().map(|group| group.took()).sum();
        let pages = groups.iter().map(|group| group.pages()).sum();
        self.worth.writes.flash.add(before + begun.elapsed(), pages);
        for group in groups {
            self.state.lock().pending.pop_front();
            self.recycle(group);
        }
        forebay_pool::failpoint!("flash:recorded");
        Ok(())
    }

    /// True if all positions below `to` are durable.
    pub(super) fn is_durable_below(&self, to: u64) -> bool {
        self.state.lock().map.recorded >= to
    }

    /// Records the pages in the slots before position `end`, whose bytes are durable: with one
    /// fence, if a record can name them all. Pages that were given up meanwhile are recorded as
    /// void.
    pub(super) fn record_pages(&self, end: u64) -> Result<(), FlashError> {
        let entries_max = (self.lane.payload_max() - 8) as u64 / PAGE_ENTRY;
        loop {
            let done = self.record(|cache, log| {
                let (from, to) = {
                    let map = &cache.state.lock().map;
                    let from = map.recorded;
                    let to = end.min(from + entries_max);
                    log.clear();
                    log.extend_from_slice(&from.to_le_bytes());
                    for position in from..to {
                        map.version(position).entry.encode(log);
                    }
                    (from, to)
                };
                if from >= end {
                    return Ok(Some(true));
                }
                if cache.skipped.load(Relaxed) {
                    if !cache.try_append(FRONT, &[IoSlice::new(&from.to_le_bytes())])? {
                        return Ok(None);
                    }
                    cache.skipped.store(false, Relaxed);
                }
                if !cache.try_append(PAGES, &[IoSlice::new(log)])? {
                    return Ok(None);
                }
                cache.state.lock().map.recorded = to;
                Ok(Some(to == end))
            })?;
            if done {
                return Ok(());
            }
        }
    }
}
