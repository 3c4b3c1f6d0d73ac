//! Reads: the newest version of a page is found, in memory or on flash. docs/flash-format.md,
//! "Read".

use super::{Cache, group::Group};
use crate::{
    error::FlashError,
    file::CachedFile,
    map::PageVersion,
    record::{DIRTY, LOST},
    stats::add,
};
use forebay_pool::crc32c;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The newest version of the page.
    Hit,
    /// Nothing: the page is to be read at home, and may be [admitted](Cache::admit) with this.
    Miss(Ticket),
}

/// The mark that a page was not in the cache at some moment: a version read at home after that,
/// while nothing happened to the page, is its newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(super) changes: u32,
    /// False if it is part of a row that goes past the cache.
    pub(super) wanted: bool,
    /// It does not follow the page that was read before.
    random: bool,
}

/// The place of a version.
struct FoundVersion {
    version: PageVersion,
    /// The group in memory that has it still.
    group: Option<Arc<Group>>,
}

impl Cache {
    /// Reads a page into `to`: by one read of flash, or from memory while it is not durable. On a
    /// miss `to` is undefined, and the caller reads the page at home; until it has, nothing writes
    /// that page (a database's latches see to that), or it may find it half written.
    ///
    /// # Errors
    /// [`FlashError::DamagedPage`], [`FlashError::UnreadablePage`] if only flash has the newest
    /// version, and it is not whole: the older one at home must not be read. A clean page that is
    /// damaged is a miss.
    pub fn read(
        &self,
        file: &CachedFile,
        page: u32,
        to: &mut [u8],
    ) -> Result<ReadOutcome, FlashError> {
        self.check_page(file, to.len())?;
        let row = file.reads.lock().length(page);
        let number = file.id().number;
        loop {
            let found = match self.find(number, page) {
                Ok(found) => found,
                Err(changes) => return Ok(ReadOutcome::Miss(self.miss(changes, row))),
            };
            if found.version.is(LOST) {
                return Err(self.damaged(number, page));
            }
            if let Some(group) = &found.group {
                self.copy_from(group, found.version.position, to);
                add(&self.counters.hits, 1);
                return Ok(ReadOutcome::Hit);
            }
            match self.read_patiently(&found.version, to) {
                Ok(true) => {
                    add(&self.counters.hits, 1);
                    return Ok(ReadOutcome::Hit);
                }
                Ok(false) => {}
                Err(error) => self.pass_over(&found.version, error)?,
            }
        }
    }

    /// An unreadable or torn version is an error if home has an older one. Whether it has is asked
    /// now: the page may have gone home since it was looked up. Of a clean one home has the same,
    /// and it is read there from now on.
    fn pass_over(&self, version: &PageVersion, error: FlashError) -> Result<(), FlashError> {
        let map = &mut self.state.lock().map;
        let newest = map.find(version.entry.file, version.entry.page);
        if let Some(same) = newest.filter(|newest| newest.position == version.position) {
            if same.is(DIRTY) {
                return Err(error);
            }
            map.hide(same.position);
        }
        Ok(())
    }

    /// The page's version; else the number of its changes.
    fn find(&self, file: u32, page: u32) -> Result<FoundVersion, u32> {
        let mut state = self.state.lock();
        let version = state.map.find(file, page).filter(|v| !v.hidden);
        let Some(version) = version else {
            return Err(state.map.changes(state.map.bucket(file, page)));
        };
        state.map.refer(version.position);
        let holds = |group: &&Arc<Group>| (group.first..group.end()).contains(&version.position);
        let group = if version.position < state.map.recorded {
            None
        } else {
            let mut groups = state.pending.iter().chain(&state.open);
            groups.find(holds).cloned()
        };
        Ok(FoundVersion { version, group })
    }

    fn miss(&self, changes: u32, row: u32) -> Ticket {
        add(&self.counters.misses, 1);
        let scan = self.options.bypass_reads;
        let wanted = scan == 0 || row < scan;
        if !wanted {
            add(&self.counters.bypassed, 1);
        }
        Ticket {
            changes,
            wanted,
            random: row <= 1,
        }
    }

    /// A page that [`read`](Self::read) had missed was read at home in such a time:
    /// [`WritePolicy::Adaptive`](crate::WritePolicy::Adaptive) goes by it.
    pub fn read_at_home(&self, ticket: &Ticket, took: Duration) {
        // What follows the page before may have been read ahead by the device.
        if ticket.random {
            self.worth.reads.home.add(took);
        }
    }

    /// Copies a page out of a group in memory.
    pub(super) fn copy_from(&self, group: &Group, position: u64, to: &mut [u8]) {
        let at = (position - group.first) as usize * to.len();
        to.copy_from_slice(&group.bytes.read()[at..at + to.len()]);
    }

    /// Reads a version from flash and checks it. False if the front has passed it meanwhile: its
    /// slot may have another page by now.
    pub(super) fn read_version(
        &self,
        version: &PageVersion,
        to: &mut [u8],
    ) -> Result<bool, FlashError> {
        let offset = self.geometry().slot(version.position);
        let begun = Instant::now();
        let read = self.flash.read_at(to, offset);
        self.worth.reads.flash.add(begun.elapsed());
        let intact = read.is_ok() && crc32c([&*to]) == version.entry.crc;
        // After the read, or the slot could be used again between the two.
        if version.position < self.state.lock().map.front {
            return Ok(false);
        }
        if intact {
            return Ok(true);
        }
        add(&self.counters.damaged, 1);
        let (file, page) = (version.entry.file, version.entry.page);
        match read {
            Ok(()) => Err(self.damaged(file, page)),
            Err(source) => Err(FlashError::UnreadablePage {
                page: self.name(file, page),
                source,
                is_gone: false,
            }),
        }
    }

    pub(super) fn damaged(&self, file: u32, page: u32) -> FlashError {
        FlashError::DamagedPage {
            page: self.name(file, page),
        }
    }
}
