//! The medium a pool lies on: bytes in the address space that survive something.
//!
//! [`Media`] is the whole of what the pool asks of it:
//!
//! * [`open_dax`] maps real persistent memory;
//! * [`open_emulated`] maps an ordinary file or tmpfs, and says that it survives only a process
//!   crash;
//! * `SimMedia`, with the feature `failpoints`, is volatile memory that knows which lines were
//!   fenced, and yields crash images.
//!
//! All `unsafe` of the crate stands in this module, in [`persist`](crate::persist), and where
//! OpenSSL is called (`legs::openssl`).

mod disk;
pub(crate) mod durable_file;
mod failed_writes;
mod file;
mod file_size_limit;
mod forward;
mod held_locks;
mod legs;
mod locks;
mod mapped;
mod mapping;
mod post_box;
mod process;
pub(crate) mod sector;
#[cfg(feature = "failpoints")]
mod sim;
mod synced;
mod volatile;
mod window;

pub(crate) use disk::DiskMedia;
pub(crate) use file::map_file;
#[doc(hidden)]
pub use file::{FileMedia, MediaKind, map_emulated, open_dax, open_emulated, write_zeros};
#[doc(hidden)]
pub use file_size_limit::size_limit_below;
pub(crate) use held_locks::LockGuard;
pub(crate) use legs::LegsMedia;
pub(crate) use locks::POOL_LOCK;
#[doc(hidden)]
pub use mapped::{Atomics, Mapped, wait, wake, wake_all, wake_one};
pub(crate) use mapping::PoolAccess;
#[doc(hidden)]
pub use process::ProcessMark;
#[cfg(feature = "failpoints")]
pub use sim::{CrashImages, CrashPoint, SimEvent, SimMedia};
#[doc(hidden)]
pub use synced::SyncedFile;
#[doc(hidden)]
pub use volatile::volatile;
pub(crate) use window::{OwnLine, SegmentWindow, WindowPin};

use crate::{checksum::Checksum, persist::LINE};
use std::{
    fmt, io,
    io::IoSlice,
    ops::Range,
    os::fd::{BorrowedFd, RawFd},
};

/// The losses that a pool's contents survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolPersistence {
    /// Persistent memory: a fenced store is there after the power fails.
    PowerCut,
    /// A disk: committed bytes are there after the power fails, as far as the disk keeps its
    /// promises; others are lost with the last process that has the pool.
    PowerCutOnceCommitted,
    /// Memory of other machines: committed bytes are there after this one is lost.
    MachineLossOnceCommitted,
    /// Ordinary memory or page cache: a store is there after the process dies, and gone
    /// when the machine goes down.
    ProcessCrash,
}

impl PoolPersistence {
    /// As a word, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PowerCut => "power_cut",
            Self::PowerCutOnceCommitted => "power_cut_once_committed",
            Self::MachineLossOnceCommitted => "machine_loss_once_committed",
            Self::ProcessCrash => "process_crash",
        }
    }
}

impl fmt::Display for PoolPersistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PowerCut => "survives a power cut",
            Self::PowerCutOnceCommitted => {
                "survives a power cut, if the disk keeps the writes that it confirms"
            }
            Self::MachineLossOnceCommitted => {
                "survives the loss of this machine, as long as a machine with a complete leg stays up"
            }
            Self::ProcessCrash => {
                "survives a process crash only (emulated: a power cut or reboot loses it)"
            }
        })
    }
}

/// The direction in which a medium's [descriptor](Media::descriptor) goes between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorSharing {
    /// Others are sent this process's.
    IsSent,
    /// This process was sent another's.
    IsReceived,
}

