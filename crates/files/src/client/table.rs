//! What the client knows of descriptors and files: two fixed tables, so that nothing is allocated where a write goes through.
//!
//! Lock order: the registry, then a file's slot, then the session's turn, then its sets. See docs/files-protocol.md, "Locks".

use super::tail::Tail;
use crate::FILES_MAX;
use forebay_pool::Lsn;
use parking_lot::{ReentrantMutex, const_reentrant_mutex};
use rustix::io::Errno;
use std::{
    cell::RefCell,
    ffi::c_int,
    ops::Range,
    path::PathBuf,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Descriptors above this are never absorbed.
const DESCRIPTORS: usize = 1 << 16;

/// What the client knows of one descriptor, in one word: 0 for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u32);

/// The file's number plus one; 0 for a descriptor of a plain file whose flags are hidden.
const FILE: u32 = 0x1FF;
/// Present, also if the rest is 0.
const PRESENT: u32 = 1 << 9;
/// Opened with `O_APPEND`.
const APPEND: u32 = 1 << 10;
/// Opened with `O_WRONLY`: only writes and `lseek` move its position.
const WRITE_ONLY: u32 = 1 << 14;
/// The number plus one of the emulated device that its file is on; 0 for none.
const DEVICE_SHIFT: u32 = 16;
const DEVICE: u32 = 0xFF << DEVICE_SHIFT;
/// Inherited from before this program was executed, of a file that another process absorbs: it is claimed before it is written to.
const INHERITED: u32 = 1 << 24;
/// The database believes that it was opened with these.
const HIDDEN: [(u32, c_int); 3] = [
    (1 << 11, libc::O_DSYNC),
    (1 << 12, libc::O_SYNC & !libc::O_DSYNC),
    (1 << 13, libc::O_DIRECT),
];

/// The flags that are taken from a descriptor that is absorbed: what they ask for is emulated.
pub(super) const HIDDEN_FLAGS: c_int = libc::O_SYNC | libc::O_DSYNC | libc::O_DIRECT;

impl Entry {
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
        if flags & libc::O_ACCMODE == libc::O_WRONLY {
            word |= WRITE_ONLY;
        }
        Self(word)
    }

    /// The absorbed file's number.
    #[inline]
    pub(super) fn file(self) -> Option<usize> {
        (self.0 & FILE != 0).then(|| (self.0 & FILE) as usize - 1)
    }

    pub(super) fn append(self) -> bool {
        self.0 & APPEND != 0
    }

    /// True if we see everything that moves its position.
    #[inline]
    pub(super) fn position_is_ours(self) -> bool {
        self.0 & (WRITE_ONLY | APPEND) == WRITE_ONLY
    }

    /// The same descriptor after its flags were changed to `flags`.
    pub(super) fn with_flags(self, flags: c_int) -> Self {
        let append = if flags & libc::O_APPEND != 0 {
            APPEND
        } else {
            0
        };
        Self(self.0 & !APPEND | append)
    }

    /// The flags that the kernel does not know of.
    pub(super) fn hidden(self) -> c_int {
        HIDDEN
            .iter()
            .filter(|(bit, _)| self.0 & bit != 0)
            .fold(0, |flags, (_, flag)| flags | flag)
    }

    /// An entry for a descriptor that was inherited, of a file that another process absorbs.
    pub(super) fn inherited_descriptor() -> Self {
        Self(PRESENT | INHERITED)
    }

    /// True if the file has to be claimed before it is written to.
    #[inline]
    pub(super) fn is_inherited(self) -> bool {
        self.0 & INHERITED != 0
    }

    /// The same descriptor when that is done.
    pub(super) fn claimed(self) -> Option<Self> {
        Self(self.0 & !INHERITED).plain()
    }

    /// The same descriptor when its file is plain: nothing, if nothing is hidden and it is on no emulated device.
    pub(super) fn plain(self) -> Option<Self> {
        (self.hidden() != 0 || self.device().is_some()).then_some(Self(self.0 & !FILE))
    }

    /// The number of the emulated device that its file is on.
    #[inline]
    pub(super) fn device(self) -> Option<usize> {
        ((self.0 & DEVICE) >> DEVICE_SHIFT)
            .checked_sub(1)
            .map(|number| number as usize)
    }

    /// The same descriptor with its file on this device, or on none.
    pub(super) fn on_device(self, number: Option<u8>) -> Self {
        let device = number.map_or(0, |number| u32::from(number) + 1);
        Self(self.0 & !DEVICE | device << DEVICE_SHIFT)
    }
}

static ENTRIES: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];

/// What is known of `fd`.
#[inline]
pub(super) fn entry(fd: c_int) -> Option<Entry> {
    let word = ENTRIES.get(usize::try_from(fd).ok()?)?.load(Acquire);
    (word != 0).then_some(Entry(word))
}

/// Notes what is known of `fd`; false if it is too large for that.
pub(super) fn set_entry(fd: c_int, entry: Option<Entry>) -> bool {
    let Some(place) = usize::try_from(fd).ok().and_then(|fd| ENTRIES.get(fd)) else {
        return entry.is_none();
    };
    place.store(entry.map_or(0, |e| e.0), Release);
    true
}

