//! Dequeue: pages leave, some groups at a time. docs/flash-format.md, "Dequeue".
//!
//! 1. *Judge* the groups at the front: a version that is not the newest, or clean, is dropped; a
//!    dirty one goes home; one that was read gets a second chance at the rear.
//! 2. *Read* them from flash by one read; verify.
//! 3. *Second chances*, unless a newer version came meanwhile.
//! 4. *Commit*, if something dirty at the front is only superseded by what is not durable yet, or
//!    too much is in memory.
//! 5. *Home* (`home`): written sorted, then synced. Until this returned, flash keeps what may be
//!    torn.
//! 6. *Front*: its record, and only then the slots are free.

use super::{
    Cache, HomeBatch,
    group::{AppendOutcome, EnqueueCondition, IncomingPage},
};
use crate::{
    error::FlashError,
    map::PageVersion,
    options::WritePolicy,
    record::{DIRTY, FRONT, LOST, VOID},
    stats::add,
};
use std::{io::IoSlice, sync::atomic::Ordering::Relaxed, time::Instant};

/// Slots without anything that leave at a time, beside a group that has nothing either.
const VOID_AT_ONCE: u64 = 1 << 16;

/// The work of [`Cache::step`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DequeueStep {
    /// Slots that are free now.
    pub freed: u64,
    /// True if there is more to do at once.
    pub more: bool,
}

/// The groups at the front, judged.
pub(super) struct LeavingGroups {
    pub(super) front: u64,
    pub(super) end: u64,
    /// Dirty pages that are to be written home.
    pub(super) home: Vec<PageVersion>,
    /// Pages that get a second chance, and lost ones, which always do.
    pub(super) again: Vec<PageVersion>,
    /// Dirty versions that newer ones have taken the place of.
    superseded: u64,
    /// Everything below this has to be durable before the front moves.
    needed: u64,
}

impl Cache {
    /// Background work, a piece at a time, for a thread of the owner's: a checkpoint if the lane
    /// wants one, and groups from the front. Groups leave from when more slots are in use than the
    /// high watermark says, until no more are than the low one says.
    ///
    /// # Errors
    /// What flash, the lane, or a home says. Nothing is lost: repeat it later.
    pub fn step(&self) -> Result<DequeueStep, FlashError> {
        let checkpoint = self.wants_checkpoint() && !self.flash_rests();
        if checkpoint && let Err(error) = self.checkpoint() {
            // Flash that takes none may be read still, and pages leave it.
            if !matches!(error, FlashError::Flash { .. }) {
                return Err(error);
            }
        }
        let (used, is_any_recorded) = {
            let map = &self.state.lock().map;
            // Lost pages stay until they are written again or given up, however often the queue
            // turns.
            (map.used() - map.lost, map.recorded > map.front)
        };
        self.judge_worth();
        let resting = !self.flash_pays();
        let [low, high] = match self.policy() {
            WritePolicy::Off => [0, 0],
            _ if resting => [0, 0],
            _ => [0, 1].map(|at| u64::from(self.watermarks[at].load(Relaxed)).min(100)),
        };
        let of = |percent: u64| self.slots() * percent / 100;
        if used > of(high) {
            self.emptying.store(true, Relaxed);
        } else if used <= of(low) {
            self.emptying.store(false, Relaxed);
        }
        if !self.emptying.load(Relaxed) || !self.home_limit.is_open() {
            return Ok(DequeueStep::default());
        }
        // No thread waits for these slots: the device is the server's, and so is the time at which
        // it syncs what it wrote.
        if resting && !(is_any_recorded && self.worth.may_empty()) {
            return Ok(DequeueStep::default());
        }
        let begun = Instant::now();
        let freed = self.dequeue(&mut self.homing.lock());
        if resting {
            self.worth.emptied(begun.elapsed());
        }
        let freed = freed?;
        Ok(DequeueStep {
            freed,
            more: !resting && freed > 0 && used - freed.min(used) > of(low),
        })
    }

    /// Frees slots, for a page that found none.
    pub(super) fn make_room(&self) -> Result<(), FlashError> {
        let mut homing = self.homing.lock();
        let (used, lost) = {
            let map = &self.state.lock().map;
            (map.used(), map.lost)
        };
        // Another thread may have done it while this one waited.
        if used < self.slots_for_pages() {
            return Ok(());
        }
        if lost + u64::from(self.options.group_pages) > self.slots_for_pages() {
            return Err(self.too_many_lost());
        }
        self.dequeue(&mut homing).map(drop)
    }

    /// Lets the groups at the front go: the number of slots that are free now.
    pub(super) fn dequeue(&self, homing: &mut HomeBatch) -> Result<u64, FlashError> {
        let mut leaving = self.judge(homing)?;
        if leaving.front == leaving.end {
            return Ok(0);
        }
        let begun = Instant::now();
        self.read_leaving(&mut leaving, homing)?;
        let read = begun.elapsed();
        self.keep(&mut leaving, homing)?;
        let recorded = self.state.lock().map.recorded;
        if leaving.needed > recorded {
            self.make_durable_within(leaving.needed, homing)?;
            self.drop_superseded(&mut leaving);
        }
        let begun = Instant::now();
        self.write_home(&leaving.home, &homing.bytes, |version| {
            version.position - leaving.front
        })?;
        self.move_front(&leaving)?;
        // With other policies, and while flash does not pay, they leave early: that says nothing of
        // how many are written again before they do.
        if self.is_adaptive() && self.flash_pays() {
            let took = read + begun.elapsed();
            (self.worth.writes).left(leaving.home.len(), leaving.superseded, took);
        }
        Ok(leaving.end - leaving.front)
    }