/// Byte-addressable memory with a durability boundary.
///
/// Offsets are bytes from the start of the pool. All methods may be called from any thread;
/// which ranges are written when is the pool's protocol to decide (see `window`).
pub trait Media: Send + Sync + 'static {
    /// Bytes of memory.
    fn bytes(&self) -> u64;

    /// The addresses at which it is mapped; empty if it is at none.
    fn memory(&self) -> Range<usize> {
        0..0
    }

    /// The losses that a fenced store survives.
    fn durability(&self) -> PoolPersistence;

    /// The medium in words, for status: kind and path.
    fn describe(&self) -> String;

    /// Copies the concatenation of `parts`, from its byte `skip` on, to `offset` (a multiple of
    /// 64), the last line filled with zeros; durable after this thread's next
    /// [`fence`](Self::fence).
    ///
    /// # Safety
    /// Until it returns nothing else writes these lines, and no [`slice`](Self::slice) of them is
    /// alive.
    ///
    /// # Panics
    /// If the range is not inside the medium or `offset` is not aligned.
    #[expect(unsafe_code, reason = "writes memory that is lent out")]
    unsafe fn stream(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize);

    /// Copies as [`stream`](Self::stream) does, memory that another thread may be changing: each
    /// byte is loaded once, and `sum` is continued over the bytes that were stored (without the
    /// zeros behind them).
    ///
    /// # Safety
    /// As [`stream`](Self::stream).
    ///
    /// # Panics
    /// As [`stream`](Self::stream).
    #[expect(unsafe_code, reason = "writes memory that is lent out")]
    unsafe fn stream_once(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        skip: usize,
        sum: &mut Checksum,
    );

    /// Returns when everything this thread streamed before is durable.
    fn fence(&self);

    /// Copies bytes out. Other processes may be writing them: the result is then a mix of old and
    /// new, which a checksum must tell.
    ///
    /// # Panics
    /// If the range is not inside the medium.
    fn load(&self, offset: u64, to: &mut [u8]);

    /// Gets `[offset, offset + bytes)` ready, so that no access there waits for a page to be
    /// mapped: reads, and with `write` also stores. Slow, and not needed for anything but speed.
    ///
    /// # Errors
    /// A part of it cannot be had, and would end the process when it is touched.
    ///
    /// # Panics
    /// If the range is not inside the medium.
    fn prepare(&self, offset: u64, bytes: u64, write: bool) -> io::Result<()> {
        let _ = (offset, bytes, write);
        Ok(())
    }

    /// Charges a read of `bytes` bytes at `offset` through [`slice`](Self::slice) to the device's
    /// latency.
    fn charge_read(&self, offset: u64, bytes: usize) {
        let _ = (offset, bytes);
    }

    /// The memory itself.
    ///
    /// # Safety
    /// Nothing writes the range as long as the slice is alive.
    ///
    /// # Panics
    /// If the range is not inside the medium.
    #[expect(unsafe_code, reason = "lends memory that another thread could write")]
    unsafe fn slice(&self, offset: u64, bytes: usize) -> &[u8];

    /// The open file that holds the locks, if there is one. A forked child inherits it, and with it
    /// the locks, until it closes it. Before another process is sent it, or uses it:
    /// [`share`](Self::share).
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// True if a fenced store is durable only once it was [written back](Self::write_back).
    fn needs_commit(&self) -> bool {
        false
    }

    /// Before a lane is claimed, and the tables are read for that: this process is to be one that
    /// may write.
    ///
    /// # Errors
    /// Another one is, where there can be one only.
    fn begin_writing(&self) -> io::Result<()> {
        Ok(())
    }

    /// The memory in which processes ask another one to write, if they do; empty otherwise.
    fn posts_memory(&self) -> Range<usize> {
        0..0
    }

    /// The tables end at `end`: bytes stored below are durable at the next fence also where the
    /// rest has to be written back.
    fn set_tables(&self, end: u64) {
        let _ = end;
    }

    /// Gets the durable bytes of `[offset, offset + bytes)`, whole pages, into memory: those that
    /// another process wrote, or that were there before.
    ///
    /// # Safety
    /// As for [`stream`](Self::stream), but that others may call this for the same pages.
    ///
    /// # Errors
    /// It cannot be read.
    #[expect(unsafe_code, reason = "writes memory that is lent out")]
    unsafe fn load_in(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// Makes the write-back of a process that did not live to be told durable, as far as
    /// [`load_in`](Self::load_in) finds it.
    ///
    /// # Errors
    /// It cannot be made so.
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes `[offset, offset + bytes)`, whole pages, durable.
    ///
    /// # Safety
    /// Nothing writes these pages until it returns.
    ///
    /// # Errors
    /// It cannot be written, or could not before: nothing is from then on.
    #[expect(unsafe_code, reason = "reads memory that another thread could write")]
    unsafe fn write_back(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let _ = (offset, bytes);
        Ok(())
    }

    /// Fails unless everything stored to the tables is durable.
    ///
    /// # Errors
    /// That with which it could not be made so.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// A medium that failed is written to once more: the caller has ended every log that relied on
    /// it.
    fn try_again(&self) {}

    /// True if fewer copies are kept of written-back bytes than there are to be: a sync is to be a
    /// real one as well.
    fn is_degraded(&self) -> bool {
        false
    }

    /// The same in words.
    fn degradation(&self) -> Option<String> {
        None
    }

    /// Legs that were given up when it was opened ([`PoolOptions`](crate::PoolOptions)).
    fn lost_legs(&self) -> Vec<String> {
        Vec::new()
    }

    /// True if written-back bytes do not lie where the [descriptor](Self::descriptor)'s file does.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// A process that has another's memory waits for that one's answers as long as `is_orphan` does
    /// not say that it is gone.
    fn ask_owner(&self, is_orphan: fn() -> bool) {
        let _ = is_orphan;
    }

    /// The memory, for another process to open the same medium with.
    fn shared_memory(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The [descriptor](Self::descriptor) has this number from now on. Nothing uses it meanwhile.
    fn moved(&self, to: RawFd) {
        let _ = to;
    }

    /// Several processes have the [descriptor](Self::descriptor) from now on: locks that are held
    /// for a moment end with this process all the same, and exclude the others. The first call
    /// counts, and is made before any other process has it; it waits for threads that hold such a
    /// lock, so its own must not.
    ///
    /// # Errors
    /// They cannot be made to.
    fn share(&self, sharing: DescriptorSharing) -> io::Result<()> {
        let _ = sharing;
        Ok(())
    }

    /// Takes lock number `lock` of this medium, for the life of the process or until
    /// [`unlock`](Self::unlock); the kernel drops it when the owner dies. With `wait`, waits for
    /// it.
    ///
    /// # Errors
    /// `WouldBlock` if another owner has it and `wait` is false.
    fn lock(&self, lock: u32, wait: bool) -> io::Result<()>;

    /// True if no process has lock number `lock`, and nothing that uses this medium. It is taken
    /// for a moment where there is no other way to see that.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock) but `WouldBlock`.
    #[expect(
        unsafe_code,
        reason = "a lock keeps others from memory that is lent out"
    )]
    fn is_free(&self, lock: u32) -> io::Result<bool> {
        match self.lock(lock, false) {
            Ok(()) => {
                // SAFETY: it was taken just now, and nothing is lent out by it.
                unsafe { self.unlock(lock) };
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Gives lock number `lock` back.
    ///
    /// # Safety
    /// Only who took the lock gives it back, once; nothing that it kept others from is alive, such
    /// as a [`slice`](Self::slice) of a segment of the lane that it is of.
    #[expect(
        unsafe_code,
        reason = "a lock keeps others from memory that is lent out"
    )]
    unsafe fn unlock(&self, lock: u32);

    /// In a forked child: gives up its copy of the [descriptor](Self::descriptor), with which it
    /// would hold its parent's locks for as long as it lives. Nothing is done with this medium any
    /// more.
    fn abandon(&self) {}

    /// Leaves lock number `lock` to the open file (see [`descriptor`](Self::descriptor)): others
    /// are refused until no process has that open any more; through this medium it can be taken
    /// again.
    ///
    /// # Safety
    /// As for [`unlock`](Self::unlock).
    #[expect(
        unsafe_code,
        reason = "a lock keeps others from memory that is lent out"
    )]
    unsafe fn leave(&self, lock: u32) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.unlock(lock) }
    }
}

