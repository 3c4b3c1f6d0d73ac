//! The queue of slots and the map from pages to their newest version, in memory: arrays and
//! indices, no pointer.
//!
//! A *position* counts all pages that ever came in; it is in slot `position % slots`. The queue is
//! `front..rear`; below `recorded` its pages are durable on flash and in the lane. Of a page's
//! versions in the queue the one with the highest position is the newest, and the only one that is
//! ever read. Each version leads to the one before it, so that a tombstone finds them all.

mod tombstones;

use crate::record::{DIRTY, LOST, PageEntry, VOID};
use std::collections::{HashMap, hash_map::Entry};

/// The newest version of its page: the map leads to it.
const NEWEST: u8 = 0x40;
/// It was read since it came in.
const REFERENCED: u8 = 0x80;
/// A clean page that is damaged: read at home. The flag is not durable.
const HIDDEN: u8 = 0x20;

const NO_SLOT: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct MapSlot {
    file: u32,
    page: u32,
    crc: u32,
    /// The next slot of the same bucket.
    next: u32,
    /// Position of the version before it, plus one; stale once it lies before the front.
    older: u64,
    flags: u8,
}

/// The queue's pages of a file.
#[derive(Default)]
struct OfFile {
    /// Versions that are not void.
    versions: u64,
    /// Newest ones that its home does not have.
    dirty: u64,
}

/// A version in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageVersion {
    pub(crate) position: u64,
    pub(crate) entry: PageEntry,
    pub(crate) newest: bool,
    pub(crate) referenced: bool,
    pub(crate) hidden: bool,
}

impl PageVersion {
    pub(crate) fn is(&self, flag: u8) -> bool {
        self.entry.flags & flag != 0
    }
}

/// See the module.
pub(crate) struct Map {
    slots: Box<[MapSlot]>,
    buckets: Box<[u32]>,
    /// Number of changes in each bucket.
    changes: Box<[u32]>,
    pub(crate) front: u64,
    pub(crate) rear: u64,
    pub(crate) recorded: u64,
    /// Pages in the cache: newest versions.
    pub(crate) pages: u64,
    /// Of these, the pages that their homes do not have.
    pub(crate) dirty: u64,
    /// Of each file that has anything in the queue, by its number.
    by_file: HashMap<u32, OfFile>,
    /// Of these, the lost pages.
    pub(crate) lost: u64,
    /// No newest version below this is dirty, but for lost ones.
    pub(crate) clean_below: u64,
}

impl Map {
    pub(crate) fn new(slots: u32, front: u64) -> Self {
        let empty = MapSlot {
            file: 0,
            page: 0,
            crc: 0,
            next: NO_SLOT,
            older: 0,
            flags: VOID,
        };
        let buckets = slots.next_power_of_two() as usize;
        Self {
            slots: vec![empty; slots as usize].into(),
            buckets: vec![NO_SLOT; buckets].into(),
            changes: vec![0; buckets].into(),
            front,
            rear: front,
            recorded: front,
            pages: 0,
            dirty: 0,
            by_file: HashMap::new(),
            lost: 0,
            clean_below: front,
        }
    }

    /// Takes `version` of another map over, at the rear, with notes of it that are not durable.
    pub(crate) fn take_over(&mut self, version: &PageVersion) {
        let position = self.push(version.entry);
        let index = self.index(position);
        if version.referenced {
            self.slots[index].flags |= REFERENCED;
        }
        if version.hidden {
            self.slots[index].flags |= HIDDEN;
        }
    }

    /// Takes the place of `before`: nothing that was asked of that one about changes is true of
    /// this one.
    pub(crate) fn succeed(&mut self, before: &Self) {
        let most = before.changes.iter().max().copied().unwrap_or(0);
        self.changes.fill(most.wrapping_add(1));
    }

