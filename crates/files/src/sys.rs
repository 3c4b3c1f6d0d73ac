//! System calls that have no safe form, and descriptors that belong to the database: all `unsafe`
//! of the crate, beside the shared page's.
#![expect(
    unsafe_code,
    reason = "raw system calls, and descriptors that are not ours"
)]

mod confirm;
mod file_locks;
mod frames;
mod handles;
mod leases;
mod memory;
mod open_files;
mod process;
mod rights;
mod signals;
mod stat;
mod truncate;
mod whole_seconds;

pub(crate) use forebay_pool::{complain, complain_repeated, rewrite::write_at, sockets::peer};

pub(crate) use confirm::{EXT4, check_file_system, confirm_sync, confirm_sync_of};
pub(crate) use file_locks::{is_locked, lock_shared};
pub use frames::Frame;
pub(crate) use frames::{begin_frames, is_gone};
pub(crate) use handles::{handle_of, open_handle};
pub(crate) use leases::{alone, give_lease, take_lease};
pub(crate) use memory::{copy_of, may_be_read, range_of};
pub(crate) use open_files::ManyOpenFiles;
pub(crate) use process::{
    begin_process, in_vforked_child, is_new_process, is_single_threaded, note_process,
    own_descriptors,
};
pub(crate) use rights::may_write;
pub(crate) use signals::mask;
pub use signals::{hear_of_children, ignore_signals};
pub(crate) use stat::{kind_of_file_system, stat_at, stat_of};
pub(crate) use truncate::truncate_open;
pub(crate) use whole_seconds::{has_whole_seconds, keeps_seconds};

use rustix::{
    fs::{AtFlags, FallocateFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT},
    io::Errno,
    mm::{MapFlags, ProtFlags},
    time::ClockId,
};
use std::{
    ffi::c_int,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
};

/// A descriptor of the database, for the length of one system call: if it is closed meanwhile, the
/// kernel says `EBADF`, as it would have said to the database.
pub(crate) fn borrow(fd: c_int) -> Option<BorrowedFd<'static>> {
    // SAFETY: not -1. It is used for system calls only, which take any number; see above.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Descriptor for `*at` calls as the C library takes it, `AT_FDCWD` included.
pub(crate) fn directory(fd: c_int) -> BorrowedFd<'static> {
    borrow(fd).unwrap_or(rustix::fs::CWD)
}

/// The directory of links to this thread's descriptors: a thread may have a table of its own
/// (`unshare`).
pub(crate) const LINKS: &str = "/proc/thread-self/fd";

/// The link to the file that is open as `fd`.
pub(crate) fn link_of(fd: BorrowedFd<'_>) -> String {
    format!("{LINKS}/{}", fd.as_raw_fd())
}

fn last_errno() -> Errno {
    // SAFETY: the C library's own variable of this thread.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// Closes a descriptor that a forked child inherited, or that its program does not get.
pub(crate) fn close(fd: BorrowedFd<'_>) {
    // SAFETY: nothing in this process uses it.
    unsafe { rustix::io::close(fd.as_raw_fd()) };
}

/// Puts the descriptor opened `instead` in the place of `fd`.
pub(crate) fn replace(
    fd: BorrowedFd<'_>,
    instead: Result<OwnedFd, Errno>,
    cloexec: bool,
) -> Result<(), Errno> {
    let instead = instead?;
    let flags = if cloexec {
        rustix::io::DupFlags::CLOEXEC
    } else {
        rustix::io::DupFlags::empty()
    };
    // SAFETY: the database was not given this descriptor yet; no other code has it. Forgotten, so
    // that it stays open.
    let mut place = unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) };
    let done = rustix::io::dup3(&instead, &mut place, flags);
    std::mem::forget(place);
    done
}

/// The file's modification time is now, which a replay takes for a change that is not in the lane.
/// Does not allocate.
pub(crate) fn set_changed_now(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let tv_nsec = UTIME_NOW;
    set_time(fd, Timespec { tv_sec: 0, tv_nsec })
}

/// The file's modification time is this one, ns since 1970.
pub(crate) fn set_modified(fd: BorrowedFd<'_>, modified: u64) -> Result<(), Errno> {
    let time = Timespec {
        tv_sec: (modified / 1_000_000_000) as i64,
        tv_nsec: (modified % 1_000_000_000) as i64,
    };
    set_time(fd, time)
}

fn set_time(fd: BorrowedFd<'_>, last_modification: Timespec) -> Result<(), Errno> {
    let last_access = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    };
    let times = Timestamps {
        last_access,
        last_modification,
    };
    rustix::fs::futimens(fd, &times)
}

/// As [`complain`](forebay_pool::complain), the first time that `said` is handed in.
pub(crate) fn complain_once(said: &AtomicBool, what: &str) {
    if !said.swap(true, Relaxed) {
        complain(what);
    }
}

/// The head of a thread's robust list, as the kernel has it.
#[repr(C)]
struct RobustHead {
    first: AtomicUsize,
    offset: isize,
    pending: usize,
}