/// All descriptors that lead to `file`. Looks through the whole table.
pub(super) fn descriptors_of(file: usize) -> impl Iterator<Item = (c_int, Entry)> {
    (0..)
        .zip(&ENTRIES)
        .map(|(fd, word)| (fd, Entry(word.load(Relaxed))))
        .filter(move |(_, entry)| entry.file() == Some(file))
}

/// Whether a file has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    No,
    /// It is about to lose its last one.
    Maybe,
    Yes,
}

/// A file that is absorbed, or was closed and is still in the lane.
pub(super) struct File {
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) identity: Vec<u8>,
    pub(super) path: PathBuf,
    /// Open descriptors.
    pub(super) descriptors: u32,
    /// Start of the segment that it was last named in.
    pub(super) named_in: Option<Lsn>,
    /// Log address behind its last record.
    pub(super) end: Lsn,
    /// The descriptor that wrote last, and its position then; forgotten when anything else moves it.
    pub(super) position: Option<(c_int, u64)>,
    /// Further names that it was given.
    pub(super) links: Vec<PathBuf>,
    /// The mount that it is on; 0 if the kernel does not say.
    pub(super) mount: u64,
    /// Whether it has a name: a recovery may not find it.
    pub(super) gone: Gone,
    /// The modification time that was logged last, ns since 1970.
    pub(super) touched: u64,
    /// Where it changed without the lane: its records there are older than what the kernel has.
    pub(super) unlogged: Vec<Range<u64>>,
    /// What was logged last.
    pub(super) tail: Tail,
}

impl File {
    /// Notes a range that changed without the lane.
    pub(super) fn note_unlogged(&mut self, range: Range<u64>) {
        match self.unlogged.last_mut() {
            // Appends, mostly.
            Some(last) if range.start <= last.end && last.start <= range.end => {
                *last = last.start.min(range.start)..last.end.max(range.end);
            }
            _ => self.unlogged.push(range),
        }
    }
}

/// A place for a file; its number is its index.
pub(super) struct Slot {
    /// Kernel and lane get the changes of a file in one order, because both get them under this lock. Reentrant for a signal handler that
    /// writes to the file that it interrupted a write to.
    pub(super) file: ReentrantMutex<RefCell<Option<File>>>,
    /// Device and inode of the file that is absorbed here or about to be, for those who must not take the lock; inode 0 for none.
    key: (AtomicU64, AtomicU64),
    /// Descriptors that a signal handler made above another call: they are not counted, and the number stays this file's.
    pub(super) uncounted: AtomicBool,
    /// The kernel has something that the lane has not: a sync has to be a real one.
    pub(super) unlogged: AtomicBool,
    /// And nobody noted where.
    pub(super) unplaced: AtomicBool,
    /// No sync has failed yet when something became unlogged: if one fails now, that may be lost.
    pub(super) exposed: AtomicBool,
    /// The error of a sync that failed when something unlogged was exposed to it. The file's next sync says so, once, as the kernel's would.
    pub(super) owed: AtomicI32,
}

impl Slot {
    /// Device and inode of the file that has this number, if any.
    pub(super) fn key(&self) -> Option<(u64, u64)> {
        let ino = self.key.1.load(Acquire);
        (ino != 0).then(|| (self.key.0.load(Relaxed), ino))
    }

    /// Notes which file has this number. Before the supervisor hears of it, and until the lane has nothing of it.
    pub(super) fn set_key(&self, key: Option<(u64, u64)>) {
        let (dev, ino) = key.unwrap_or((0, 0));
        self.key.1.store(0, Release);
        self.key.0.store(dev, Relaxed);
        self.key.1.store(ino, Release);
    }

    /// The kernel may have got something, and nobody knows where.
    pub(super) fn lose_track(&self) {
        self.unplaced.store(true, Relaxed);
        self.exposed.store(true, Relaxed);
        self.unlogged.store(true, Release);
    }

    /// The lane holds nothing of the file, and the disk has all that the kernel got of it.
    pub(super) fn settled(&self, file: &mut File) {
        file.unlogged.clear();
        // Somebody may have moved it unseen.
        file.position = None;
        file.tail.forget();
        self.unplaced.store(false, Relaxed);
        self.exposed.store(false, Relaxed);
        self.unlogged.store(false, Release);
    }

    /// The error that a sync of the file still has to say, if any. From now on it is said.
    pub(super) fn take_owed(&self) -> Result<(), Errno> {
        match self.owed.swap(0, Relaxed) {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }
}

pub(super) static FILES: [Slot; FILES_MAX] = [const {
    Slot {
        file: const_reentrant_mutex(RefCell::new(None)),
        key: (AtomicU64::new(0), AtomicU64::new(0)),
        uncounted: AtomicBool::new(false),
        unlogged: AtomicBool::new(false),
        unplaced: AtomicBool::new(false),
        exposed: AtomicBool::new(false),
        owed: AtomicI32::new(0),
    }
}; FILES_MAX];
