//! Another size, with the cache's pages kept. docs/flash-format.md, "Another size".
//!
//! 1. *Lengthen* the flash file, if it is to be longer.
//! 2. *Home*: what only the slots that go have is written there, and recorded as clean. Pages come
//!    in meanwhile; what they leave is little, and goes home while none comes in.
//! 3. *Checkpoint*: the queue as the new layout has it, to both of its regions; synced. Neither
//!    region is over anything that the layout before needs.
//! 4. *Header* B as it is, and then A as it will be, each synced: from here on the new layout
//!    counts. In memory, too.
//! 5. *Record* in the lane of which layout what follows is. *Header* B, synced.
//! 6. *Shorten* the flash file, if it is to be shorter.
//!
//! No page is moved. A page keeps its slot, and gets another position: one that is higher than all
//! before, so a thread that holds one of these finds that the front has passed it.

mod plan;

use super::{
    Cache, HomeBatch, device::FlashDevice, flush::Flushed, log::finish, open::check_options,
};
use crate::{
    cache::flush::FlushProgress,
    error::FlashError,
    layout::{CacheGeometry, CacheHeader, HEADERS},
    map::Map,
    record::{FRONT, LAYOUT, PageEntry, VOID},
    stats::add,
};
use parking_lot::MutexGuard;
use plan::ResizePlan;
use std::{io::IoSlice, ops::ControlFlow, sync::atomic::Ordering::Relaxed};

/// While pages come in, the slots that go are looked through so often at most.
const ROUNDS: usize = 16;
/// Slots that are looked at before readers get the map again.
const LOOKED_AT_ONCE: u64 = 4096;

/// While as much has gone home in a second as may.
const LIMITED: std::time::Duration = std::time::Duration::from_millis(10);

/// The outcome of a resize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ResizedCache {
    /// Pages written home because their slots went.
    pub pages: u64,
    /// Slots that there are now.
    pub slots: u64,
    /// False if the caller stopped it: the cache has the size that it had.
    pub complete: bool,
}

/// The lane after its segment was ended, which nothing is appended to meanwhile.
struct EndedLane<'a> {
    /// The number of the last checkpoint.
    last_checkpoint: MutexGuard<'a, u64>,
    /// Every record is below this.
    through: u64,
    _log: MutexGuard<'a, Vec<u8>>,
}

impl Cache {
    /// Gives the cache `bytes` bytes, also while it is in use. What is in it stays in it: if it
    /// becomes larger all, and if it becomes smaller what is in slots that stay. What only the
    /// others have is written home first; `progress` hears of it before and after each batch, and
    /// again and again while as much went home as may, and may stop it: flash is as long as it was
    /// then. A resize that is cut is repeated, and goes on. Pages come in all the time, but for as
    /// long as the metadata is written to both regions.
    ///
    /// New slots are used once the queue's front has come to where they are: after one turn at the
    /// latest.
    ///
    /// # Errors
    /// [`FlashError::BadSize`] with the bound; [`FlashError::DamagedPages`] if a slot that goes has
    /// a page that cannot be read; what flash, the lane or a home says. The cache has one of the
    /// two sizes then, whole.
    pub fn resize(
        &self,
        bytes: u64,
        mut progress: impl FnMut(FlushProgress) -> ControlFlow<()>,
    ) -> Result<ResizedCache, FlashError> {
        let _one_at_a_time = self.resizing.lock();
        // Flash may be the length of either layout only as long as it has all of both.
        self.check_resized()?;
        let there = FlashDevice(&*self.flash).bytes()?;
        let mut resized = ResizedCache {
            complete: true,
            ..ResizedCache::default()
        };
        let group = self.options.group_pages;
        if let Some(geometry) = self.geometry().resized(bytes, group)? {
            check_options(&geometry, &self.options)?;
            if bytes > there {
                self.set_flash_bytes(bytes)?;
            }
            forebay_pool::failpoint!("flash:lengthened");
            let cleared = self.clear_slots(&geometry, &mut progress, &mut resized);
            if !matches!(cleared, Ok(true)) {
                resized.complete = false;
                // Nothing is behind what was there, and its space is the file system's again.
                let given_back = match bytes > there {
                    true => self.set_flash_bytes(there),
                    false => Ok(()),
                };
                return cleared.and(given_back).map(|()| resized);
            }
            self.take_size(&geometry, &mut resized)?;
        }
        // Also what an earlier one was cut before.
        if bytes != FlashDevice(&*self.flash).bytes()? {
            self.set_flash_bytes(bytes)?;
        }
        forebay_pool::failpoint!("flash:resized");
        resized.slots = self.slots();
        Ok(resized)
    }