    /// Slots that there are.
    pub(crate) fn slots(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Slots in use.
    pub(crate) fn used(&self) -> u64 {
        self.rear - self.front
    }

    /// True if a slot is free.
    pub(crate) fn has_room(&self) -> bool {
        self.used() < self.slots.len() as u64
    }

    fn index(&self, position: u64) -> usize {
        debug_assert!((self.front..self.rear).contains(&position));
        (position % self.slots.len() as u64) as usize
    }

    /// The position in the queue of slot `index`, which is in use.
    fn position(&self, index: u32) -> u64 {
        let slots = self.slots.len() as u64;
        let behind = (u64::from(index) + slots - self.front % slots) % slots;
        self.front + behind
    }

    /// The bucket of a page.
    pub(crate) fn bucket(&self, file: u32, page: u32) -> usize {
        let key = u64::from(file) << 32 | u64::from(page);
        let mixed = (key ^ key >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & (self.buckets.len() - 1)
    }

    /// The number of changes in a bucket: a newer version of one of its pages came, or one was read
    /// at home and may be stale.
    pub(crate) fn changes(&self, bucket: usize) -> u32 {
        self.changes[bucket]
    }

    /// Notes a change of one of the bucket's pages that the map does not see.
    pub(crate) fn changed(&mut self, bucket: usize) {
        self.changes[bucket] = self.changes[bucket].wrapping_add(1);
    }

    /// The version at `position`, which is in the queue.
    pub(crate) fn version(&self, position: u64) -> PageVersion {
        let slot = &self.slots[self.index(position)];
        PageVersion {
            position,
            entry: PageEntry {
                file: slot.file,
                page: slot.page,
                crc: slot.crc,
                flags: slot.flags & crate::record::DURABLE_FLAGS,
            },
            newest: slot.flags & NEWEST != 0,
            referenced: slot.flags & REFERENCED != 0,
            hidden: slot.flags & HIDDEN != 0,
        }
    }

    /// The newest version of a page.
    pub(crate) fn find(&self, file: u32, page: u32) -> Option<PageVersion> {
        let mut at = self.buckets[self.bucket(file, page)];
        while at != NO_SLOT {
            let slot = &self.slots[at as usize];
            if slot.file == file && slot.page == page {
                return Some(self.version(self.position(at)));
            }
            at = slot.next;
        }
        None
    }

    /// Of a page whose newest version is `newest`, the newest that is durable in the lane. What is
    /// not void supersedes what comes before it, recorded or not.
    pub(crate) fn recorded_before(&self, newest: PageVersion) -> Option<PageVersion> {
        if newest.position < self.recorded {
            return Some(newest);
        }
        let before = self.versions_before(newest.position, self.recorded);
        before.first().copied()
    }

    /// A version comes in at the rear. If it is not void it is the newest of its page.
    pub(crate) fn push(&mut self, entry: PageEntry) -> u64 {
        let position = self.rear;
        debug_assert!(self.used() < self.slots.len() as u64);
        let older = if entry.flags & VOID == 0 {
            self.unlink(entry.file, entry.page)
        } else {
            None
        };
        self.rear += 1;
        let index = self.index(position);
        self.slots[index] = MapSlot {
            file: entry.file,
            page: entry.page,
            crc: entry.crc,
            next: NO_SLOT,
            older: older.map_or(0, |older| older + 1),
            flags: entry.flags,
        };
        if entry.flags & VOID == 0 {
            let bucket = self.bucket(entry.file, entry.page);
            let slot = &mut self.slots[index];
            slot.flags |= NEWEST;
            slot.next = self.buckets[bucket];
            self.buckets[bucket] = index as u32;
            self.changed(bucket);
            self.by_file.entry(entry.file).or_default().versions += 1;
            self.count(entry.file, entry.flags, 1);
        }
        position
    }

    /// The map leads to no version of the page any more: the position of the one it led to.
    fn unlink(&mut self, file: u32, page: u32) -> Option<u64> {
        let bucket = self.bucket(file, page);
        let mut before = NO_SLOT;
        let mut at = self.buckets[bucket];
        while at != NO_SLOT {
            let slot = self.slots[at as usize];
            if slot.file == file && slot.page == page {
                match before {
                    NO_SLOT => self.buckets[bucket] = slot.next,
                    before => self.slots[before as usize].next = slot.next,
                }
                self.slots[at as usize].flags &= !NEWEST;
                self.count(file, slot.flags, -1);
                return Some(self.position(at));
            }
            before = at;
            at = slot.next;
        }
        None
    }

    fn count(&mut self, file: u32, flags: u8, by: i64) {
        self.pages = self.pages.saturating_add_signed(by);
        if flags & DIRTY != 0 {
            self.count_dirty(file, by);
        }
        if flags & LOST != 0 {
            self.lost = self.lost.saturating_add_signed(by);
        }
    }

    fn count_dirty(&mut self, file: u32, by: i64) {
        self.dirty = self.dirty.saturating_add_signed(by);
        if let Some(of_file) = self.by_file.get_mut(&file) {
            of_file.dirty = of_file.dirty.saturating_add_signed(by);
        }
    }

    /// A version of the file that was not void is so now, or leaves.
    fn count_gone(&mut self, file: u32) {
        if let Entry::Occupied(mut of_file) = self.by_file.entry(file) {
            of_file.get_mut().versions -= 1;
            if of_file.get().versions == 0 {
                of_file.remove();
            }
        }
    }

    /// Notes that the page at `position` was read.
    pub(crate) fn refer(&mut self, position: u64) {
        let index = self.index(position);
        self.slots[index].flags |= REFERENCED;
    }

    /// The clean page at `position` is read at home from now on.
    pub(crate) fn hide(&mut self, position: u64) {
        if position >= self.front {
            let index = self.index(position);
            self.slots[index].flags |= HIDDEN;
        }
    }

    /// The page at `position` is home.
    pub(crate) fn clean(&mut self, position: u64) {
        if !(self.front..self.rear).contains(&position) {
            return;
        }
        let index = self.index(position);
        let slot = &mut self.slots[index];
        let MapSlot { file, flags, .. } = *slot;
        slot.flags &= !DIRTY;
        if flags & NEWEST != 0 && flags & DIRTY != 0 {
            self.count_dirty(file, -1);
        }
    }

    /// The versions before `first` of the page at `position`, of which anything is needed, the
    /// newest one first.
    pub(crate) fn versions_before(&self, position: u64, first: u64) -> Vec<PageVersion> {
        let page = self.version(position).entry;
        let mut versions = Vec::new();
        let mut next = position + 1;
        while next > self.front {
            let version = self.version(next - 1);
            // What it leads to may have been used again since: then it is another page's, and lies
            // before the front.
            if (version.entry.file, version.entry.page) != (page.file, page.page) {
                break;
            }
            if version.position < first && !version.is(VOID) {
                versions.push(version);
            }
            next = self.slots[self.index(next - 1)].older;
        }
        versions
    }

    /// Versions of a file in the queue, of which anything is needed.
    fn versions_of(&self, file: u32) -> u64 {
        self.by_file.get(&file).map_or(0, |of| of.versions)
    }

    /// Pages of a file that its home has not.
    pub(crate) fn dirty_of(&self, file: u32) -> u64 {
        self.by_file.get(&file).map_or(0, |of| of.dirty)
    }

    /// Moves the front to `to`. A map entry goes only if it still names a version before that.
    pub(crate) fn advance(&mut self, to: u64) {
        for position in self.front..to.min(self.rear) {
            let slot = self.slots[self.index(position)];
            if slot.flags & NEWEST != 0 {
                self.unlink(slot.file, slot.page);
            }
            if slot.flags & VOID == 0 {
                self.count_gone(slot.file);
            }
        }
        self.front = self.front.max(to);
        self.rear = self.rear.max(to);
        self.recorded = self.recorded.max(to);
    }
}

#[cfg(test)]
mod tests;
