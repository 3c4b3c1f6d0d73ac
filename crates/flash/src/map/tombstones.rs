//! Tombstones: ranges of pages that nobody needs any more.

use super::{Map, NEWEST};
use crate::record::VOID;
use std::collections::HashMap;

/// Tombstones of at most so many pages look them up, longer ones look for them in the queue.
const LOOKED_UP_MAX: u32 = 256;

impl Map {
    /// Nothing of the version at `position` is needed.
    pub(crate) fn void_at(&mut self, position: u64) {
        if (self.front..self.rear).contains(&position) {
            self.void_slot(self.index(position));
        }
    }

    /// Nothing of the version in slot `index` is needed.
    fn void_slot(&mut self, index: usize) {
        let slot = self.slots[index];
        if slot.flags & VOID != 0 {
            return;
        }
        if slot.flags & NEWEST != 0 {
            self.unlink(slot.file, slot.page);
            let bucket = self.bucket(slot.file, slot.page);
            self.changed(bucket);
        }
        self.slots[index].flags |= VOID;
        self.count_gone(slot.file);
    }

    /// All versions of these pages before position `before` are needed no more.
    pub(crate) fn void(&mut self, file: u32, pages: [u32; 2], before: u64) {
        let [first, last] = pages;
        if last < first {
            return;
        }
        if last - first < LOOKED_UP_MAX {
            for page in first..=last {
                self.void_page(file, page, before);
            }
            return;
        }
        // From the rear to the file's oldest version: of one that was just made all are there.
        let mut left = self.versions_of(file);
        let mut position = self.rear;
        while left > 0 && position > self.front {
            position -= 1;
            let index = self.index(position);
            let slot = &self.slots[index];
            if slot.file != file || slot.flags & VOID != 0 {
                continue;
            }
            left -= 1;
            if position < before && (first..=last).contains(&slot.page) {
                self.void_slot(index);
            }
        }
    }

    /// The same of all pages of some files, each before its position, by one look at the queue.
    pub(crate) fn void_files(&mut self, before: &HashMap<u32, u64>) {
        if before.is_empty() {
            return;
        }
        for position in self.front..self.rear {
            let index = self.index(position);
            let before = before.get(&self.slots[index].file);
            if before.is_some_and(|&before| position < before) {
                self.void_slot(index);
            }
        }
    }

    fn void_page(&mut self, file: u32, page: u32, before: u64) {
        let Some(newest) = self.find(file, page) else {
            return;
        };
        let mut next = newest.position + 1;
        while next > self.front {
            let index = self.index(next - 1);
            if next <= before {
                self.void_slot(index);
            }
            next = self.slots[index].older;
        }
    }
}
