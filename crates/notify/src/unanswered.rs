//! Calls that the agent had received when it died: the phase of each, and the answer to its thread.
//! docs/notify.md, "When the agent dies".

use crate::{
    caller::CallerThread,
    listener::{CallAnswer, CallListener},
    open_files::taken,
    plain_calls::{bytes_of, plainly},
    self_paths::said_for,
    slots::{CallPhase, CallSlot, CallSlots, SeenCall, inode_mark},
};
use libc::c_int;
use rustix::{
    fs::{AtFlags, Mode, OFlags, SeekFrom, Stat},
    io::Errno,
};
use std::{
    ops::Range,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
};

/// The answer to a call that the agent had received.
pub(crate) fn how_far(slot: &CallSlot, call: SeenCall, slots: &CallSlots) -> CallAnswer {
    match slot.phase() {
        _ if forebay_pool::fault_enabled!("guardian-does-all-again") => plainly(call, slots),
        CallPhase::Done => slot.answer(),
        CallPhase::Received | CallPhase::Passed => plainly(call, slots),
        CallPhase::Begun => match slot.before() {
            _ if only_moves(call) => plainly(call, slots),
            mark @ 0.. if call.number == libc::SYS_renameat2 => exchanged(mark, call, slots),
            links @ 0.. if is_link(call) => linked(links, call, slots),
            before @ 0.. => written_since(before, call, slots),
            // It has the number already, and only the answer is missing.
            _ if slot.number() >= 0 && has_number(call.thread, slot.number()) => {
                CallAnswer::Done(slot.number().into())
            }
            _ => again(call, slots),
        },
    }
}

/// A call that changes nothing but a file position.
fn only_moves(call: SeenCall) -> bool {
    let reads = [libc::SYS_read, libc::SYS_readv, libc::SYS_preadv2];
    reads.contains(&call.number) || call.number == libc::SYS_lseek
}

/// Such a call that was begun is made again: from where the position was before. Nothing else has
/// moved it since, or the slot would say that it was done.
pub(crate) fn move_back(slot: &CallSlot, call: SeenCall) {
    if slot.phase() == CallPhase::Begun
        && only_moves(call)
        && let Ok(before) = u64::try_from(slot.before())
        && let Ok(fd) = taken(call.thread, call.arguments[0] as c_int)
    {
        let _ = rustix::fs::seek(&fd, SeekFrom::Start(before));
    }
}

/// An exchange of names, of which the first was this file's before: made again it would undo what
/// was done.
fn exchanged(mark: i64, call: SeenCall, slots: &CallSlots) -> CallAnswer {
    let name = (call.arguments[0] as c_int, call.arguments[1]);
    match stat(call.thread, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if inode_mark(stat.st_ino) != mark => CallAnswer::Done(0),
        _ => plainly(call, slots),
    }
}

#[cfg(target_arch = "x86_64")]
fn is_link(call: SeenCall) -> bool {
    [libc::SYS_linkat, libc::SYS_link].contains(&call.number)
}

#[cfg(not(target_arch = "x86_64"))]
fn is_link(call: SeenCall) -> bool {
    call.number == libc::SYS_linkat
}

/// A link to a name that was free, of a file that had so many names: it was made if the name is
/// this file's now, and the file has more.
fn linked(links: i64, call: SeenCall, slots: &CallSlots) -> CallAnswer {
    let [first, second, third, fourth, flags, _] = call.arguments;
    let here = libc::AT_FDCWD;
    let (from, to, flags) = match call.number {
        libc::SYS_linkat => (
            (first as c_int, second),
            (third as c_int, fourth),
            flags as c_int,
        ),
        _ => ((here, first), (here, second), 0),
    };
    match (
        stat(call.thread, from, link_source(flags)),
        stat(call.thread, to, AtFlags::SYMLINK_NOFOLLOW),
    ) {
        (Ok(from), Ok(to))
            if (from.st_dev, from.st_ino) == (to.st_dev, to.st_ino) && links_of(&from) > links =>
        {
            CallAnswer::Done(0)
        }
        _ => plainly(call, slots),
    }
}

