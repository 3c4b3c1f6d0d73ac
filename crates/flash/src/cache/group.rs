//! Groups: pages on their way to flash. They stay in memory until they are durable, so a failed
//! write or sync is simply repeated, and what just came in is read without the device.

use super::{Cache, CacheState, adaptive::nanos};
use crate::{
    buffer::Buffer,
    error::FlashError,
    file::CachedFile,
    record::{LOST, PageEntry},
    stats::add,
};
use forebay_pool::crc32c;
use parking_lot::{Mutex, RwLock};
use std::{
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::{Duration, Instant},
};

/// Pages in slots that follow each other.
pub(super) struct Group {
    /// Position of the first one.
    pub(super) first: u64,
    /// Pages that it may have: the queue's last slot ends one.
    capacity: u32,
    count: AtomicU32,
    pub(super) bytes: RwLock<Buffer>,
    /// Failed syncs when it was written whole; `None` if it was not, [`GONE`] once it is recorded:
    /// its slots may be another group's by now.
    written: Mutex<Option<u64>>,
    /// Time of writing it while it was filled, nanoseconds.
    took: AtomicU64,
}

const GONE: Option<u64> = Some(u64::MAX);

impl Group {
    /// Pages that it has.
    pub(super) fn pages(&self) -> usize {
        self.count.load(Acquire) as usize
    }

    /// The time of writing it before its commit.
    pub(super) fn took(&self) -> Duration {
        Duration::from_nanos(self.took.load(Relaxed))
    }

    /// Position behind its last page.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.count.load(Acquire))
    }
}

/// The state under `tail`.
pub(super) struct OpenGroup {
    pub(super) group: Option<Arc<Group>>,
    spare: Vec<Buffer>,
}

impl OpenGroup {
    pub(super) fn new() -> Self {
        Self {
            group: None,
            spare: Vec::new(),
        }
    }
}

/// A page that is to be put at the rear.
pub(super) struct IncomingPage<'a> {
    pub(super) file: &'a CachedFile,
    pub(super) page: u32,
    pub(super) flags: u8,
    pub(super) bytes: &'a [u8],
    pub(super) on: EnqueueCondition,
}

/// Under which condition.
#[derive(Clone, Copy)]
pub(super) enum EnqueueCondition {
    /// In any case: it is the newest version.
    Newer,
    /// If this position is that of the newest version still.
    Newest(u64),
    /// If nothing changed in the bucket since this count, and the cache does not have the page.
    Unchanged(u32),
}

/// The outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppendOutcome {
    Done,
    /// No slot is free.
    Full,
    /// The condition does not hold.
    Stale,
}

impl Cache {
    /// Copies a page to the open group, and makes it the newest version. So many slots are `spare`
    /// afterwards at least.
    ///
    /// Each byte of the caller's memory is loaded once: what is on flash is what was checksummed,
    /// though the program may change it.
    pub(super) fn append_page(
        &self,
        page: &IncomingPage<'_>,
        spare: u64,
    ) -> Result<AppendOutcome, FlashError> {
        let full = {
            let _entrance = self.entrance.read();
            let mut tail = self.tail.lock();
            let Some(group) = self.open_group(&mut tail, page, spare) else {
                return Ok(AppendOutcome::Full);
            };
            let count = group.count.load(Relaxed);
            let size = self.page_bytes();
            let crc = {
                let mut bytes = group.bytes.write();
                let to = &mut bytes[count as usize * size..][..size];
                to.copy_from_slice(page.bytes);
                if page.flags & LOST == 0 {
                    crc32c([&*to])
                } else {
                    0
                }
            };
            let mut state = self.state.lock();
            let (file, number) = (page.file.id().number, page.page);
            let holds = match page.on {
                EnqueueCondition::Newer => true,
                EnqueueCondition::Newest(position) => {
                    let newest = state.map.find(file, number);
                    newest.is_some_and(|newest| newest.position == position)
                }
                EnqueueCondition::Unchanged(changes) => {
                    let bucket = state.map.bucket(file, number);
                    state.map.changes(bucket) == changes
                        && state.map.find(file, number).is_none_or(|v| v.hidden)
                }
            };
            // A file that is dropped now is dropped under this lock.
            if page.file.is_dropped() {
                return Err(FlashError::NoSuchFile(file));
            }
            if !holds {
                return Ok(AppendOutcome::Stale);
            }
            state.map.push(PageEntry {
                file,
                page: number,
                crc,
                flags: page.flags,
            });
            group.count.store(count + 1, Release);
            forebay_pool::failpoint!("flash:enqueued");
            if count + 1 < group.capacity {
                return Ok(AppendOutcome::Done);
            }
            tail.group = None;
            state.open = None;
            state.pending.push_back(Arc::clone(&group));
            group
        };
        forebay_pool::failpoint!("flash:full");
        // The next sync writes it if this fails, or brings it home.
        if !self.goes_around() {
            let begun = Instant::now();
            let _ = self.write_group(&full);
            full.took.store(nanos(begun.elapsed()), Relaxed);
        }
        Ok(AppendOutcome::Done)
    }