    /// Makes flash so long, durably: a sync of what other threads have written to it as well. Where
    /// it only has no room it goes on taking pages.
    fn set_flash_bytes(&self, bytes: u64) -> Result<(), FlashError> {
        self.syncing_flash(|| self.flash.set_bytes(bytes))
            .map_err(|e| self.flash_error("changing its length", e))
    }

    /// True if a resize to `bytes` bytes changes nothing.
    ///
    /// # Errors
    /// [`FlashError::BadSize`]; what flash says of its length.
    pub fn is_of_size(&self, bytes: u64) -> Result<bool, FlashError> {
        let resized = self.geometry().resized(bytes, self.options.group_pages)?;
        Ok(resized.is_none() && FlashDevice(&*self.flash).bytes()? == bytes)
    }

    /// Step 2, while pages come in: false if the caller stopped it.
    fn clear_slots(
        &self,
        geometry: &CacheGeometry,
        mut progress: impl FnMut(FlushProgress) -> ControlFlow<()>,
        resized: &mut ResizedCache,
    ) -> Result<bool, FlashError> {
        for round in 0..ROUNDS {
            let going = self.pages_that_go(geometry);
            let of = going.len() as u64;
            if round > 0 && of <= u64::from(self.options.group_pages) {
                break;
            }
            let mut done = 0;
            // Also where no page goes: to make flash longer may have taken long.
            if progress(FlushProgress { done, of }).is_break() {
                return Ok(false);
            }
            for batch in going.chunks(self.options.group_pages as usize) {
                // As long as this takes the caller has other things to do, and may lift the limit.
                while !self.home_limit.is_open() {
                    if progress(FlushProgress { done, of }).is_break() {
                        return Ok(false);
                    }
                    std::thread::sleep(LIMITED);
                }
                self.bring_slots_home(batch, &mut self.homing.lock(), resized)?;
                done += batch.len() as u64;
                if progress(FlushProgress { done, of }).is_break() && done < of {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn bring_slots_home(
        &self,
        batch: &[(u32, u32)],
        homing: &mut HomeBatch,
        resized: &mut ResizedCache,
    ) -> Result<(), FlashError> {
        let mut flushed = Flushed::default();
        self.flush_batch(batch, homing, &mut flushed)?;
        resized.pages += flushed.pages;
        match flushed.lost.first() {
            None => Ok(()),
            Some(first) => Err(FlashError::DamagedPages {
                count: flushed.lost.len(),
                first: first.clone(),
            }),
        }
    }

    /// The pages of which slots that go have the newest version, and home an older one; by file and
    /// page.
    fn pages_that_go(&self, geometry: &CacheGeometry) -> Vec<(u32, u32)> {
        let (rear, plan) = {
            let map = &self.state.lock().map;
            (
                map.rear,
                ResizePlan::new(map, geometry, self.options.group_pages),
            )
        };
        // What comes in behind is of the next round.
        self.dirty_pages(|v| v.position < rear && !plan.keeps(v.position))
    }

    /// The end of step 2, and steps 3 to 5: nothing comes in, leaves, or is recorded meanwhile.
    fn take_size(
        &self,
        geometry: &CacheGeometry,
        resized: &mut ResizedCache,
    ) -> Result<(), FlashError> {
        let mut homing = self.homing.lock();
        let _nothing_comes_in = self.entrance.write();
        let rear = self.state.lock().map.rear;
        self.make_durable_within(rear, &mut homing)?;
        let going = self.pages_that_go(geometry);
        for batch in going.chunks(self.options.group_pages as usize) {
            self.bring_slots_home(batch, &mut homing, resized)?;
        }
        // What is kept of pages on their way home is known by its position.
        self.give_up_copies(&mut homing)?;
        let _committing = self.committing.lock();
        self.forget_open_group();
        let mut ended = self.end_records()?;
        let (last, through) = (&mut ended.last_checkpoint, ended.through);
        let map = self.map_for(geometry);
        self.write_checkpoints(geometry, &map, [**last + 1, **last + 2], through)?;
        forebay_pool::failpoint!("flash:resize-checkpoints");
        self.change_header(geometry)?;
        forebay_pool::failpoint!("flash:resize-header");
        self.become_resized(geometry, map);
        **last += 2;
        self.skipped.store(false, Relaxed);
        self.release_below(through);
        self.record_layout()?;
        // The next open of the cache writes it anew, if flash does not take it now.
        let header = *self.header.read();
        if let Err(FlashError::Flash { doing, source, .. }) =
            FlashDevice(&*self.flash).write_headers(&header, &HEADERS[1..])
        {
            let _ = self.flash_failed(doing, source);
        }
        Ok(())
    }

    /// A group that is open and has no page begins at a position that will be none.
    fn forget_open_group(&self) {
        let mut tail = self.tail.lock();
        let mut state = self.state.lock();
        debug_assert!(state.pending.is_empty());
        tail.group = None;
        state.open = None;
    }

    /// Ends the lane's segment, so that no record of this layout is behind the address that is
    /// given back.
    fn end_records(&self) -> Result<EndedLane<'_>, FlashError> {
        loop {
            {
                let last_checkpoint = self.checkpointer.lock();
                let log = self.log.lock();
                let front = self.state.lock().map.front;
                // Only a segment with a record can be sealed.
                if self.try_append(FRONT, &[IoSlice::new(&front.to_le_bytes())])? {
                    return Ok(EndedLane {
                        last_checkpoint,
                        through: self.lane.seal(),
                        _log: log,
                    });
                }
            }
            self.checkpoint()?;
        }
    }

    /// The queue with the slots of `geometry`: each page that stays is in the slot that it is in.
    fn map_for(&self, geometry: &CacheGeometry) -> Map {
        let plan = ResizePlan::new(&self.state.lock().map, geometry, self.options.group_pages);
        let mut map = Map::new(geometry.slots, plan.front);
        let void = PageEntry {
            file: 0,
            page: 0,
            crc: 0,
            flags: VOID,
        };
        for (number, kept) in plan.kept.iter().enumerate() {
            if number > 0 {
                for _ in 0..plan.gap {
                    map.push(void);
                }
            }
            let mut at = kept.start;
            while at < kept.end {
                // Nothing in there changes but what is known of it and not durable.
                let to = kept.end.min(at + LOOKED_AT_ONCE);
                let now = &self.state.lock().map;
                for position in at..to {
                    let version = now.version(position);
                    if version.newest {
                        map.take_over(&version);
                    } else {
                        // Everything that took its place is durable.
                        map.push(void);
                    }
                }
                at = to;
            }
        }
        map.recorded = map.rear;
        map
    }

    /// Step 3.
    fn write_checkpoints(
        &self,
        geometry: &CacheGeometry,
        map: &Map,
        sequences: [u64; 2],
        through: u64,
    ) -> Result<(), FlashError> {
        self.write_durably(|| {
            for sequence in sequences {
                let queue = [map.front, map.recorded];
                let (checkpoint, mut bytes) =
                    self.begin_checkpoint(geometry.layout(), sequence, through, queue);
                for position in map.front..map.recorded {
                    map.version(position).entry.encode(&mut bytes);
                }
                let bytes = finish(checkpoint, bytes);
                self.flash
                    .write_at(&bytes, geometry.checkpoint(sequence % 2))
                    .map_err(|e| self.flash_failed("writing a checkpoint", e))?;
                add(&self.counters.flash_bytes, bytes.len() as u64);
            }
            Ok(())
        })
    }

    /// Step 4, on flash. If it fails the header says what it said, or nothing is recorded any more.
    fn change_header(&self, geometry: &CacheGeometry) -> Result<(), FlashError> {
        let before = *self.header.read();
        let after = CacheHeader {
            geometry: *geometry,
            ..before
        };
        let device = FlashDevice(&*self.flash);
        let failed = |error| match error {
            FlashError::Flash { doing, source, .. } => self.flash_failed(doing, source),
            other => other,
        };
        // It is all there is while A is written, and may be older: flash did not take it at an
        // earlier resize.
        (device.write_headers(&before, &HEADERS[1..])).map_err(failed)?;
        let Err(error) = device.write_headers(&after, &HEADERS[..1]) else {
            return Ok(());
        };
        if device.write_headers(&before, &HEADERS[..1]).is_err() {
            self.half_resized.store(true, Relaxed);
            return self.check_resized();
        }
        Err(failed(error))
    }

    /// An error once it is not known which layout counts: flash and lane are whole in both of them,
    /// and stay so.
    pub(super) fn check_resized(&self) -> Result<(), FlashError> {
        match self.half_resized.load(Relaxed) {
            false => Ok(()),
            true => Err(FlashError::HalfResized {
                flash: self.flash.describe(),
            }),
        }
    }

    /// Step 4, in memory.
    fn become_resized(&self, geometry: &CacheGeometry, mut map: Map) {
        let before = {
            let mut state = self.state.lock();
            map.succeed(&state.map);
            self.header.write().geometry = *geometry;
            std::mem::replace(&mut state.map, map)
        };
        drop(before);
    }

    /// Step 5: a header of another layout, found with this record, is known to be an old one.
    pub(super) fn record_layout(&self) -> Result<(), FlashError> {
        let layout = self.geometry().layout();
        if layout > 0 {
            // Where no segment has room, the checkpoint that makes some is enough.
            self.try_append(LAYOUT, &[IoSlice::new(&layout.to_le_bytes())])?;
        }
        Ok(())
    }
}
