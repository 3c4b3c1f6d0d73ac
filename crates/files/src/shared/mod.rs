//! The page that the processes of a run share with its supervisor: ordinary memory, for facts that
//! change too often for messages.
//!
//! It is the table of the files that the run absorbs, by number: each file's state, its lock, its
//! names, and what was counted. The lane itself is the pool's (`forebay_pool::SharedLane`).
//! docs/files-membership.md, "The shared page".
#![expect(unsafe_code, reason = "memory shared with another process")]

mod durations;
mod failure;
mod file_order;
mod first_sync;
mod last_write;
mod lock;
mod mapping;
mod number_set;
mod settling;
mod stamp;

pub use durations::{DURATION_BOUNDS, DurationCounts, DurationHistogram, SampledWrite};
pub use failure::SyncFailure;
pub use file_order::FileOrder;
pub use first_sync::{DueSync, FirstSync};
pub use last_write::{BLOCK, KnownBytes, LastWrite, WORD, WriteBlock};
pub use lock::Lock;
pub(crate) use mapping::SharedPage;
pub(crate) use number_set::NumberSet;
pub use settling::SettlingTurn;
pub use stamp::{FileState, Stamp};

use crate::{
    FILES_MAX,
    shared_text::{SharedNames, SharedText},
    sys,
};
use forebay_pool::{Lsn, media::Atomics};
use std::{
    ops::{Deref, Range},
    sync::atomic::{
        AtomicI32, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
    time::Duration,
};

/// Wait for the supervisor before looking if it is still there.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// A file's name: kept, or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameLoss {
    /// It has one.
    No,
    /// It is about to lose its last one.
    Maybe,
    /// It has none.
    Yes,
}

/// Files that may be opened at a time by processes of the run, if they are to be absorbed, and have
/// different names.
const OPENINGS: usize = 64;

/// No segment has named the file yet.
const UNNAMED: u64 = u64::MAX;

/// Device and inode.
#[repr(C)]
struct SharedKey([AtomicU64; 2]);

impl SharedKey {
    fn get(&self) -> (u64, u64) {
        (self.0[0].load(Relaxed), self.0[1].load(Relaxed))
    }

    fn set(&self, (dev, ino): (u64, u64)) {
        self.0[0].store(dev, Relaxed);
        self.0[1].store(ino, Relaxed);
    }
}

/// One file of the run. What is not said to be the supervisor's is changed under the file's lock.
#[repr(C, align(64))]
pub struct SharedFile {
    stamp: AtomicU64,
    /// Kernel and lane get the changes of a file in one order, because both get them under this
    /// lock, whichever process makes them.
    pub lock: Lock,
    /// Supervisor, and without one the member that settles: why the file cannot be synced
    /// ([`failure`]).
    failure: AtomicI32,
    /// Supervisor: 1 while it is being synced; 0 otherwise, or when a member has noted what is
    /// feared of it.
    syncing: AtomicU32,
    gone: AtomicU32,
    /// The place of its file system among the run's ([`OrderPage`](crate::order::OrderPage)).
    pub journal: AtomicU32,
    /// Until it is done, nothing of the file is logged.
    pub first_sync: FirstSync,
    /// Device and inode.
    key: SharedKey,
    /// The mount that it is on; 0 if the kernel does not say.
    pub mount: AtomicU64,
    named_in: AtomicU64,
    /// Log address behind its last record.
    pub end: AtomicU64,
    /// The modification time that was logged last, or that the file had when a member had written
    /// it again without a supervisor; ns since 1970.
    pub touched: AtomicU64,
    /// The size that it is about to get and that is or will be logged, plus one; 0 for none.
    resizing: AtomicU64,
    /// The size that it had before the write that names it in a segment, plus one; 0 where that is
    /// not known.
    had: AtomicU64,
    /// Its end, by its size at the last look, and the bytes logged of it since, plus one; 0 if that
    /// is not known.
    ends: AtomicU64,
    /// The latest modification time ahead of the clock that it was seen to have, ns since 1970.
    ahead: AtomicU64,
    /// The order that its syncs keep.
    pub order: FileOrder,
    /// The range that was changed and could not be logged, because the supervisor died meanwhile:
    /// from, to.
    newer: [AtomicU64; 2],
    /// Writes absorbed.
    pub writes: AtomicU64,
    /// Bytes absorbed.
    pub bytes: AtomicU64,
    /// Syncs absorbed.
    pub syncs: AtomicU64,
    /// Its last logged write.
    pub last_write: LastWrite,
    /// The identity by which records name it.
    pub identity: SharedText<160>,
    /// Its newest path, and one further.
    pub names: SharedNames<NAMES_MAX>,
}