/// Calls of the pool's own modules, whose protocol is the one that the medium's methods ask for. A
/// line has one writer at a time and no reader (`window`). A segment that changes hands has one
/// owner at a time (the pool's lock). What is written back is published, and never written again.
#[expect(unsafe_code, reason = "the pool's protocol is the promise")]
impl dyn Media + '_ {
    /// [`stream`](Media::stream), all of `parts`.
    #[inline]
    pub(crate) fn store(&self, offset: u64, parts: &[IoSlice<'_>]) {
        // SAFETY: by the pool's protocol, see above.
        unsafe { self.stream(offset, parts, 0) }
    }

    /// [`stream_once`](Media::stream_once).
    #[inline]
    pub(crate) fn store_once(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        skip: usize,
        sum: &mut Checksum,
    ) {
        // SAFETY: by the pool's protocol, see above.
        unsafe { self.stream_once(offset, parts, skip, sum) }
    }

    /// [`load_in`](Media::load_in): of the tables, or of a segment that is the caller's alone and
    /// not lent out.
    pub(crate) fn fetch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        // SAFETY: by the pool's protocol, see above; nothing lends out the tables.
        unsafe { self.load_in(offset, bytes) }
    }

    /// [`write_back`](Media::write_back), of published bytes or the caller's alone.
    pub(crate) fn commit_pages(&self, offset: u64, bytes: u64) -> io::Result<()> {
        // SAFETY: by the pool's protocol, see above.
        unsafe { self.write_back(offset, bytes) }
    }
}

/// Whole lines of the concatenation of `parts`, from its byte `skip` on, the last one filled with
/// zeros: what is stored in tables.
fn table_lines(parts: &[IoSlice<'_>], skip: usize) -> Vec<u8> {
    let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    let mut lines = all.get(skip..).unwrap_or_default().to_vec();
    lines.resize(lines.len().next_multiple_of(LINE), 0);
    lines
}
