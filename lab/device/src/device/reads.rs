//! Reads: what is not in memory is fetched, and more of what is read on.

use super::{Device, FileKey, Mode, pages, requests::Kind};
use crate::{
    PAGE_BYTES,
    cache::CLEAN,
    shared::{FileState, count},
};
use std::sync::atomic::Ordering::Relaxed;

impl Device<'_> {
    /// `bytes` at `offset` are read: when they are there.
    #[must_use]
    pub fn read(&self, key: FileKey, offset: u64, bytes: u64, mode: Mode, now: u64) -> u64 {
        if bytes == 0 {
            return now;
        }
        if mode.direct || !self.profile.cache.reads {
            return self.request(Kind::Read, key, offset, bytes, now);
        }
        let file = self.file(key);
        let end = offset.saturating_add(bytes);
        let mut ahead = 0;
        if file.read_end.swap(end, Relaxed) == offset {
            // A reader that goes on gets more: up to the file's end, if that is known.
            let window = self.profile.cache.read_ahead_kib * 1024;
            ahead = window.min(file.end.load(Relaxed).saturating_sub(end));
        }
        let done = self.fetch(key, file, offset, bytes, ahead, now);
        if done == now {
            self.count(count::CACHED_READS, 1);
        }
        done
    }

    /// A page of a mapping is touched: `bytes` at `offset` are read with it: when they are there.
    #[must_use]
    pub fn touch(&self, key: FileKey, offset: u64, bytes: u64, now: u64) -> u64 {
        if !self.profile.cache.reads {
            return self.request(Kind::Read, key, offset, bytes, now);
        }
        self.fetch(key, self.file(key), offset, bytes, 0, now)
    }

    /// Reads what is not in memory of `bytes` at `offset`, in as few requests as there are gaps; if
    /// any of that is not there, `ahead` bytes more.
    fn fetch(
        &self,
        key: FileKey,
        file: &FileState,
        offset: u64,
        bytes: u64,
        ahead: u64,
        now: u64,
    ) -> u64 {
        let wanted = pages(offset, bytes);
        let last = wanted.end;
        let mut done = now;
        let mut gap = None;
        for number in wanted {
            let page = self.page(key, file, number);
            if self.pages.find(page).is_some() {
                if let Some(from) = gap.take() {
                    done = done.max(self.fill(key, file, from, number, now));
                }
            } else {
                gap.get_or_insert(number);
            }
        }
        if let Some(from) = gap {
            let last = last.max(pages(offset, bytes + ahead).end);
            done = done.max(self.fill(key, file, from, last, now));
        }
        done
    }

    /// Reads pages into memory.
    fn fill(&self, key: FileKey, file: &FileState, from: u64, to: u64, now: u64) -> u64 {
        for number in from..to {
            let page = self.page(key, file, number);
            if self.pages.find(page).is_none() {
                self.pages.insert(page, CLEAN);
            }
        }
        self.request(
            Kind::Read,
            key,
            from * PAGE_BYTES,
            (to - from) * PAGE_BYTES,
            now,
        )
    }
}
