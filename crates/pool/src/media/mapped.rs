//! Ordinary memory that processes share: a value of atomics in a sealed memfd, and counters in it
//! to sleep on.
#![expect(unsafe_code, reason = "memory shared with other processes")]

use crate::steps;
use rustix::{
    fs::{MemfdFlags, SealFlags},
    io::Errno,
    mm::{MapFlags, ProtFlags},
    thread::futex,
};
use std::{
    ops::{Deref, Range},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

/// Memory that is shared with other processes.
///
/// # Safety
/// It consists of atomics: every bit pattern is valid, all zeros included, and others may change
/// it.
pub unsafe trait Atomics {}

/// A mapping of a `T`, which other processes may map as well.
pub struct Mapped<T: Atomics>(NonNull<T>);

// SAFETY: it has atomics only.
unsafe impl<T: Atomics> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Atomics> Sync for Mapped<T> {}

impl<T: Atomics> Mapped<T> {
    /// A new `T`, all zeros, and the descriptor to send to other processes. Its size is sealed:
    /// none of them can take memory away under the others.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(name: &str) -> Result<(Self, OwnedFd), Errno> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, size_of::<T>() as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(fd.as_fd())?, fd))
    }

    /// Maps another process's memory, for reading and writing.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` for something smaller than a `T`.
    pub fn map(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        Self::map_as(fd, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// The addresses that it takes.
    #[must_use]
    pub fn memory(&self) -> Range<usize> {
        let start = self.0.as_ptr().addr();
        start..start + size_of::<T>()
    }

    /// Maps the file. Where `protection` does not let it be written to, nothing may be stored.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` for something smaller than a `T`.
    pub fn map_as(fd: BorrowedFd<'_>, protection: ProtFlags) -> Result<Self, Errno> {
        Self::map_from(fd, protection, 0)
    }

    /// Maps the part of the file that begins at `offset`, which is one of a page. Where
    /// `protection` does not let it be written to, nothing may be stored.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` for something smaller than a `T`.
    pub fn map_from(fd: BorrowedFd<'_>, protection: ProtFlags, offset: u64) -> Result<Self, Errno> {
        let end = offset.saturating_add(size_of::<T>() as u64);
        if rustix::fs::fstat(fd)?.st_size.unsigned_abs() < end {
            return Err(Errno::INVAL);
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let page = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                size_of::<T>(),
                protection,
                MapFlags::SHARED,
                fd,
                offset,
            )
        }?;
        NonNull::new(page.cast()).map(Self).ok_or(Errno::NOMEM)
    }
}

impl<T: Atomics> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping has the size of a `T`, which consists of atomics, for which every bit
        // pattern is valid; it lives as long as `self`.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Atomics> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}

/// Counts on, and wakes all that sleep on the counter.
pub fn wake(counter: &AtomicU32) {
    counter.fetch_add(1, SeqCst);
    steps::wake(counter, true);
    // Cannot fail: the word is there and aligned. The kernel takes the number for a signed one: a
    // negative one wakes one sleeper.
    let _ = futex::wake(counter, futex::Flags::empty(), i32::MAX.cast_unsigned());
}

/// Wakes one that sleeps on the word, which has changed.
pub fn wake_one(word: &AtomicU32) {
    steps::wake(word, false);
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Wakes all that sleep on the word, which has changed.
pub fn wake_all(word: &AtomicU32) {
    steps::wake(word, true);
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX.cast_unsigned());
}

/// Sleeps until the counter is not `seen` any more, or `limit` is over; or for no reason.
pub fn wait(counter: &AtomicU32, seen: u32, limit: Duration) {
    if steps::sleep(counter, seen) {
        return;
    }
    let limit = futex::Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let _ = futex::wait(counter, futex::Flags::empty(), seen, Some(&limit));
}