/// Bytes of a file's paths at most. PostgreSQL knows none above 1,023; a place is to be small,
/// since each process maps those of all files.
const NAMES_MAX: usize = 1004;

const _: () = assert!(size_of::<SharedFile>() == 22 * 64, "a place has a gap");

impl SharedFile {
    /// Its state.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        Stamp::decode(self.stamp.load(Acquire))
    }

    /// Supervisor: its state from now on.
    pub fn set(&self, stamp: Stamp) {
        self.stamp.store(stamp.encode(), Release);
    }

    /// The file is to be plain: the next call that uses it sees to that, and one that is being
    /// registered is not absorbed. False if it is plain already. Takes no lock.
    pub fn leave(&self, generation: u32) -> bool {
        self.change(generation, FileState::Registering, FileState::Leaving)
            || self.change(generation, FileState::Absorbed, FileState::Leaving)
            || self.leaves(generation)
    }

    /// As [`Self::leave`], of one that is changed past the lane before it is plain.
    pub fn stray(&self, generation: u32) -> bool {
        let from = [
            FileState::Registering,
            FileState::Absorbed,
            FileState::Leaving,
        ];
        from.into_iter()
            .any(|from| self.change(generation, from, FileState::Strayed))
            || self.leaves(generation)
    }

    /// True if it is to be plain.
    pub fn leaves(&self, generation: u32) -> bool {
        let stamp = self.stamp();
        stamp.generation == generation && stamp.state.leaves()
    }

    /// From one state to another. False if it has another state, or generation.
    pub fn change(&self, generation: u32, from: FileState, to: FileState) -> bool {
        let [from, to] = [from, to].map(|state| Stamp { generation, state }.encode());
        let changed = self.stamp.compare_exchange(from, to, AcqRel, Acquire);
        changed.is_ok()
    }

    /// Device and inode.
    pub fn key(&self) -> (u64, u64) {
        self.key.get()
    }

    /// Start of the segment that it was last named in.
    #[inline]
    pub fn named_in(&self) -> Option<Lsn> {
        let at = self.named_in.load(Acquire);
        (at != UNNAMED).then_some(at)
    }

    /// Notes the segment that names it: before anything else is logged of it there.
    pub fn set_named_in(&self, segment: Option<Lsn>) {
        self.named_in.store(segment.unwrap_or(UNNAMED), Release);
    }

    /// The loss of its name, or none.
    pub fn gone(&self) -> NameLoss {
        match self.gone.load(Relaxed) {
            0 => NameLoss::No,
            1 => NameLoss::Maybe,
            _ => NameLoss::Yes,
        }
    }

    /// Notes whether it has a name.
    pub fn set_gone(&self, gone: NameLoss) {
        let gone = match gone {
            NameLoss::No => 0,
            NameLoss::Maybe => 1,
            NameLoss::Yes => 2,
        };
        self.gone.store(gone, Relaxed);
    }

    /// The range that is newer in the kernel than in the lane: one change at most, since the next
    /// one finds that the supervisor is gone.
    pub fn newer(&self) -> Option<Range<u64>> {
        let [from, to] = [&self.newer[0], &self.newer[1]].map(|at| at.load(Relaxed));
        (from < to).then_some(from..to)
    }

    /// Notes that.
    pub fn set_newer(&self, range: Range<u64>) {
        self.newer[0].store(range.start, Relaxed);
        self.newer[1].store(range.end, Relaxed);
    }

    /// The size that it was about to get when the holder of its lock died.
    pub fn resizing(&self) -> Option<u64> {
        self.resizing.load(Relaxed).checked_sub(1)
    }

    /// Notes that: before it is logged, until the kernel has it or has refused it.
    pub fn set_resizing(&self, bytes: Option<u64>) {
        self.resizing
            .store(bytes.map_or(0, |bytes| bytes.saturating_add(1)), Relaxed);
    }

    /// The size that it had before the write that names it in a segment.
    pub fn had(&self) -> Option<u64> {
        self.had.load(Relaxed).checked_sub(1)
    }

    /// Notes that, before the kernel writes; or that it is said.
    pub fn set_had(&self, bytes: Option<u64>) {
        self.had
            .store(bytes.map_or(0, |bytes| bytes.saturating_add(1)), Relaxed);
    }

    /// Its end, but for a write that is not logged yet.
    pub fn known_end(&self) -> Option<u64> {
        self.ends.load(Relaxed).checked_sub(1)
    }

    /// Notes that, or that it is not known any more.
    pub fn set_known_end(&self, bytes: Option<u64>) {
        self.ends
            .store(bytes.map_or(0, |bytes| bytes.saturating_add(1)), Relaxed);
    }

    /// A write that ends there was logged.
    #[inline]
    pub fn note_logged(&self, end: u64) {
        let known = self.ends.load(Relaxed);
        if known != 0 && known <= end {
            self.ends.store(end.saturating_add(1), Relaxed);
        }
    }

    /// It was seen to have this modification time, which may stay on the disk for a while though it
    /// is written to.
    pub fn note_modified(&self, modified: u64) {
        if modified > sys::file_time_now() {
            self.ahead.fetch_max(modified, Relaxed);
        }
    }

    /// A modification time ahead of the clock that it may have on the disk: it was set to that, or
    /// the clock was set back.
    pub fn ahead(&self) -> Option<u64> {
        Some(self.ahead.load(Relaxed)).filter(|ahead| *ahead > sys::file_time_now())
    }

    /// Supervisor: it is another file from now on, with this modification time.
    pub fn begin_times(&self, modified: u64) {
        self.touched.store(0, Relaxed);
        self.ahead.store(0, Relaxed);
        self.note_modified(modified);
    }
}