/// The lookup of the first name of a link, by the flags of `linkat`.
pub(crate) fn link_source(flags: c_int) -> AtFlags {
    let empty = AtFlags::from_bits_retain(flags.cast_unsigned()) & AtFlags::EMPTY_PATH;
    match flags & libc::AT_SYMLINK_FOLLOW {
        0 => empty | AtFlags::SYMLINK_NOFOLLOW,
        _ => empty,
    }
}

/// The number of a file's names.
pub(crate) fn links_of(stat: &Stat) -> i64 {
    i64::try_from(stat.st_nlink).unwrap_or(i64::MAX)
}

/// Gives the caller a file that the agent has made for it alone (`O_EXCL`), and that the kernel
/// would refuse to make again. None if there is none.
pub(crate) fn made(slot: &CallSlot, call: SeenCall, listener: &CallListener) -> Option<()> {
    let [first, second, third, ..] = call.arguments;
    let (dir, path, flags) = match call.number {
        libc::SYS_openat => (first as c_int, second, third as c_int),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => (libc::AT_FDCWD, first, second as c_int),
        _ => return None,
    };
    let number = slot.number();
    if flags & libc::O_EXCL == 0 || number == -1 || has_number(call.thread, number) {
        return None;
    }
    let thread = CallerThread(call.thread);
    let path = thread.path(path).ok()?;
    let path = said_for(call.thread, &path);
    let dir = thread.directory(dir).ok()?;
    let again = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) | libc::O_CLOEXEC;
    let again = OFlags::from_bits_retain(again.cast_unsigned());
    let file = rustix::fs::openat(dir, &*path, again, Mode::empty()).ok()?;
    let closes_on_exec = flags & libc::O_CLOEXEC != 0;
    listener.give(call.id, file, closes_on_exec).ok()
}

