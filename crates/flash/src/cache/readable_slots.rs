//! Reads the pages of a group that leaves. docs/flash-format.md, "Dequeue", step 2.
//!
//! A dirty page that cannot be read is *lost*: the older one at home is never served for it, and
//! the queue goes on without it. That is said of a page only if flash gives other things meanwhile.
//! A device that gives nothing may come back, with all that is on it.

use super::{Cache, HomeBatch, dequeue::LeavingGroups};
use crate::{
    buffer::Buffer,
    error::FlashError,
    layout::{BLOCK, CacheHeader, HEADERS},
    map::PageVersion,
    record::{DIRTY, LOST, PageEntry},
};
use forebay_pool::crc32c;

/// Bytes that are read of what leaves by one request at most: a thread of the server that reads a
/// page waits behind no more.
const READ_AT_ONCE: usize = 256 << 10;
/// Times that a page is read again before it is given up.
const READ_AGAIN: usize = 4;

impl Cache {
    /// Step 2: the group's bytes, in `homing`. What is damaged or unreadable and dirty is lost from
    /// now on; what is so and clean is dropped.
    ///
    /// # Errors
    /// [`FlashError::UnreadablePage`] if flash gives nothing at all: nothing is lost, then.
    pub(super) fn read_leaving(
        &self,
        leaving: &mut LeavingGroups,
        homing: &mut HomeBatch,
    ) -> Result<(), FlashError> {
        let size = self.page_bytes();
        let front = leaving.front;
        self.read_wanted(leaving, &mut homing.bytes);
        let mut lost = Vec::new();
        for versions in [&mut leaving.home, &mut leaving.again] {
            let mut kept = Vec::with_capacity(versions.len());
            for version in versions.drain(..) {
                let at = (version.position - front) as usize * size;
                if version.is(LOST) || self.is_intact(&version, &mut homing.bytes[at..at + size])? {
                    kept.push(version);
                } else if version.is(DIRTY) {
                    lost.push(set_aside(&version));
                }
            }
            *versions = kept;
        }
        leaving.again.append(&mut lost);
        leaving
            .again
            .sort_unstable_by_key(|version| version.position);
        Ok(())
    }

    /// Reads what stays of a group, some of it at a time, from the first page that is wanted to the
    /// last one. What this leaves wrong is read again page by page, and then it is said which page
    /// it is.
    fn read_wanted(&self, leaving: &LeavingGroups, bytes: &mut [u8]) {
        let stays = leaving.home.iter().chain(&leaving.again);
        let mut wanted: Vec<u64> = stays
            .filter(|version| !version.is(LOST))
            .map(|version| version.position)
            .collect();
        wanted.sort_unstable();
        let size = self.page_bytes();
        let at_once = (READ_AT_ONCE / size).max(1) as u64;
        let place = |position: u64| (position - leaving.front) as usize;
        for some in wanted.chunk_by(|a, b| a / at_once == b / at_once) {
            if let (Some(&first), Some(&last)) = (some.first(), some.last()) {
                let to = &mut bytes[place(first) * size..(place(last) + 1) * size];
                let _ = self.flash.read_at(to, self.geometry().slot(first));
            }
        }
    }

    /// True if `bytes` are the version, or are when they were read again.
    fn is_intact(&self, version: &PageVersion, bytes: &mut [u8]) -> Result<bool, FlashError> {
        if crc32c([&*bytes]) == version.entry.crc {
            return Ok(true);
        }
        match self.read_patiently(version, bytes) {
            // By homing, the front does not pass it: it is in the queue still.
            Ok(intact) => Ok(intact),
            Err(error @ FlashError::UnreadablePage { is_gone: true, .. }) => Err(error),
            Err(FlashError::DamagedPage { .. } | FlashError::UnreadablePage { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// As [`read_version`](Self::read_version). One that only flash has is read again if it cannot
    /// be: flash may be gone for a moment only. Whether it is, is asked each time.
    pub(super) fn read_patiently(
        &self,
        version: &PageVersion,
        to: &mut [u8],
    ) -> Result<bool, FlashError> {
        let mut again = READ_AGAIN;
        loop {
            match self.read_version(version, to) {
                Err(FlashError::UnreadablePage { page, source, .. }) if version.is(DIRTY) => {
                    let is_gone = !self.gives_its_header();
                    if is_gone || again == 0 {
                        return Err(FlashError::UnreadablePage {
                            page,
                            source,
                            is_gone,
                        });
                    }
                    again -= 1;
                }
                read => return read,
            }
        }
    }

    /// True if flash can be read elsewhere.
    fn gives_its_header(&self) -> bool {
        let mut block = Buffer::new(BLOCK as usize);
        HEADERS.iter().any(|&at| {
            self.flash.read_at(&mut block, at).is_ok()
                && CacheHeader::decode(&block).is_ok_and(|header| header.owner == self.owner())
        })
    }
}

/// The entry that takes the page's place at the rear.
fn set_aside(version: &PageVersion) -> PageVersion {
    let entry = PageEntry {
        flags: DIRTY | LOST,
        ..version.entry
    };
    PageVersion { entry, ..*version }
}