/// Numbers whose places get memory at a time, at least.
pub(crate) const PART: usize = 256;
/// The word of a part whose places have memory.
const THERE: u32 = 0x0F0E_BA17;

/// The shared page, but for the files' places.
#[repr(C, align(64))]
pub struct SharedHead {
    /// Members: the number of times that the first sync of a file was asked for.
    pub asked: AtomicU32,
    /// Without a supervisor: whether a member has synced what the lane holds ([`settling`]).
    settled: AtomicU32,
    /// The process that does it.
    settling: AtomicU32,
    /// Held from before a file that is to be absorbed is opened until that is decided: so of two
    /// processes that open it at a time one registers it, and the other joins. By what its name is.
    openings: [Lock; OPENINGS],
    /// Times that a process waited for the drain because the lane was full.
    pub waits: AtomicU64,
    /// Durations of their waits, once they have waited.
    pub waited: DurationCounts,
    /// Members: durations of commits to a pool on a disk, and of some of the writes to one in
    /// memory.
    pub commits: DurationCounts,
    /// Supervisor: numbers from this one on are no file's yet. Their places may have no memory, and
    /// are not touched. In the upper half is its complement, since which files there are hangs on
    /// it.
    used: AtomicU64,
    /// Supervisor: the same once more, by part: [`THERE`] where its places have memory.
    parts: [AtomicU32; FILES_MAX / PART],
    /// Files whose first sync a process waits for: the supervisor looks at these, so that it need
    /// not look at all.
    pub due_now: NumberSet,
    /// Those whose first sync is due soon.
    pub due_soon: NumberSet,
}

/// The shared page.
#[repr(C)]
pub struct SharedPageLayout {
    head: SharedHead,
    /// By the remainder of a number: they are more than the logs that are written again at a time.
    blocks: [WriteBlock; BLOCKS],
    /// By number.
    pub files: [SharedFile],
}

