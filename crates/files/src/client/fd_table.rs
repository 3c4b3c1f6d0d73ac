//! The client's table of descriptors. Its size is fixed, so that a write allocates nothing.

use super::{lookup, session};
use crate::{FILES_MAX, sys};
use std::{
    cell::Cell,
    ffi::c_int,
    sync::atomic::{
        AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

/// Descriptors from this one on are never absorbed.
pub const DESCRIPTORS: usize = 1 << 17;

/// The C library's standard streams write to descriptors up to this one.
const STDERR: c_int = 2;

/// The client's note of one descriptor, in one word: 0 for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FdEntry(u32);

/// The file's number plus one; 0 for a descriptor of a plain file whose flags are hidden.
const FILE: u32 = (1 << 17) - 1;
/// Present, also if the rest is 0.
const PRESENT: u32 = 1 << 17;
/// Opened with `O_APPEND`.
const APPEND: u32 = 1 << 18;
/// Inherited from before this program was executed, of a file that the run absorbs: before it is
/// written to, this process joins it.
const INHERITED: u32 = 1 << 22;
/// The database believes that it was opened with these.
const HIDDEN: [(u32, c_int); 3] = [
    (1 << 19, libc::O_DSYNC),
    (1 << 20, libc::O_SYNC & !libc::O_DSYNC),
    (DIRECT, libc::O_DIRECT),
];
/// The one of them that it may take back.
const DIRECT: u32 = 1 << 21;

/// Bits of the exponents that offsets and lengths, and addresses, are aligned to.
const ALIGNED: [u32; 2] = [23, 27];
/// The largest.
const ALIGNED_MAX: u32 = 15;

const _: () = assert!(FILES_MAX < FILE as usize, "FILE has too few bits");

/// The flags that are taken from a descriptor that is absorbed: their effect is emulated.
pub(super) const HIDDEN_FLAGS: c_int = libc::O_SYNC | libc::O_DSYNC | libc::O_DIRECT;

impl FdEntry {
    /// An entry for absorbed `file` (or a plain one), opened with `flags`.
    pub(super) fn new(file: Option<usize>, flags: c_int) -> Self {
        let mut word = PRESENT | file.map_or(0, |file| file as u32 + 1);
        for (bit, flag) in HIDDEN {
            if flags & flag == flag {
                word |= bit;
            }
        }
        if flags & libc::O_APPEND != 0 {
            word |= APPEND;
        }
        Self(word)
    }

    /// The absorbed file's number.
    #[inline]
    pub(super) fn file(self) -> Option<usize> {
        (self.0 & FILE != 0).then(|| (self.0 & FILE) as usize - 1)
    }

    /// The same of a descriptor that was opened with `O_DIRECT` on a file that takes it so: offsets
    /// and lengths, and addresses, are multiples of these powers of 2.
    pub(super) fn aligned(self, [offset, memory]: [u32; 2]) -> Self {
        let [offset, memory] = [offset, memory].map(|to| to.max(1).ilog2().min(ALIGNED_MAX));
        Self(self.0 | offset << ALIGNED[0] | memory << ALIGNED[1])
    }

    /// The units that offsets and lengths, and addresses, are to be multiples of.
    #[inline]
    pub(super) fn alignment(self) -> [u64; 2] {
        let of = |at: u32| match self.0 & DIRECT {
            0 => 1,
            _ => 1 << (self.0 >> at & ALIGNED_MAX),
        };
        ALIGNED.map(of)
    }

    pub(super) fn append(self) -> bool {
        self.0 & APPEND != 0
    }

    /// The flags that the kernel does not know of.
    pub(super) fn hidden(self) -> c_int {
        HIDDEN
            .iter()
            .filter(|(bit, _)| self.0 & bit != 0)
            .fold(0, |flags, (_, flag)| flags | flag)
    }

    /// An entry for a descriptor that was inherited, of a file that the run absorbs.
    pub(super) fn inherited_descriptor() -> Self {
        Self(PRESENT | INHERITED)
    }

    /// The same descriptor as one that was inherited.
    fn inherited(self) -> Self {
        Self(Self::new(None, self.hidden()).0 | INHERITED)
    }

    /// True if the file has to be joined, or claimed, before it is written to.
    #[inline]
    pub(super) fn is_inherited(self) -> bool {
        self.0 & INHERITED != 0
    }

    /// True if writes by the descriptor go to the pool, or will.
    pub(super) fn is_followed(self) -> bool {
        self.file().is_some() || self.is_inherited()
    }

    /// The same descriptor when that is done.
    pub(super) fn claimed(self) -> Option<Self> {
        Self(self.0 & !INHERITED).plain()
    }

    /// The same descriptor when its file is plain: nothing, if nothing is hidden.
    pub(super) fn plain(self) -> Option<Self> {
        (self.hidden() != 0).then_some(Self(self.0 & !FILE))
    }
}

static ENTRIES: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
/// Nothing is known of any descriptor from this one on.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Those of which something may be known.
fn used() -> impl Iterator<Item = (c_int, &'static AtomicU32)> {
    (0..).zip(ENTRIES.iter().take(USED.load(Acquire)))
}

/// Something is about to be known of `fd`, which has a place.
fn use_place(fd: c_int) {
    let end = usize::try_from(fd).map_or(0, |fd| fd + 1);
    if USED.load(Relaxed) < end {
        USED.fetch_max(end, AcqRel);
    }
}

thread_local! {
    /// A child of `vfork` has put others in the place of descriptors that are known: it shares this
    /// table, and not the descriptors. It runs in the place of the thread that made it.
    static CHILDS: Cell<bool> = const { Cell::new(false) };
}

/// The note of `fd`.
#[inline]
pub(super) fn entry(fd: c_int) -> Option<FdEntry> {
    let word = ENTRIES.get(usize::try_from(fd).ok()?)?.load(Acquire);
    if word == 0 || CHILDS.get() && is_childs_own(fd, FdEntry(word)) {
        return None;
    }
    Some(FdEntry(word))
}

/// In a child of `vfork`: `fd` is about to be another descriptor in it, or is.
pub(super) fn differs_in_child(fd: c_int) {
    if ENTRIES
        .get(usize::try_from(fd).unwrap_or(usize::MAX))
        .is_some_and(|word| word.load(Relaxed) != 0)
    {
        CHILDS.set(true);
    }
}

/// True in a child of `vfork` in which `fd` is not the descriptor that is known. What is hidden of
/// a plain one costs time only.
#[cold]
fn is_childs_own(fd: c_int, entry: FdEntry) -> bool {
    if !sys::in_vforked_child() {
        // The child is gone, or has memory of its own: its thread goes on.
        CHILDS.set(false);
        return false;
    }
    let Some(number) = entry.file() else {
        return false;
    };
    let key = sys::borrow(fd).and_then(|raw| sys::stat_of(raw).ok());
    let key = key.map(|stat| lookup::key(&stat));
    session::there().is_some_and(|session| key != Some(session.page.files[number].key()))
}

/// True if anything can be noted of `fd`.
fn has_place_for(fd: c_int) -> bool {
    usize::try_from(fd).is_ok_and(|fd| fd < DESCRIPTORS)
}

/// Sets the note of `fd`; false if it is too large for that.
pub(super) fn set_entry(fd: c_int, entry: Option<FdEntry>) -> bool {
    let Some(place) = usize::try_from(fd).ok().and_then(|fd| ENTRIES.get(fd)) else {
        return entry.is_none();
    };
    if entry.is_some() {
        use_place(fd);
    }
    place.store(entry.map_or(0, |e| e.0), Release);
    true
}

/// Notes that the program has cleared `O_DIRECT` of `fd`, beside the rest of its note.
pub(super) fn clear_direct(fd: c_int) {
    if let Some(place) = usize::try_from(fd).ok().and_then(|fd| ENTRIES.get(fd)) {
        place.fetch_and(!DIRECT, AcqRel);
    }
}

/// Notes the flags that `of` hides of `fd` as well, beside the rest of its note.
pub(super) fn add_hidden(fd: c_int, of: FdEntry) {
    if let Some(place) = usize::try_from(fd).ok().and_then(|fd| ENTRIES.get(fd)) {
        use_place(fd);
        place.fetch_or(FdEntry::new(None, of.hidden()).0, AcqRel);
    }
}

/// All descriptors that are to be synced with each write, which the kernel does not know. Looks
/// through all that were used.
pub(super) fn synced_unseen() -> impl Iterator<Item = c_int> {
    used()
        .filter(|(_, word)| FdEntry(word.load(Relaxed)).hidden() & libc::O_DSYNC != 0)
        .map(|(fd, _)| fd)
}

/// A set of descriptors, a bit each.
struct FdSet([AtomicU64; DESCRIPTORS / 64]);

impl FdSet {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; DESCRIPTORS / 64])
    }

    fn bit(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.0.get(fd / 64)?, 1 << (fd % 64)))
    }

    fn set(&self, fd: c_int, is_there: bool) {
        if let Some((word, bit)) = self.bit(fd) {
            match is_there {
                true => word.fetch_or(bit, Relaxed),
                false => word.fetch_and(!bit, Relaxed),
            };
        }
    }

    /// None of a number that has no place.
    fn has(&self, fd: c_int) -> Option<bool> {
        let (word, bit) = self.bit(fd)?;
        Some(word.load(Relaxed) & bit != 0)
    }
}