    /// The open group, with room for a page.
    fn open_group(
        &self,
        tail: &mut OpenGroup,
        page: &IncomingPage<'_>,
        spare: u64,
    ) -> Option<Arc<Group>> {
        let mut state = self.state.lock();
        if state.map.used() + spare >= state.map.slots() {
            return None;
        }
        if let Some(group) = &tail.group {
            return Some(Arc::clone(group));
        }
        let first = state.map.rear;
        drop(state);
        let pages = self.options.group_pages;
        let bytes = tail.spare.pop();
        let bytes = bytes.unwrap_or_else(|| Buffer::new(pages as usize * page.bytes.len()));
        let until_last_slot = self.slots() - first % self.slots();
        let group = Arc::new(Group {
            first,
            capacity: pages.min(u32::try_from(until_last_slot).unwrap_or(u32::MAX)),
            count: AtomicU32::new(0),
            bytes: RwLock::new(bytes),
            written: Mutex::new(None),
            took: AtomicU64::new(0),
        });
        tail.group = Some(Arc::clone(&group));
        state = self.state.lock();
        state.open = Some(Arc::clone(&group));
        Some(group)
    }

    /// True if no more full groups are to be in memory: these are made durable first.
    pub(super) fn is_full_of_groups(&self, state: &CacheState) -> bool {
        state.pending.len() >= self.options.groups_unsynced_max as usize
    }

    /// Ends the open group, if it has a page: it will be written as it is.
    pub(super) fn close_group(&self) {
        let mut tail = self.tail.lock();
        if let Some(group) = tail.group.take_if(|group| group.end() > group.first) {
            let mut state = self.state.lock();
            state.open = None;
            state.pending.push_back(group);
        }
    }

    /// Writes a group that takes no more pages, unless it is written: by one sequential write.
    pub(super) fn write_group(&self, group: &Group) -> Result<(), FlashError> {
        let mut written = group.written.lock();
        let failures = self.flash_failures.load(Relaxed);
        if *written == Some(failures) || *written == GONE {
            return Ok(());
        }
        // What a commit has recorded that failed then is durable, and its slots may be another
        // group's by now.
        let recorded = self.state.lock().map.recorded;
        let first = recorded.clamp(group.first, group.end());
        let place = |position| (position - group.first) as usize * self.page_bytes();
        let bytes = group.bytes.read();
        let bytes = &bytes[place(first)..place(group.end())];
        if !bytes.is_empty() {
            let offset = self.geometry().slot(first);
            self.flash
                .write_at(bytes, offset)
                .map_err(|e| self.flash_failed("writing a group of pages", e))?;
        }
        *written = Some(failures);
        add(&self.counters.groups, 1);
        add(&self.counters.flash_bytes, bytes.len() as u64);
        self.flash_limit.spend(bytes.len() as u64);
        Ok(())
    }

    /// A group that is durable and recorded leaves memory; its buffer is used again if no thread
    /// reads it.
    pub(super) fn recycle(&self, group: Arc<Group>) {
        *group.written.lock() = GONE;
        if let Ok(group) = Arc::try_unwrap(group) {
            let mut tail = self.tail.lock();
            if tail.spare.len() < self.options.groups_unsynced_max as usize {
                tail.spare.push(group.bytes.into_inner());
            }
        }
    }
}
