//! Another size of a cache: the offsets of its parts then. docs/flash-format.md, "Another size".
//!
//! The slots stay where they are, and so does what is in them. The checkpoints lie behind the last
//! slot, at a place that has nothing the layout before needs: neither its checkpoints, nor a page
//! that only flash has. A size that has no room there, as the first one of a small cache, has them
//! before the slots again, where they were when it was made. So both layouts are whole until the
//! header says which one counts.

use super::{BLOCK, CHECKPOINTS, CacheGeometry, GROUPS_MIN, MovedLayout};
use crate::error::FlashError;

/// No offset is as high: what is computed from a header never overflows.
const OFFSET_MAX: u64 = 1 << 56;

impl MovedLayout {
    /// True if a cache of these sizes can lie so.
    pub(super) fn is_sound(&self, geometry: &CacheGeometry) -> bool {
        self.layout > 0
            && self.slots_first > 0
            && self.checkpoints.is_multiple_of(BLOCK)
            && self.checkpoints < OFFSET_MAX
            && (self.is_behind(geometry) || self.is_before(geometry))
    }

    /// The checkpoints are behind the slots.
    fn is_behind(&self, geometry: &CacheGeometry) -> bool {
        self.checkpoints >= geometry.data_end()
    }

    /// The checkpoints are where they were when the cache was made.
    fn is_before(&self, geometry: &CacheGeometry) -> bool {
        self.checkpoints == CHECKPOINTS && geometry.slots <= self.slots_first
    }
}

impl CacheGeometry {
    /// The layout of this cache with `bytes` bytes; `None` if it has that size.
    ///
    /// # Errors
    /// [`FlashError::BadSize`] that names the bound.
    pub fn resized(&self, bytes: u64, group_pages: u32) -> Result<Option<Self>, FlashError> {
        let is_so = match self.moved {
            Some(moved) => moved.wanted == bytes,
            None => {
                let made = Self::fit(bytes, self.page_bytes, self.files_max, group_pages)?;
                made.slots == self.slots
            }
        };
        if is_so {
            return Ok(None);
        }
        let mut new = *self;
        let room = bytes.saturating_sub(self.data()) / u64::from(self.page_bytes);
        new.slots = u32::try_from(room).unwrap_or(u32::MAX - 1);
        new.moved = Some(self.moved_to(new.slots, bytes));
        while new.slots > 0 && new.bytes() > bytes {
            new.slots -= 1;
            new.moved = Some(self.moved_to(new.slots, bytes));
        }
        let bad = |reason: String| Err(FlashError::BadSize { reason });
        let needed = group_pages.saturating_mul(GROUPS_MIN);
        if new.slots < needed
            && let Some(before) = self.back_before(bytes, needed)
        {
            return Ok(Some(before));
        }
        if new.slots < needed {
            return bad(format!(
                "{bytes} bytes hold {} pages of {} bytes beside the metadata of {} files; {GROUPS_MIN} groups of {group_pages} pages are needed. Give a larger file",
                new.slots, self.page_bytes, self.files_max
            ));
        }
        if bytes > self.bytes() && new.slots < self.slots {
            let mut same = *self;
            same.moved = Some(self.moved_to(self.slots, bytes));
            return bad(format!(
                "{bytes} bytes are too little more than it has, since its metadata is moved behind its pages; {} at least are needed",
                same.bytes().next_multiple_of(BLOCK)
            ));
        }
        Ok(Some(new))
    }

    /// With the checkpoints where they were when the cache was made, if nothing is there now: so it
    /// can have its first size again, whose slots leave no room behind them. `None` if it has fewer
    /// slots than are needed.
    fn back_before(&self, bytes: u64, needed: u32) -> Option<Self> {
        let moved = self
            .moved
            .filter(|moved| moved.checkpoints >= self.data())?;
        let room = bytes.saturating_sub(self.data()) / u64::from(self.page_bytes);
        let slots = u32::try_from(room)
            .unwrap_or(u32::MAX)
            .min(moved.slots_first);
        let moved = MovedLayout {
            layout: moved.layout + 1,
            checkpoints: CHECKPOINTS,
            wanted: bytes,
            ..moved
        };
        (slots >= needed).then_some(Self {
            slots,
            moved: Some(moved),
            ..*self
        })
    }

    /// Behind the slots, and not over the checkpoints that count until then.
    fn moved_to(&self, slots: u32, wanted: u64) -> MovedLayout {
        let end = self.data() + u64::from(slots) * u64::from(self.page_bytes);
        let behind = end.next_multiple_of(BLOCK);
        let now = [self.checkpoint(0), self.checkpoint(2)];
        let overlaps = behind < now[1] && behind + 2 * self.region_of(slots) > now[0];
        MovedLayout {
            layout: self.layout() + 1,
            slots_first: self.moved.map_or(self.slots, |moved| moved.slots_first),
            checkpoints: if overlaps { now[1] } else { behind },
            wanted,
        }
    }
}