    /// Pages that became durable in step 4 may have gone home around flash: no older version is
    /// written over them, whatever else came in since.
    fn drop_superseded(&self, leaving: &mut LeavingGroups) {
        let map = &self.state.lock().map;
        leaving.home.retain(|version| {
            let newest = map.find(version.entry.file, version.entry.page);
            let recorded = newest.and_then(|newest| map.recorded_before(newest));
            recorded.is_some_and(|recorded| recorded.position == version.position)
        });
    }

    /// Step 1.
    fn judge(&self, homing: &mut HomeBatch) -> Result<LeavingGroups, FlashError> {
        let (recorded, rear) = {
            let map = &self.state.lock().map;
            (map.recorded > map.front, map.rear)
        };
        if !recorded {
            self.make_durable_within(rear, homing)?;
        }
        let around = self.goes_around();
        let map = &self.state.lock().map;
        let slots = self.slots();
        let front = map.front;
        let end = map
            .recorded
            .min(front + self.slots_leaving())
            .min(front + slots - front % slots);
        let mut leaving = LeavingGroups {
            front,
            end,
            home: Vec::new(),
            again: Vec::new(),
            superseded: 0,
            needed: 0,
        };
        let mut is_void = true;
        // A clean page stays for its reads alone.
        let takes_clean = self.flash_pays_for_reads();
        let groups = (end - front).div_ceil(self.options.group_pages.into());
        let mut chances = match around {
            true => 0,
            false => groups * u64::from(self.options.second_chances_max),
        };
        for position in front..end {
            let version = map.version(position);
            if version.is(VOID) {
                continue;
            }
            is_void = false;
            if !version.newest {
                // Until the version that took its place is durable, a crash would bring this one
                // back.
                let newest = map.find(version.entry.file, version.entry.page);
                if let Some(newest) = newest.filter(|_| version.is(DIRTY)) {
                    leaving.superseded += 1;
                    leaving.needed = leaving.needed.max(newest.position + 1);
                }
            } else if version.is(LOST) {
                leaving.again.push(version);
            } else if version.referenced
                && !version.hidden
                && chances > 0
                && (takes_clean || version.is(DIRTY))
            {
                chances -= 1;
                leaving.again.push(version);
            } else if version.is(DIRTY) {
                leaving.home.push(version);
            }
        }
        if is_void {
            // Slots that a resize has added, for example: they leave together.
            let most = map.recorded.min(end + VOID_AT_ONCE);
            let void = (end..most).take_while(|&position| map.version(position).is(VOID));
            leaving.end = end + void.count() as u64;
        }
        Ok(leaving)
    }

    /// Step 3. Where no slot is free but the last one, which is kept for lost pages, a dirty page
    /// goes home instead; a lost one that finds none ends the group before it.
    fn keep(&self, leaving: &mut LeavingGroups, homing: &HomeBatch) -> Result<(), FlashError> {
        let size = self.page_bytes();
        for version in std::mem::take(&mut leaving.again) {
            if version.position >= leaving.end {
                break;
            }
            let Some(file) = self.files.read().get(version.entry.file).cloned() else {
                continue;
            };
            let at = (version.position - leaving.front) as usize * size;
            let incoming = IncomingPage {
                file: &file,
                page: version.entry.page,
                flags: version.entry.flags,
                bytes: &homing.bytes[at..at + size],
                on: EnqueueCondition::Newest(version.position),
            };
            match self.append_page(&incoming, u64::from(!version.is(LOST)))? {
                AppendOutcome::Full if version.is(LOST) => {
                    if version.position == leaving.front {
                        return Err(self.damaged(version.entry.file, version.entry.page));
                    }
                    leaving.end = version.position;
                }
                AppendOutcome::Full if version.is(DIRTY) => leaving.home.push(version),
                AppendOutcome::Full => {}
                done => {
                    if version.is(DIRTY) {
                        leaving.needed = self.state.lock().map.rear;
                    }
                    if done == AppendOutcome::Done && !version.is(LOST) {
                        forebay_pool::failpoint!("flash:second-chance");
                        add(&self.counters.second_chances, 1);
                    }
                }
            }
        }
        let end = leaving.end;
        leaving.home.retain(|version| version.position < end);
        let state = self.state.lock();
        if self.is_full_of_groups(&state) {
            // Clean ones need no sync for their own sake, but memory.
            leaving.needed = state.map.rear;
        }
        Ok(())
    }

    /// Step 6.
    fn move_front(&self, leaving: &LeavingGroups) -> Result<(), FlashError> {
        let end = leaving.end;
        self.record(|cache, _| {
            if !cache.try_append(FRONT, &[IoSlice::new(&end.to_le_bytes())])? {
                return Ok(None);
            }
            cache.state.lock().map.advance(end);
            Ok(Some(()))
        })?;
        forebay_pool::failpoint!("flash:front");
        let dropped = end - leaving.front - leaving.home.len() as u64;
        add(&self.counters.dropped_versions, dropped);
        Ok(())
    }
}