/// Puts this thread's id into `word`. When the thread ends, however it ends, the kernel takes it
/// away (`set_robust_list`): so all who share the memory know that it did. `node` is the list's,
/// and in the same memory.
pub(crate) fn mark_at_end_of_thread(node: &AtomicUsize, word: &AtomicU32) -> Result<(), Errno> {
    use std::sync::atomic::Ordering::Release;
    let offset = std::ptr::from_ref(word)
        .addr()
        .wrapping_sub(std::ptr::from_ref(node).addr());
    // Never freed: the kernel reads it when the thread is gone.
    let head: &'static RobustHead = Box::leak(Box::new(RobustHead {
        first: AtomicUsize::new(std::ptr::from_ref(node).expose_provenance()),
        offset: offset.cast_signed(),
        pending: 0,
    }));
    // The list is a ring.
    node.store(std::ptr::from_ref(&head.first).expose_provenance(), Release);
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    word.store(thread.cast_unsigned(), Release);
    // SAFETY: the head lives for ever and has the kernel's layout. It replaces the C library's,
    // whose robust mutexes this thread has none of.
    let done = unsafe { libc::syscall(libc::SYS_set_robust_list, head, size_of::<RobustHead>()) };
    (done == 0).then_some(()).ok_or_else(last_errno)
}

/// Time at which the file was made, ns since 1970; 0 if that is not known.
pub(crate) fn born(fd: BorrowedFd<'_>) -> u64 {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
    stat.map_or(0, |stat| match stat.stx_mask & StatxFlags::BTIME.bits() {
        0 => 0,
        _ => {
            stat.stx_btime.tv_sec.cast_unsigned() * 1_000_000_000
                + u64::from(stat.stx_btime.tv_nsec)
        }
    })
}

/// True if a descriptor of one process and one of another share one open file; none if that cannot
/// be told.
pub(crate) fn share_open_file(
    (one, fd): (u32, c_int),
    (other, other_fd): (u32, c_int),
) -> Option<bool> {
    const KCMP_FILE: c_int = 0;
    // SAFETY: numbers only.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILE, fd, other_fd) };
    (order >= 0).then_some(order == 0)
}

/// Has memory behind a part of a file that processes map. Without it, touching it would end the
/// process that does.
pub(crate) fn reserve_memory(file: &OwnedFd, part: std::ops::Range<u64>) -> Result<(), Errno> {
    let bytes = part.end - part.start;
    rustix::fs::fallocate(file, FallocateFlags::empty(), part.start, bytes)
}

/// A forked child does not get the mapping at `range`.
pub(crate) fn keep_from_children(range: std::ops::Range<usize>) -> Result<(), Errno> {
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: the range is mapped by us; only children are affected.
    unsafe { rustix::mm::madvise(start, range.len(), rustix::mm::Advice::LinuxDontFork) }
}

/// A dump of this process leaves out the mapping at `range`: to write it, the kernel would touch
/// all of it, and most of a large one is never used. If it refuses, dumps are larger.
pub(crate) fn keep_from_dumps(range: std::ops::Range<usize>) {
    let start = std::ptr::without_provenance_mut(range.start);
    let advice = rustix::mm::Advice::LinuxDontDump;
    // SAFETY: the range is mapped by us; only dumps are affected.
    let _ = unsafe { rustix::mm::madvise(start, range.len(), advice) };
}

/// Puts empty memory of this process alone in the place of all mappings of a file. What was a
/// reference into it stays valid, and leads to zeros.
pub(crate) fn unmap_file(dev: u64, ino: u64) -> Result<(), Errno> {
    let maps = std::fs::read_to_string("/proc/self/maps")
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let device = format!(
        "{:02x}:{:02x}",
        rustix::fs::major(dev),
        rustix::fs::minor(dev)
    );
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let (Some((start, end)), Some(on), Some(inode)) = (range, words.nth(2), words.next())
        else {
            continue;
        };
        if on != device || inode.parse() != Ok(ino) {
            continue;
        }
        let parse = |address| usize::from_str_radix(address, 16).map_err(|_| Errno::INVAL);
        let (start, end) = (parse(start)?, parse(end)?);
        // SAFETY: the range is mapped, from the file, by us; all of it is replaced by memory that
        // may be accessed in the same ways.
        unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::without_provenance_mut(start),
                end - start,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            )
        }?;
    }
    Ok(())
}

/// Unmaps memory of the client's that nothing leads to any more.
pub(crate) fn unmap(range: std::ops::Range<usize>) {
    // SAFETY: the range is the client's; see above. What is not unmapped stays mapped.
    let _ =
        unsafe { rustix::mm::munmap(std::ptr::without_provenance_mut(range.start), range.len()) };
}

/// Puts empty memory of this process alone where `range` was, or is mapped.
pub(crate) fn stand_in(range: std::ops::Range<usize>) -> Result<(), Errno> {
    // SAFETY: the range is the client's, of which nothing is used any more but what may be
    // anything.
    unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::without_provenance_mut(range.start),
            range.len(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
        )
    }
    .map(drop)
}

/// Makes all of a file system durable, by a directory in it. Some that were cut off take `syncfs`
/// for done.
///
/// # Errors
/// The file system's.
pub(crate) fn sync_file_system(directory: impl std::os::fd::AsFd) -> Result<(), Errno> {
    sync_fault().map_or_else(|| rustix::fs::syncfs(&directory), Err)?;
    confirm_sync(directory)
}

/// Now by the clock that files have their times from, ns since 1970: a finer one may be in the next
/// second already.
#[inline]
pub(crate) fn file_time_now() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// In tests: an error instead of the next sync.
#[inline]
pub(crate) fn sync_fault() -> Option<Errno> {
    forebay_pool::failpoint::error("sync")
}

/// Modification time, ns since 1970.
pub(crate) fn modified(stat: &rustix::fs::Stat) -> u64 {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(stat.st_mtime_nsec)
}

/// True if a file is open to be written to by these flags.
pub(crate) fn writes(flags: c_int) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// The kernel's error, as far as it is one.
pub(crate) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
