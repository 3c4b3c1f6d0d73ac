//! Enqueue: pages come in, written ones, and clean ones that were read at home.

use super::{
    Cache,
    group::{AppendOutcome, EnqueueCondition, IncomingPage},
    read::Ticket,
};
use crate::{
    error::FlashError,
    file::{CachedFile, FileDurability},
    record::DIRTY,
    stats::add,
};
use std::sync::atomic::Ordering::Relaxed;

/// The place that a written page went to.
#[must_use]
pub enum Enqueued<'a> {
    /// To the cache. A [`sync`](Cache::sync) makes it durable.
    Cached,
    /// Nowhere yet: the caller writes it home, and drops this afterwards. A [`sync`](Cache::sync)
    /// syncs the file, then.
    Past(PastWrite<'a>),
}

/// A page that its writer writes home. The cache has no version of it; what others read at home
/// before this is dropped does not come in.
#[must_use]
pub struct PastWrite<'a> {
    cache: &'a Cache,
    file: &'a CachedFile,
    page: u32,
}

impl Drop for PastWrite<'_> {
    fn drop(&mut self) {
        self.file.end_past();
        self.cache.note_change(self.file.id().number, self.page);
    }
}

impl Cache {
    /// A page was written. Waits only where no slot is free (the front's pages go home then, in the
    /// caller's thread, unless [`step`](Self::step) is called often enough) or where too many
    /// groups are not synced.
    ///
    /// The page goes past the cache if it is one of a row that is to, or if it lies behind the
    /// durable end of its file: then the writer extends the file. Never if the cache has a newer
    /// one than home.
    ///
    /// # Errors
    /// Nothing was taken then: [`FlashError::NotAPage`], [`FlashError::NoSuchFile`]; what a commit,
    /// or the homes of the pages that had to make room, say.
    pub fn enqueue<'a>(
        &'a self,
        file: &'a CachedFile,
        page: u32,
        bytes: &[u8],
    ) -> Result<Enqueued<'a>, FlashError> {
        self.check_page(file, bytes.len())?;
        if self.goes_past(file, page)? {
            return self.write_past(file, page).map(Enqueued::Past);
        }
        let incoming = IncomingPage {
            file,
            page,
            flags: DIRTY,
            bytes,
            on: EnqueueCondition::Newer,
        };
        self.come_in(&incoming)?;
        add(&self.counters.enqueued, 1);
        Ok(Enqueued::Cached)
    }

    /// A page was read at home, after [`read`](Self::read) had missed it and given this `ticket`:
    /// true if it came in.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue); the reader has its page in any case.
    pub fn admit(
        &self,
        file: &CachedFile,
        page: u32,
        bytes: &[u8],
        ticket: Ticket,
    ) -> Result<bool, FlashError> {
        self.check_page(file, bytes.len())?;
        // If a sync of the file fails, reads ask for no other one.
        if !ticket.wanted || !self.takes_clean() || file.settled() == FileDurability::No {
            return Ok(false);
        }
        if !self.is_within(file, page)? {
            return Ok(false);
        }
        match file.settled() {
            FileDurability::Yes => {}
            FileDurability::No => return Ok(false),
            // What an earlier process wrote may not be durable: once in a session this is made
            // sure.
            FileDurability::NotAskedYet => self.settle(file)?,
        }
        let incoming = IncomingPage {
            file,
            page,
            flags: 0,
            bytes,
            on: EnqueueCondition::Unchanged(ticket.changes),
        };
        let came = self.come_in(&incoming)? == AppendOutcome::Done;
        if came {
            add(&self.counters.admitted, 1);
        }
        Ok(came)
    }

    /// Makes writes to the file past the cache durable.
    pub(super) fn settle(&self, file: &CachedFile) -> Result<(), FlashError> {
        self.check_past(file)?;
        match file.unsettled() {
            Some(begun) => {
                self.sync_home(file)?;
                // One that is under way may have failed, and said so of this file, or taken what it
                // had in the device.
                let _none_is_under_way = self.home_sync.write();
                self.check_past(file)?;
                file.set_settled(begun);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// An error if a sync failed that writes past the cache depended on.
    fn check_past(&self, file: &CachedFile) -> Result<(), FlashError> {
        match file.has_failed() {
            true => Err(FlashError::SyncFailed {
                file: file.name().to_string(),
            }),
            false => Ok(()),
        }
    }

    fn come_in(&self, incoming: &IncomingPage<'_>) -> Result<AppendOutcome, FlashError> {
        loop {
            let unsynced = {
                let state = self.state.lock();
                self.is_full_of_groups(&state).then_some(state.map.rear)
            };
            if let Some(rear) = unsynced {
                self.make_durable(rear)?;
            }
            match self.append_page(incoming, self.spare_slots())? {
                AppendOutcome::Full => self.make_room()?,
                done => {
                    if done == AppendOutcome::Done {
                        add(&self.counters.page_bytes, incoming.bytes.len() as u64);
                    }
                    return Ok(done);
                }
            }
        }
    }

    /// True if a write of this page is not for the cache.
    fn goes_past(&self, file: &CachedFile, page: u32) -> Result<bool, FlashError> {
        let run = file.writes.lock().length(page);
        let scan = self.options.bypass_writes;
        let in_a_row = scan > 0 && run >= scan;
        if !in_a_row && self.is_within(file, page)? {
            return Ok(false);
        }
        let newest = self.state.lock().map.find(file.id().number, page);
        let past = newest.is_none_or(|version| !version.is(DIRTY));
        if past && in_a_row {
            add(&self.counters.bypassed, 1);
        }
        Ok(past)
    }

    /// True if the page lies before the durable end of its home.
    fn is_within(&self, file: &CachedFile, page: u32) -> Result<bool, FlashError> {
        let end = self.home_offset(page) + self.page_bytes() as u64;
        if end <= file.durable_bytes() {
            return Ok(true);
        }
        Ok(end <= self.durable_bytes(file)?)
    }

    /// The cache forgets a clean page before it is written at home, durably: or a crash would bring
    /// it back.
    fn write_past<'a>(
        &'a self,
        file: &'a CachedFile,
        page: u32,
    ) -> Result<PastWrite<'a>, FlashError> {
        let number = file.id().number;
        let (is_here, copies_count) = {
            let state = self.state.lock();
            // `skipped` is set under `state`, together with `recorded`.
            let copies_count = state.map.recorded < state.kept || self.skipped.load(Relaxed);
            (state.map.find(number, page).is_some(), copies_count)
        };
        if is_here {
            self.forget(file, [page, page])?;
        } else if copies_count {
            // It may have left the queue before the lane hears of all positions that its copy was
            // kept with: then that still counts.
            self.give_up_copies(&mut self.homing.lock())?;
        }
        file.begin_past();
        self.note_change(number, page);
        Ok(PastWrite {
            cache: self,
            file,
            page,
        })
    }

    /// A copy of the page that was read at home may be stale.
    fn note_change(&self, file: u32, page: u32) {
        let map = &mut self.state.lock().map;
        let bucket = map.bucket(file, page);
        map.changed(bucket);
    }
}
