//! Around flash: incoming pages become durable at home instead, because flash failed or the policy
//! says so. docs/flash-format.md, "Around flash".
//!
//! 1. *Void* the clean versions that home is about to be newer than, durably: or a crash would
//!    bring them back.
//! 2. *Protect*: [`Home::protect`](crate::Home::protect) keeps a copy until the pages are whole at
//!    home.
//! 3. *Home*: written from memory, sorted, and synced.
//! 4. *Record* them as clean. Their slots hold something else, which their checksums say: they are
//!    read at home. If nothing else is in the cache that is recorded, they leave it at once, and
//!    nothing is recorded: the lane of a cache whose flash takes no checkpoint lasts.

use super::{Cache, HomeBatch, group::Group};
use crate::{
    error::FlashError,
    map::{Map, PageVersion},
    options::WritePolicy,
    record::{DIRTY, FRONT, LOST, VOID, VOIDED},
    stats::add,
};
use std::{
    collections::{HashMap, HashSet},
    io::{self, IoSlice},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Pages that [`Home::protect`](crate::Home::protect) is given at a time at most, or those of one
/// group.
const PROTECTED_MAX: usize = 512;

/// The fault of a flash device that failed.
#[derive(Default)]
pub(super) struct DeviceFault {
    /// In words; the last one.
    said: Option<String>,
    /// Flash is not written to until then.
    until: Option<Instant>,
}

impl Cache {
    /// The last failure of flash, if it has not taken a group since: pages go straight home then.
    #[must_use]
    pub fn flash_trouble(&self) -> Option<String> {
        self.trouble.lock().said.clone()
    }

    /// Flash failed to write or sync: it is left alone for a while.
    pub(super) fn flash_failed(&self, doing: &'static str, source: io::Error) -> FlashError {
        let error = self.flash_error(doing, source);
        add(&self.counters.flash_errors, 1);
        self.flash_failing.store(true, Relaxed);
        let mut trouble = self.trouble.lock();
        trouble.said = Some(error.to_string());
        let wait = Duration::from_millis(self.options.flash_retry_ms.into());
        trouble.until = Instant::now().checked_add(wait);
        error
    }

    /// True if pages are not to be written to flash.
    pub(super) fn goes_around(&self) -> bool {
        !self.flash_pays() || self.cannot_take()
    }

    /// True if flash is not to be written to, however fast it is.
    fn cannot_take(&self) -> bool {
        matches!(self.policy(), WritePolicy::Around | WritePolicy::Off)
            || !self.flash_limit.is_open()
            || self.half_resized.load(Relaxed)
            || self.flash_rests()
    }

    /// True for a while after flash failed.
    pub(super) fn flash_rests(&self) -> bool {
        let until = self.trouble.lock().until;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Makes all positions below `to` durable: on flash, or at home.
    ///
    /// # Errors
    /// What a home, or the lane, says: then flash failed as well, or is gone around.
    pub(super) fn make_durable(&self, to: u64) -> Result<(), FlashError> {
        if self.is_durable_below(to) || self.try_other_way(to) {
            return Ok(());
        }
        match self.commit_to_flash(to) {
            Some(done) => done,
            None => self.commit_home(to, &mut self.homing.lock()),
        }
    }

    /// The same for who holds `homing`.
    pub(super) fn make_durable_within(
        &self,
        to: u64,
        homing: &mut HomeBatch,
    ) -> Result<(), FlashError> {
        match self.commit_to_flash(to) {
            Some(done) => done,
            None => self.commit_home(to, homing),
        }
    }

    /// With *adaptive* a commit now and then goes around flash that pays, or to flash that does
    /// not, to show what that takes. False if none was due, or it failed: then the usual way is
    /// open still.
    fn try_other_way(&self, to: u64) -> bool {
        if !self.is_trial_due() {
            return false;
        }
        let begun = Instant::now();
        let done = match (self.flash_pays(), self.cannot_take()) {
            // Behind pages that leave no thread waits for it.
            (true, false) => {
                let homing = self.homing.try_lock();
                homing.is_some_and(|mut homing| self.commit_home(to, &mut homing).is_ok())
            }
            (false, false) => matches!(self.try_flash(to), Some(Ok(()))),
            (_, true) => false,
        };
        self.worth.writes.tried(begun.elapsed());
        done
    }

    /// The copies of pages on their way home are given up, before a file is changed past the cache.
    /// If a write home failed, they are needed still: what was on its way becomes durable first.
    pub(super) fn give_up_copies(&self, homing: &mut HomeBatch) -> Result<(), FlashError> {
        if self.state.lock().map.recorded < homing.begun {
            self.make_durable_within(homing.begun, homing)?;
        }
        self.home.unprotect().map_err(|source| FlashError::Home {
            file: "the copies of pages that went around flash".to_owned(),
            doing: "giving them up",
            source,
        })
    }

    /// `None` if flash does not take it.
    fn commit_to_flash(&self, to: u64) -> Option<Result<(), FlashError>> {
        match self.goes_around() {
            true => None,
            false => self.try_flash(to),
        }
    }

    fn try_flash(&self, to: u64) -> Option<Result<(), FlashError>> {
        match self.commit(to) {
            Err(FlashError::Flash { .. }) => None,
            done => {
                if done.is_ok() && self.flash_failing.swap(false, Relaxed) {
                    self.trouble.lock().said = None;
                }
                Some(done)
            }
        }
    }

    /// Makes all positions below `to` durable at home.
    fn commit_home(&self, to: u64, homing: &mut HomeBatch) -> Result<(), FlashError> {
        let _leader = self.committing.lock();
        if self.is_durable_below(to) {
            return Ok(());
        }
        // The copies are known by a position, which says nothing while it is not known of which
        // layout.
        self.check_resized()?;
        self.close_group();
        let mut groups: Vec<Arc<Group>> = self.state.lock().pending.iter().cloned().collect();
        let begun = Instant::now();
        let pages = groups.iter().map(|group| group.pages()).sum();
        // Groups that go together share the sync of their copies, and those of their homes.
        let together = (PROTECTED_MAX / self.options.group_pages.max(1) as usize).max(1);
        while !groups.is_empty() {
            let later = groups.split_off(together.min(groups.len()));
            self.groups_home(&groups, homing)?;
            for group in groups {
                if !self.passes(&group) {
                    self.record_pages(group.end())?;
                }
                self.state.lock().pending.pop_front();
                self.recycle(group);
            }
            groups = later;
        }
        self.worth.writes.around.add(begun.elapsed(), pages);
        if self.flash_failing.load(Relaxed) {
            self.leave_flash()?;
        }
        Ok(())
    }

    /// Empties the cache of all recorded versions once none of them is newer than home.
    fn leave_flash(&self) -> Result<(), FlashError> {
        self.record(|cache, _| {
            let end = {
                let map = &cache.state.lock().map;
                let end = map.recorded;
                let pending = (end..map.rear).map(|at| map.version(at));
                let pending: Vec<_> = pending.filter(|v| v.newest && v.is(DIRTY)).collect();
                // What is only in memory does not take the place of what is recorded.
                let newest =
                    |v: &PageVersion| map.versions_before(v.position, end).first().copied();
                let mut before = pending.iter().filter_map(newest);
                let needed = map.dirty > pending.len() as u64 || before.any(|v| v.is(DIRTY));
                if map.front == end || needed {
                    return Ok(Some(()));
                }
                end
            };
            if !cache.try_append(FRONT, &[IoSlice::new(&end.to_le_bytes())])? {
                return Ok(None);
            }
            cache.state.lock().map.advance(end);
            Ok(Some(()))
        })
    }

    /// A group that is home leaves at once if nothing before it is in the cache. The lane does not
    /// hear of it before something is recorded behind it.
    fn passes(&self, group: &Group) -> bool {
        let _log = self.log.lock();
        let map = &mut self.state.lock().map;
        let lost = |at| map.version(at).is(LOST) && !map.version(at).is(VOID);
        if map.front < map.recorded || (group.first.max(map.front)..group.end()).any(lost) {
            return false;
        }
        map.advance(group.end());
        self.skipped.store(true, Relaxed);
        true
    }

    /// Steps 1 to 3, for groups that follow each other. After a failure they are the first ones
    /// again, perhaps with more behind them: so the copies that are kept then have each page that
    /// may be torn.
    fn groups_home(&self, groups: &[Arc<Group>], homing: &mut HomeBatch) -> Result<(), FlashError> {
        let (Some(first), Some(last)) = (groups.first(), groups.last()) else {
            return Ok(());
        };
        // Of the first one some may be recorded: flash took them, and they count as what they were
        // there.
        let start = first.first.max(self.state.lock().map.recorded);
        let end = last.end();
        let pages = self.newest_of(start, end);
        self.void_clean_versions(&pages, start)?;
        forebay_pool::failpoint!("flash:around-voided");
        {
            let held: Vec<_> = groups.iter().map(|group| group.bytes.read()).collect();
            let size = self.page_bytes();
            let batch = self.batch_of(&pages, |version| {
                let at = groups.partition_point(|group| group.end() <= version.position);
                let from = (version.position - groups[at].first) as usize * size;
                &held[at][from..from + size]
            });
            {
                // Also if it fails: they may be kept then.
                let mut state = self.state.lock();
                state.kept = state.kept.max(end);
            }
            let protected = self.home.protect(end - 1, &batch);
            protected.map_err(|(file, e)| {
                self.home_error(file, "keeping a copy of pages before they are written", e)
            })?;
            forebay_pool::failpoint!("flash:around-protected");
            homing.begun = homing.begun.max(end);
            self.write_batch(&batch)?;
            forebay_pool::failpoint!("flash:around-written");
            add(&self.counters.around_pages, batch.len() as u64);
        }
        let written: HashMap<(u32, u32), u64> = (pages.iter())
            .map(|version| ((version.entry.file, version.entry.page), version.position))
            .collect();
        let map = &mut self.state.lock().map;
        for position in start..end {
            let version = map.version(position);
            if version.is(VOID) || version.is(LOST) {
                continue;
            }
            let page = (version.entry.file, version.entry.page);
            if written.get(&page).is_some_and(|&newest| newest != position) {
                // Home has a newer one, which a crash may find unrecorded: this one is not to be
                // read then, dirty or clean, whatever its slot has.
                map.void_at(position);
            } else {
                map.clean(position);
                map.hide(position);
            }
        }
        Ok(())
    }

    /// The dirty pages from one position to another: of each its last version there. A newer one
    /// behind does not count: it may not be durable.
    fn newest_of(&self, start: u64, end: u64) -> Vec<PageVersion> {
        let map = &self.state.lock().map;
        let mut seen = HashSet::new();
        let versions = (start..end)
            .rev()
            .map(|at| map.version(at))
            .filter(|version| !version.is(VOID) && !version.is(LOST) && version.is(DIRTY));
        versions
            .filter(|version| seen.insert((version.entry.file, version.entry.page)))
            .collect()
    }

    /// Step 1: if the newest version before `first`, all of which are recorded, is clean, it and
    /// all before it are void: or one of these would be the newest. A dirty one stays: home is not
    /// known to be newer until step 4, and what a crash brings back until then goes home again.
    fn void_clean_versions(&self, pages: &[PageVersion], first: u64) -> Result<(), FlashError> {
        let mut stale: Vec<u64> = {
            let map = &self.state.lock().map;
            let before = |v: &PageVersion| map.versions_before(v.position, first);
            let pages = pages.iter().map(before);
            let clean = pages.filter(|versions| versions.first().is_some_and(|v| !v.is(DIRTY)));
            clean.flatten().map(|v| v.position).collect()
        };
        // Of each page the oldest first: if a crash leaves only some of the records, the newest one
        // is what it was.
        stale.sort_unstable();
        self.record_positions(VOIDED, &stale, Map::void_at)
    }
}
