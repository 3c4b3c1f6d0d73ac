//! Reading ahead of a scan at home. docs/flash-format.md, "Reading ahead".
//!
//! Of a file that is read in a row, pages that are on flash are missing. Home is asked for what
//! lies between them, by several threads, and a disk that could have read on has to seek. So the
//! first page of a block that a scan misses is read with the rest of its block, and what others ask
//! for is copied from there. A page that came in, or was written past the cache, after that is not:
//! each has the count of changes that its [`Ticket`] would have.

use super::{Cache, Ticket};
use crate::{buffer::Buffer, file::CachedFile, stats::add};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// Pages of a block: with pages of 16 KiB a megabyte, and an extent of InnoDB's.
const BLOCK: u32 = 64;
/// Blocks that are kept: a scan has two, since its threads are not all in one.
const BLOCKS: usize = 8;
/// A block that was used so lately is not taken from a scan that has not come to its end.
const KEPT: Duration = Duration::from_millis(200);
/// A scan that is first seen so far into a block has its threads in all of it.
const BEGINNING: u32 = 16;
/// Fewer are not worth a block.
const PAGES_MIN: usize = 8;

/// The pages that are read ahead.
#[derive(Default)]
pub(super) struct ReadAhead {
    kept: Mutex<[ScanCache; BLOCKS]>,
    /// Pages were cut off, punched, or dropped: how often. What was read before that does not
    /// count.
    forgotten: AtomicU64,
}

/// File and number of a block.
type BlockKey = (u32, u32);

#[derive(Default)]
struct ScanCache {
    of: Option<BlockKey>,
    used: Option<Instant>,
    block: Arc<Mutex<ScanBlock>>,
}

/// A block, locked while it is read: the other threads of a scan wait for it.
#[derive(Default)]
struct ScanBlock {
    of: Option<BlockKey>,
    forgotten: u64,
    bytes: Option<Buffer>,
    /// Of each page that has not been asked for, the changes there were before it was read.
    pages: Vec<Option<u32>>,
}

/// Fills what it is given from an offset of the file: bytes that were read.
type ReadHome<'a, E> = &'a mut dyn FnMut(&mut [u8], u64) -> Result<usize, E>;

impl ReadAhead {
    /// From now on nothing counts that was read before.
    pub(super) fn forget(&self) {
        self.forgotten.fetch_add(1, SeqCst);
    }

    /// The buffer that has this block, or is to get it; none while other scans need them all.
    fn block(&self, of: BlockKey) -> Option<Arc<Mutex<ScanBlock>>> {
        let (file, number) = of;
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let is_passed = |kept: &ScanCache| {
            let is_behind = |at| (at + 2..at + 4).contains(&number);
            kept.of
                .is_some_and(|(its, at)| its == file && is_behind(at))
        };
        let is_old = |kept: &ScanCache| kept.used.is_none_or(|used| now - used >= KEPT);
        let at = (kept.iter().position(|kept| kept.of == Some(of)))
            .or_else(|| kept.iter().position(is_passed))
            .or_else(|| kept.iter().position(is_old))?;
        let kept = &mut kept[at];
        kept.of = Some(of);
        kept.used = Some(now);
        Some(Arc::clone(&kept.block))
    }
}

impl Cache {
    /// A page that [`read`](Self::read) has missed, if it is one of a row that goes past the cache:
    /// copied from the pages read ahead, or read with the following ones. `read` fills what it is
    /// given from an offset of the file, and says how far. False: the caller reads the page alone.
    ///
    /// As with a ticket: while pages of the file are [cut off or punched](Self::forget_pages)
    /// nothing reads them.
    pub fn read_ahead<E>(
        &self,
        file: &CachedFile,
        page: u32,
        ticket: &Ticket,
        to: &mut [u8],
        read: ReadHome<'_, E>,
    ) -> bool {
        if ticket.wanted || to.len() != self.page_bytes() {
            return false;
        }
        let of = (file.id().number, page / BLOCK);
        let Some(block) = self.ahead.block(of) else {
            return false;
        };
        let mut block = block.lock();
        if block.of != Some(of) || block.forgotten != self.ahead.forgotten.load(SeqCst) {
            self.read_block(&mut block, of, page % BLOCK, read);
        }
        let at = (page % BLOCK) as usize;
        let Some(changes) = block.pages.get_mut(at).and_then(Option::take) else {
            return false;
        };
        let is_newest = {
            let map = &self.state.lock().map;
            map.changes(map.bucket(of.0, page)) == changes
        };
        let Some(bytes) = block.bytes.as_ref().filter(|_| is_newest) else {
            return false;
        };
        to.copy_from_slice(&bytes[at * to.len()..][..to.len()]);
        add(&self.counters.read_ahead, 1);
        true
    }

    /// Reads a block of which a scan has come to page `at`. What cannot be read, each reader finds
    /// out alone.
    fn read_block<E>(&self, block: &mut ScanBlock, of: BlockKey, at: u32, read: ReadHome<'_, E>) {
        let first = if at < BEGINNING { 0 } else { at };
        block.of = Some(of);
        block.forgotten = self.ahead.forgotten.load(SeqCst);
        block.pages = self.missing(of, first);
        let missing = block.pages.iter().flatten().count();
        // Most are on flash: what lies between is read one by one.
        if missing < PAGES_MIN || missing < (BLOCK - first) as usize / 2 {
            block.pages.clear();
            return;
        }
        let size = self.page_bytes();
        let bytes = block
            .bytes
            .get_or_insert_with(|| Buffer::new(BLOCK as usize * size));
        let to = &mut bytes[first as usize * size..];
        let read = read(to, self.home_offset(of.1 * BLOCK + first)).unwrap_or(0);
        block.pages.truncate(first as usize + read / size);
    }

    /// Of the pages of a block from this one on, those that are at home only, with their changes.
    fn missing(&self, (file, block): BlockKey, first: u32) -> Vec<Option<u32>> {
        let map = &self.state.lock().map;
        let changes = |at| {
            let page = block * BLOCK + at;
            let is_missing = at >= first && map.find(file, page).is_none();
            is_missing.then(|| map.changes(map.bucket(file, page)))
        };
        (0..BLOCK).map(changes).collect()
    }
}
