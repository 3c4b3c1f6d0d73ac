//! The part of the queue that stays in a cache of another size.

use crate::{layout::CacheGeometry, map::Map};
use std::ops::Range;

/// The positions that stay, in the order of the queue, and where they are then.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResizePlan {
    /// As they are now: of the lap that the front is in, and of the next one.
    pub(super) kept: [Range<u64>; 2],
    /// Slots between the two, which are new.
    pub(super) gap: u64,
    /// The front, as it will be.
    pub(super) front: u64,
}

impl ResizePlan {
    /// Of the map with the slots of `geometry`. If these are fewer, a group of `group_pages` is
    /// free at least.
    pub(super) fn new(map: &Map, geometry: &CacheGeometry, group_pages: u32) -> Self {
        Self::of(
            [map.front, map.rear],
            map.slots(),
            u64::from(geometry.slots),
            u64::from(group_pages),
        )
    }

    fn of([front, rear]: [u64; 2], slots: u64, new: u64, group: u64) -> Self {
        let lap = front - front % slots;
        let within = |from: u64, to: u64, lap: u64| {
            let end = to.min(lap + slots.min(new));
            from.min(end)..end
        };
        let first = within(front, rear.min(lap + slots), lap);
        let next = lap + slots;
        let second = within(next.min(rear), rear, next);
        let second = if rear > next { second } else { rear..rear };
        let mut kept = [first, second];
        if new < slots {
            let length = |range: &Range<u64>| range.end - range.start;
            let all = length(&kept[0]) + length(&kept[1]);
            let mut excess = all.saturating_sub(new - group.min(new));
            for range in &mut kept {
                let go = excess.min(range.end - range.start);
                range.start += go;
                excess -= go;
            }
        }
        let [first, second] = &kept;
        let gap = match first.is_empty() || second.is_empty() {
            true => 0,
            false => new.saturating_sub(slots),
        };
        let begins = if first.is_empty() { second } else { first };
        let slot = begins.start % slots % new;
        // The first one in that slot that is no position now, nor was one.
        let front = rear.next_multiple_of(new) + slot;
        Self { kept, gap, front }
    }

    pub(super) fn keeps(&self, position: u64) -> bool {
        self.kept.iter().any(|range| range.contains(&position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every queue of every cache up to a size: what stays is in the slot that it was in.
    ///
    /// Promise: as `a_cache_of_another_size_has_what_it_had_and_goes_on`.
    #[test]
    fn whatever_stays_keeps_its_slot_and_no_two_have_the_same() {
        for slots in 4..12u64 {
            for new in 4..16u64 {
                for front in 0..2 * slots {
                    for rear in front..=front + slots {
                        check([front, rear], slots, new);
                    }
                }
            }
        }
    }

    fn check(queue: [u64; 2], slots: u64, new: u64) {
        let said = format!("{queue:?} of {slots} to {new}");
        let plan = ResizePlan::of(queue, slots, new, 2);
        assert!(plan.front >= queue[1], "{said}");
        let mut position = plan.front;
        let mut kept = 0;
        for (number, range) in plan.kept.iter().enumerate() {
            if number > 0 {
                position += plan.gap;
            }
            for before in range.clone() {
                assert_eq!(before % slots, position % new, "{said}: {plan:?}");
                assert!((queue[0]..queue[1]).contains(&before), "{said}: {plan:?}");
                position += 1;
                kept += 1;
            }
        }
        assert!(position - plan.front <= new, "{said}: {plan:?}");
        let all = queue[1] - queue[0];
        if new >= slots {
            assert_eq!(kept, all, "{said}: {plan:?}");
        } else {
            let may = (queue[0]..queue[1]).filter(|p| p % slots < new).count() as u64;
            assert_eq!(kept, may.min(new - 2), "{said}: {plan:?}");
        }
    }
}