/// A call that was begun, and may have been done: as if it were made again, but that what it was to
/// bring about may be there.
fn again(call: SeenCall, slots: &CallSlots) -> CallAnswer {
    let here = |at: usize| (libc::AT_FDCWD, call.arguments[at]);
    let below = |at: usize| (call.arguments[at] as c_int, call.arguments[at + 1]);
    let gone = match call.number {
        libc::SYS_renameat2 | libc::SYS_renameat | libc::SYS_unlinkat => Some(below(0)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename | libc::SYS_unlink => Some(here(0)),
        _ => {
            let _ = here;
            None
        }
    };
    // What it was to take a name from has none any more.
    if let Some(name) = gone
        && is_free(call.thread, name)
    {
        return CallAnswer::Done(0);
    }
    plainly(call, slots)
}

fn is_free(thread: u32, name: (c_int, u64)) -> bool {
    let found = stat(thread, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_err_and(|errno| errno == Errno::NOENT)
}

/// The status of the file that a thread's name leads to: below a directory of its own, by the
/// address of its path.
fn stat(thread: u32, (dir, address): (c_int, u64), flags: AtFlags) -> Result<Stat, Errno> {
    let caller = CallerThread(thread);
    let path = caller.path(address)?;
    rustix::fs::statat(caller.directory(dir)?, &*said_for(thread, &path), flags)
}

/// The bytes of a write that were done: by the file's position or end before it, and now. Its
/// thread held the file's lock, so between the two stands what it wrote, unless somebody writes
/// past the agent: so it is compared.
fn written_since(before: i64, call: SeenCall, slots: &CallSlots) -> CallAnswer {
    let Ok(fd) = taken(call.thread, call.arguments[0] as c_int) else {
        return plainly(call, slots);
    };
    let wanted = bytes_of(call).unwrap_or_default();
    match end_of(&fd, call).map(|now| written_within(&fd, before..now, &wanted)) {
        Ok(bytes @ 1..) => CallAnswer::Done(bytes as i64),
        _ => plainly(call, slots),
    }
}

/// The end of a write that does not give its offset: the file's size if it appends, else its
/// position.
fn end_of(fd: &OwnedFd, call: SeenCall) -> Result<i64, Errno> {
    let asks =
        call.number == libc::SYS_pwritev2 && call.arguments[5] as c_int & libc::RWF_APPEND != 0;
    let appends = rustix::fs::fcntl_getfl(fd)?.contains(OFlags::APPEND);
    match appends || asks {
        true => Ok(rustix::fs::fstat(fd)?.st_size),
        false => Ok(rustix::fs::tell(fd)?.cast_signed()),
    }
}

/// A mark by which can be told how far a write to an open file came, by a number that no log has:
/// see [`CallSlot::before`].
///
/// # Errors
/// The kernel's.
pub(crate) fn mark_before(fd: &OwnedFd, call: SeenCall) -> Result<i64, Errno> {
    let appends = rustix::fs::fcntl_getfl(fd)?.contains(OFlags::APPEND);
    let is_at_offset = match call.number {
        libc::SYS_pwrite64 | libc::SYS_pwritev => true,
        libc::SYS_pwritev2 => {
            call.arguments[3] != u64::MAX && call.arguments[5] as c_int & libc::RWF_APPEND == 0
        }
        _ => false,
    };
    match is_at_offset && !appends {
        true => Ok(-1),
        false => end_of(fd, call),
    }
}

/// The number of these bytes that were written to a range.
fn written_within(fd: &OwnedFd, range: Range<i64>, wanted: &[u8]) -> usize {
    let bytes = usize::try_from(range.end - range.start).unwrap_or(0);
    let part = &wanted[..bytes.min(wanted.len())];
    if part.is_empty() {
        0
    } else if stands_at(fd, range.start.unsigned_abs(), part) {
        part.len()
    } else if bytes > wanted.len() && has_since(fd, range, wanted) {
        wanted.len()
    } else {
        0
    }
}

/// The open file, by a descriptor that reads: the program's may be for writing only.
fn reading(fd: &OwnedFd) -> std::io::Result<std::fs::File> {
    std::fs::File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// True if these bytes stand at an offset.
fn stands_at(fd: &OwnedFd, offset: u64, wanted: &[u8]) -> bool {
    const CHUNK: usize = 1 << 20;
    let Ok(file) = reading(fd) else {
        return false;
    };
    let mut found = vec![0; CHUNK.min(wanted.len())];
    wanted.chunks(CHUNK).zip(0_u64..).all(|(part, number)| {
        let found = &mut found[..part.len()];
        let at = offset + number * CHUNK as u64;
        file.read_exact_at(found, at).is_ok() && found == part
    })
}

/// True if these bytes stand in a range of what is open: another thread's may be there instead.
fn has_since(fd: &OwnedFd, range: Range<i64>, wanted: &[u8]) -> bool {
    const LOOKED_AT_MAX: u64 = 64 << 20;
    let Ok(bytes) = u64::try_from(range.end - range.start) else {
        return false;
    };
    let mut found = vec![0; bytes.min(LOOKED_AT_MAX) as usize];
    let read =
        reading(fd).and_then(|file| file.read_exact_at(&mut found, range.start.unsigned_abs()));
    read.is_ok() && found.windows(wanted.len()).any(|part| part == wanted)
}

fn has_number(thread: u32, number: c_int) -> bool {
    std::fs::symlink_metadata(format!("/proc/{thread}/fd/{number}")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that has these bytes.
    fn file(bytes: &[u8]) -> OwnedFd {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let fd = rustix::fs::memfd_create("written", flags).unwrap();
        assert_eq!(rustix::io::write(&fd, bytes).unwrap(), bytes.len());
        fd
    }

    #[test]
    fn a_write_counts_as_far_as_its_bytes_are_in_its_place() {
        let fd = file(b"abcabcxyz");
        for (range, wanted, written) in [
            // It was not begun, though the same bytes stand before.
            (3..3, "abc", 0),
            (3..6, "abc", 3),
            // In part.
            (6..9, "xyzuvw", 3),
            // Another wrote behind it, or before it, past the agent.
            (3..9, "abc", 3),
            (3..9, "xyz", 3),
            (3..9, "uvw", 0),
        ] {
            let found = written_within(&fd, range.clone(), wanted.as_bytes());
            assert_eq!(found, written, "{range:?} {wanted}");
        }
    }

    #[test]
    fn a_long_write_is_compared_wholly() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 1000) as u8).collect();
        let fd = file(&bytes);
        assert!(stands_at(&fd, 0, &bytes));
        let mut other = bytes;
        other[2_500_000] ^= 1;
        assert!(!stands_at(&fd, 0, &other));
        assert!(!stands_at(&fd, 1, &other));
    }
}