/// Those that a stream of the C library writes to and reads from, past the client.
static STREAMS: FdSet = FdSet::new();
/// Those that were named to be duplicated for a program that is spawned.
static GIVEN: FdSet = FdSet::new();

/// Notes whether there is a stream on `fd`.
pub(super) fn set_stream(fd: c_int, is_there: bool) {
    STREAMS.set(fd, is_there);
}

/// Notes that a spawned program may get a copy of `fd`.
pub(super) fn set_given(fd: c_int) {
    GIVEN.set(fd, true);
}

/// True if a spawned program may get a copy of `fd`. Of one that cannot be noted: true.
pub(super) fn may_be_given(fd: c_int) -> bool {
    GIVEN.has(fd).unwrap_or(true)
}

/// True if no absorbed file may be open as `fd`: nothing can be noted of that number, or a stream
/// uses it, which the client does not see.
pub(super) fn must_be_plain(fd: c_int) -> bool {
    fd <= STDERR || STREAMS.has(fd) == Some(true) || !has_place_for(fd)
}

/// Every descriptor of a file is as one that was inherited. Neither allocates nor locks.
pub(super) fn disown() {
    for (_, word) in used() {
        let entry = FdEntry(word.load(Relaxed));
        if entry.file().is_some() {
            word.store(entry.inherited().0, Release);
        }
    }
}

/// All descriptors that have to be joined or claimed before they are written to. Looks through all
/// that were used.
pub(super) fn inherited() -> impl Iterator<Item = (c_int, FdEntry)> {
    used()
        .map(|(fd, word)| (fd, FdEntry(word.load(Relaxed))))
        .filter(|(_, entry)| entry.is_inherited())
}

/// All descriptors that lead to `file`. Looks through all that were used.
pub(super) fn descriptors_of(file: usize) -> impl Iterator<Item = (c_int, FdEntry)> {
    used()
        .map(|(fd, word)| (fd, FdEntry(word.load(Relaxed))))
        .filter(move |(_, entry)| entry.file() == Some(file))
}
