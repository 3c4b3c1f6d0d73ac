//! The state that the processes of a run share: words in a memory file. Each is valid whatever its
//! value, so a process that is killed between two of them leaves a cost that is slightly wrong, and
//! nothing else.
#![expect(unsafe_code, reason = "memory shared with other processes")]

use crate::{DEVICES_MAX, queue::Queue};
use rustix::{
    fs::{MemfdFlags, SealFlags},
    io::Errno,
    mm::{MapFlags, ProtFlags},
};
use std::{
    os::fd::{BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::AtomicU64,
};

/// Places of a set of the page cache: a cache line.
pub(crate) const WAYS: usize = 8;

/// A set of the page cache.
#[repr(C, align(64))]
pub(crate) struct Set(pub(crate) [AtomicU64; WAYS]);

/// Files that are known at once. Of more, some are forgotten, and what they had to write back with
/// them.
pub(crate) const FILES: usize = 1 << 14;

/// What is known of a file.
#[repr(C, align(64))]
pub(crate) struct FileState {
    /// Its number; 0 if there is none here.
    pub(crate) key: AtomicU64,
    /// The number plus one of the device that it was opened on.
    pub(crate) device: AtomicU64,
    /// Counts its contents: pages of an earlier one are not its pages.
    pub(crate) generation: AtomicU64,
    /// Counts its write-backs: a page with this number waits to be written.
    pub(crate) epoch: AtomicU64,
    /// Bytes that wait to be written.
    pub(crate) dirty: AtomicU64,
    /// Places that they are in: requests that it takes to write them.
    pub(crate) runs: AtomicU64,
    /// Its size as far as known: what is beyond was written by ways that are not seen.
    pub(crate) end: AtomicU64,
    /// Where what was ever written to it ends: beyond there is room, as `fallocate` makes it, which
    /// is not read before it is changed.
    pub(crate) data_end: AtomicU64,
    /// Its size when it was last synced.
    pub(crate) synced_end: AtomicU64,
    /// Where the last read and the last write ended.
    pub(crate) read_end: AtomicU64,
    pub(crate) write_end: AtomicU64,
    /// Not 0: it was mapped so that it can be stored to, which is not seen.
    pub(crate) stored: AtomicU64,
}

/// A device's state.
#[repr(C, align(64))]
pub(crate) struct DeviceState {
    pub(crate) queue: Queue,
    /// Bytes of all files that wait to be written.
    pub(crate) dirty: AtomicU64,
    /// Which files were looked at last for one to be written back.
    pub(crate) hand: AtomicU64,
    /// Not 0: written since the last flush.
    pub(crate) unflushed: AtomicU64,
    /// Figures that are counted, at their places in [`count`].
    pub(crate) counts: [AtomicU64; count::FIGURES],
}

/// Places of a device's figures.
pub(crate) mod count {
    pub(crate) const READS: usize = 0;
    pub(crate) const READ_BYTES: usize = 1;
    pub(crate) const CACHED_READS: usize = 2;
    pub(crate) const WRITES: usize = 3;
    pub(crate) const WRITE_BYTES: usize = 4;
    pub(crate) const SYNCS: usize = 5;
    pub(crate) const FLUSHES: usize = 6;
    pub(crate) const FIGURES: usize = 7;
}

#[repr(C)]
pub(crate) struct State {
    pub(crate) devices: [DeviceState; DEVICES_MAX],
    pub(crate) files: [FileState; FILES],
}

/// A mapping of the state, and of the page caches behind it.
pub(crate) struct Shared {
    base: NonNull<State>,
    sets: usize,
}

// SAFETY: there are atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

fn bytes(sets: usize) -> usize {
    size_of::<State>() + sets * size_of::<Set>()
}

const _: () = assert!(size_of::<State>().is_multiple_of(align_of::<Set>()));

impl Shared {
    /// New state, all zero, with a page cache of `sets` sets. Its memory is taken as it is used;
    /// its size is sealed.
    pub(crate) fn create(sets: usize) -> Result<(Self, OwnedFd), Errno> {
        let fd = rustix::fs::memfd_create(
            "forebay-device",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&fd, bytes(sets) as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(rustix::fd::AsFd::as_fd(&fd), sets)?, fd))
    }

    /// The state that another process made.
    pub(crate) fn map(fd: BorrowedFd<'_>, sets: usize) -> Result<Self, Errno> {
        if rustix::fs::fstat(fd)?.st_size.cast_unsigned() < bytes(sets) as u64 {
            return Err(Errno::INVAL);
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                bytes(sets),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, sets })
    }

    pub(crate) fn state(&self) -> &State {
        // SAFETY: the mapping has at least this size and lives as long as `self`; there are atomics
        // only, valid whatever their value.
        unsafe { self.base.as_ref() }
    }

    /// All page caches, one after the other.
    pub(crate) fn sets(&self) -> &[Set] {
        // SAFETY: as above; the sets are behind the state, aligned as asserted.
        unsafe { std::slice::from_raw_parts(self.base.add(1).cast().as_ptr(), self.sets) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), bytes(self.sets)) };
    }
}