impl Deref for SharedPageLayout {
    type Target = SharedHead;

    fn deref(&self) -> &SharedHead {
        &self.head
    }
}

/// Blocks of what was written last.
const BLOCKS: usize = 1024;
/// Offset of the blocks.
const BLOCKS_AT: usize = size_of::<SharedHead>();
/// Offset of the files' places.
const PLACES_AT: usize = BLOCKS_AT + size_of::<[WriteBlock; BLOCKS]>();

/// Bytes of a page with so many places: of the largest file, in memory, that a run makes for itself
/// beside the pool's.
pub const fn page_bytes(places: usize) -> u64 {
    (PLACES_AT + places * size_of::<SharedFile>()) as u64
}

/// The places of a page of so many bytes.
pub(crate) fn places_in(bytes: u64) -> usize {
    let places = bytes.saturating_sub(page_bytes(0)) / size_of::<SharedFile>() as u64;
    usize::try_from(places).unwrap_or(usize::MAX)
}

/// Bytes of the smallest page.
pub const PAGE_BYTES_MIN: u64 = page_bytes(PART);

impl SharedPageLayout {
    /// The parts of the page's file that come first, and that belong to `numbers`: blocks, and
    /// places.
    pub(crate) fn parts_of(numbers: Range<usize>) -> [Range<u64>; 3] {
        let place = |number: usize| page_bytes(number);
        let block =
            |number: usize| (BLOCKS_AT + number.min(BLOCKS) * size_of::<WriteBlock>()) as u64;
        let Range { start, end } = numbers;
        let head = 0..BLOCKS_AT as u64;
        [head, block(start)..block(end), place(start)..place(end)]
    }

    /// Supervisor: numbers below this one may be files' from now on. Those from `before` on, which
    /// could not be until then, are no file's.
    pub fn set_used(&self, before: usize, used: usize) {
        let (generation, state) = (0, FileState::Free);
        let used = used.min(self.files.len());
        let files = self.files.get(before..used).unwrap_or_default();
        files
            .iter()
            .for_each(|file| file.set(Stamp { generation, state }));
        for (number, part) in self.parts.iter().enumerate() {
            let is_there = number * PART < used;
            part.store(if is_there { THERE } else { 0 }, Relaxed);
        }
        let used = used as u64;
        self.used.store(!used << 32 | used, Release);
    }

    /// The count of numbers that have been files', by its word; none if a process has written over
    /// it.
    fn said_used(&self) -> Option<usize> {
        let word = self.used.load(Acquire);
        let (complement, used) = ((word >> 32) as u32, word as u32);
        (complement == !used && used as usize <= self.files.len()).then_some(used as usize)
    }

    /// The count of numbers that have been files'. Where the word for that is damaged, those of the
    /// parts that are there: no memory is touched that is not.
    pub fn used(&self) -> usize {
        self.said_used().unwrap_or_else(|| {
            let is_there = |part: &AtomicU32| part.load(Relaxed) == THERE;
            let last = self.parts.iter().rposition(is_there);
            let used = last.map_or(0, |last| (last + 1) * PART);
            used.min(self.files.len())
        })
    }

    /// The files that have a number, or had one.
    pub fn used_files(&self) -> &[SharedFile] {
        &self.files[..self.used()]
    }

    /// Supervisor: a file's device and inode; that is zero if it may be another's by now.
    pub fn set_key(&self, number: usize, key: (u64, u64)) {
        self.files[number].key.set(key);
    }

    /// The block for the last write of the file with this number, which it shares with others.
    #[inline]
    pub fn block(&self, number: usize) -> &WriteBlock {
        &self.blocks[number % BLOCKS]
    }

    /// True if a process has written over a state, a lock, or the number of files: the rest of the
    /// page is not to be believed.
    pub fn is_damaged(&self) -> bool {
        let is_damaged =
            |file: &SharedFile| file.stamp().state == FileState::Damaged || file.lock.is_damaged();
        self.said_used().is_none()
            || self.openings.iter().any(Lock::is_damaged)
            || self.used_files().iter().any(is_damaged)
    }

