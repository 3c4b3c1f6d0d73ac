//! This process's identity: it is told from a forked child that no handler of fork's was called in,
//! and from one of vfork's.
#![expect(
    unsafe_code,
    reason = "asks who it is; a page that a forked child finds wiped; descriptors of a thread"
)]

use rustix::{
    io::Errno,
    mm::{Advice, MapFlags, ProtFlags},
    thread::UnshareFlags,
};
use std::{
    ptr,
    sync::atomic::{
        AtomicI32, AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

const PAGE: usize = 4096;

/// Before there is a page.
static NOT_YET: AtomicI32 = AtomicI32::new(-1);

/// The mark of the process that the library was started in, or forked to: in a page that the kernel
/// wipes in a forked child.
static MARK: AtomicPtr<AtomicI32> = AtomicPtr::new((&raw const NOT_YET).cast_mut());

#[inline]
fn mark() -> &'static AtomicI32 {
    // SAFETY: what is stored there is never unmapped.
    unsafe { &*MARK.load(Acquire) }
}

/// Noted where a process does not know its number.
const UNKNOWN: i32 = -2;

/// This process's number, if it is known: a filter (seccomp) may refuse to say, which the C library
/// gives as a negative number.
fn own_id() -> Option<i32> {
    // SAFETY: it needs nothing.
    let told = unsafe { libc::getpid() };
    if told > 0 {
        return Some(told);
    }
    let link = rustix::fs::readlink(c"/proc/self", Vec::new()).ok()?;
    link.to_str().ok()?.parse().ok()
}

/// Notes which process this is, when the library starts.
pub(crate) fn begin_process() {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory, at an address of the kernel's choice.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE, access, MapFlags::PRIVATE) };
    if let Ok(page) = mapped {
        // SAFETY: the page is ours, and is given back only if nothing is in it.
        unsafe {
            match rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork) {
                Ok(()) => MARK.store(page.cast(), Release),
                // Before Linux 4.14: the handlers of fork are all there is.
                Err(_) => drop(rustix::mm::munmap(page, PAGE)),
            }
        }
    }
    note_process();
}

/// Notes which process this is: in a forked child, once it has nothing of its parent's.
pub(crate) fn note_process() {
    mark().store(own_id().unwrap_or(UNKNOWN), Release);
}

/// True in a forked child that has not noted it: it was made by a system call that no handler of
/// fork's saw. Costs two loads.
#[inline]
pub(crate) fn is_new_process() -> bool {
    mark().load(Relaxed) == 0
}

/// True between `vfork` and `exec`: the memory is the parent's, the descriptors are copies.
pub(crate) fn in_vforked_child() -> bool {
    match mark().load(Relaxed) {
        // One that cannot know is taken for the process that it shares its memory with.
        0 | UNKNOWN => false,
        id => own_id().is_some_and(|own| own != id),
    }
}

/// From now on the calling thread has descriptors of its own, at first those of the process. What
/// it opens and closes no other thread sees, and the process keeps its POSIX locks when this one
/// closes a file.
///
/// # Errors
/// What the kernel says.
pub(crate) fn own_descriptors() -> Result<(), Errno> {
    // SAFETY: the thread uses no descriptor by its number that another has opened or closed since.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }
}

/// True if this process has one thread, which is not known where there is no /proc.
pub(crate) fn is_single_threaded() -> bool {
    // A directory has two links, and one of each directory in it.
    rustix::fs::stat(c"/proc/self/task").is_ok_and(|task| task.st_nlink == 2 + 1)
}