    /// The lock under which files with this last name are opened that are to be absorbed.
    pub fn opening(&self, path: &[u8]) -> &Lock {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let fold = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        &self.openings[name.iter().fold(0x811C_9DC5, fold) as usize % OPENINGS]
    }

    /// Frees the locks of opens that are `wanted`.
    pub fn free_openings(&self, wanted: impl Fn(&Lock) -> bool) {
        let openings = self.openings.iter();
        openings.filter(|lock| wanted(lock)).for_each(Lock::free);
    }

    /// The state of the file with this number, if it is the one with this device and inode and the
    /// run absorbs it. Who says the number need not be right.
    pub fn absorbed_as(&self, number: usize, key: (u64, u64)) -> Option<Stamp> {
        let file = self.used_files().get(number)?;
        let stamp = file.stamp();
        (stamp.state.is_in_lane() && file.key() == key).then_some(stamp)
    }
}

// SAFETY: atomics only.
unsafe impl Atomics for crate::absorbed::TablePage {}
// SAFETY: atomics only.
unsafe impl Atomics for crate::absorbed::QuestionTable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absorbed_file_is_found_until_its_number_is_another_files() {
        let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
        page.set_used(0, 8);
        let file = &page.files[3];
        page.set_key(3, (8, 9));
        let stamp = |generation, state| Stamp { generation, state };
        file.set(stamp(7, FileState::Registering));
        assert_eq!(page.absorbed_as(3, (8, 9)), None);
        assert!(file.change(7, FileState::Registering, FileState::Absorbed));
        assert_eq!(
            page.absorbed_as(3, (8, 9)),
            Some(stamp(7, FileState::Absorbed))
        );
        // By a number that is another's, or none's, it is not.
        for number in [2, 7, 8, PART, usize::MAX] {
            assert_eq!(page.absorbed_as(number, (8, 9)), None);
        }
        assert_eq!(page.absorbed_as(3, (8, 10)), None);
        assert!(!file.leave(6) && file.leave(7) && file.leave(7));
        assert_eq!(
            page.absorbed_as(3, (8, 9)),
            Some(stamp(7, FileState::Leaving))
        );
        assert!(!file.stray(6) && file.stray(7) && file.leave(7));
        assert_eq!(
            page.absorbed_as(3, (8, 9)),
            Some(stamp(7, FileState::Strayed))
        );
        file.set(stamp(7, FileState::Free));
        assert_eq!(page.absorbed_as(3, (8, 9)), None);
        assert!(!file.leave(7) && !file.stray(7));
        file.set(stamp(8, FileState::Registering));
        assert!(file.leave(8) && !file.change(8, FileState::Registering, FileState::Absorbed));
    }

    /// `crates/cli/tests/run_members.rs` writes over the first one.
    #[test]
    fn files_places_begin_where_tests_write_over_them() {
        assert_eq!(page_bytes(0), 8_482_240);
    }

    #[test]
    fn files_are_known_though_their_number_is_written_over() {
        let (page, _) = SharedPage::new("forebay-test", 4 * PART).unwrap();
        assert!(page.is_damaged(), "no supervisor has said anything");
        page.set_used(0, 0);
        assert!(!page.is_damaged() && page.used_files().is_empty());
        page.set_used(0, PART);
        page.set_used(PART, 2 * PART);
        assert!(!page.is_damaged() && page.used() == 2 * PART);
        let sound = page.used.load(Relaxed);
        // Zeros, ones, another number, one that is too large, and each bit of it.
        let mut wrong = vec![0, u64::MAX, sound - 1, !(1 << 31) << 32 | (1 << 31)];
        wrong.extend((0..64).map(|bit| sound ^ (1 << bit)));
        for word in wrong {
            page.used.store(word, Relaxed);
            assert!(page.is_damaged(), "{word:#x}");
            assert_eq!(page.used_files().len(), 2 * PART, "{word:#x}");
        }
        page.set_used(2 * PART, 2 * PART);
        assert!(!page.is_damaged() && page.used() == 2 * PART);
    }
}
