//! Descriptors that come, go, and are changed.

use super::{
    bypass::opened,
    call_depth::interrupted,
    fd_table::{self, FdEntry},
    last_write_cache::LastWriteCache,
    process,
    retire::{give_up, retire},
    session::{self, MemberSession},
};
use crate::{shared::NameLoss, sys, wire::ClientRequest};
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};
use std::{
    ffi::c_int,
    sync::{
        MutexGuard,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// A thread has descriptors of its own, so a number says no more which descriptor it is.
static SPLIT: AtomicBool = AtomicBool::new(false);

/// Before the calling thread gets descriptors of its own (`unshare`, `close_range`). If other
/// threads share the process's, the table cannot say any more what a number is, and nothing is
/// absorbed from now on. What is known stays: that a descriptor is to be synced by who writes to
/// it.
pub fn unsharing() {
    if !sys::in_vforked_child() && !sys::is_single_threaded() {
        SPLIT.store(true, Relaxed);
        give_up("a thread has descriptors of its own");
    }
}

/// Before a child is made that shares this process's descriptors but not its memory: its opens and
/// closes are not heard of here. Or it shares the memory, not the descriptors, and goes on beside
/// this process: what a number is then depends on who asks. As [`unsharing`].
pub fn sharing() {
    if !sys::in_vforked_child() {
        SPLIT.store(true, Relaxed);
        give_up("a child shares its descriptors, or its memory, and not both");
    }
}

/// Notes what is known of `fd`. Where its number may be another descriptor in another thread,
/// nothing that is known of it is forgotten: to be synced too often costs time only.
fn note(fd: c_int, entry: Option<FdEntry>) {
    if !SPLIT.load(Relaxed) {
        fd_table::set_entry(fd, entry);
    } else if let Some(hidden) = entry.and_then(FdEntry::plain) {
        fd_table::add_hidden(fd, hidden);
    }
}

/// Before `fd` is closed, or something else is put in its place (`dup2`).
pub fn closing(fd: c_int) {
    let Some(entry) = fd_table::entry(fd) else {
        return;
    };
    // A vforked child shares our memory, but not our descriptors.
    if sys::in_vforked_child() {
        fd_table::differs_in_child(fd);
        return;
    }
    let Some(number) = entry.file() else {
        note(fd, None);
        return;
    };
    let known = session::there().filter(|_| !interrupted());
    // The number may come back for another open file: not while a write to this one is under way.
    let _held = known.map(|_| process::local(number));
    note(fd, None);
    if let Some(session) = known {
        tell_released(session, number);
    }
}

/// A descriptor of the file is gone. Its space is free as soon as the supervisor has closed it,
/// too. What a handler closes it finds out itself.
fn tell_released(session: &MemberSession, number: usize) {
    if session.page.files[number].gone() == NameLoss::Yes
        && fd_table::descriptors_of(number).next().is_none()
    {
        session.tell(&ClientRequest::Released {
            file: number as u32,
        });
    }
}

/// Makes `to` a duplicate of `from`, another descriptor, by `real` (`dup2`, `dup3`). What other
/// threads write to `to` meanwhile goes to the old file before, or to the new one after it, and is
/// logged as what it is. Only a write that a thread was about to begin may then pass by the lane,
/// if the old file is not absorbed.
///
/// # Errors
/// Those of `real`; as [`retire`].
pub fn replacing(
    from: c_int,
    to: c_int,
    real: impl FnOnce() -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    if to < 0 {
        return real();
    }
    if sys::in_vforked_child() {
        copying_in_child(from)?;
        fd_table::differs_in_child(to);
        return real();
    }
    let known = session::there().filter(|_| !interrupted());
    loop {
        let entries = (fd_table::entry(from), fd_table::entry(to));
        let (source, target) = entries;
        if fd_table::must_be_plain(to) && source.is_some_and(FdEntry::is_followed) {
            // It would write round the lane.
            retire(from)?;
            if !interrupted() {
                continue;
            }
        }
        let numbers = [source, target].map(|entry| entry.and_then(FdEntry::file));
        let held = known.map(|_| hold_in_turn(numbers));
        if (fd_table::entry(from), fd_table::entry(to)) != entries {
            continue;
        }
        // Who finds the new file by it waits for that one's lock; who finds the old one, for the
        // old one's.
        if numbers[0].is_some() {
            note(to, source);
        }
        let done = real();
        note(to, if done.is_ok() { source } else { target });
        drop(held);
        if let (Some(session), Some(old)) = (known, numbers[1]) {
            tell_released(session, old);
        }
        return done;
    }
}

/// In a child of `vfork`, before it makes a duplicate of `from`: the table is its parent's, in
/// which its new descriptor cannot be noted. What it writes by that is plain.
///
/// # Errors
/// As [`opened`].
fn copying_in_child(from: c_int) -> Result<(), Errno> {
    match fd_table::entry(from).is_some_and(FdEntry::is_followed) {
        true => opened(from),
        false => Ok(()),
    }
}

/// The locks of files in this process, in the order of their numbers.
fn hold_in_turn(numbers: [Option<usize>; 2]) -> [Option<MutexGuard<'static, LastWriteCache>>; 2] {
    let [one, other] = numbers;
    let (first, last) = (one.min(other), one.max(other));
    [first.filter(|_| first != last), last].map(|number| number.map(process::local))
}

/// Makes a duplicate of `from` by `real` (`dup`, `F_DUPFD`). No other thread closes an absorbed
/// `from`, or puts something else in its place, between the call and when its result is known.
///
/// # Errors
/// Those of `real`; as [`retire`].
pub fn duplicating(from: c_int, real: impl Fn() -> Result<c_int, Errno>) -> Result<c_int, Errno> {
    if sys::in_vforked_child() {
        copying_in_child(from)?;
        return real().inspect(|to| fd_table::differs_in_child(*to));
    }
    let known = session::there().filter(|_| !interrupted());
    let (to, source) = loop {
        let entry = fd_table::entry(from);
        let _held = known.map(|_| hold_in_turn([entry.and_then(FdEntry::file), None]));
        // Its file may have become plain meanwhile, and another have the number.
        if fd_table::entry(from) == entry {
            let to = real()?;
            // What was plain may be a log by now.
            let source = entry.or_else(|| fd_table::entry(from));
            note(to, source);
            break (to, source);
        }
    };
    if fd_table::must_be_plain(to) && source.is_some_and(FdEntry::is_followed) {
        // It would write round the lane. What cannot be known by its own number is known by the
        // other.
        let followed = if fd_table::entry(to).is_some() {
            to
        } else {
            from
        };
        retire(followed).map_err(|errno| {
            note(to, None);
            close_again(to, errno)
        })?;
    }
    Ok(to)
}

/// Closes a descriptor that the program was not given, because of an error.
pub(super) fn close_again(fd: c_int, errno: Errno) -> Errno {
    if let Some(fd) = sys::borrow(fd) {
        sys::close(fd);
    }
    errno
}

/// `fd` was opened just now: the note of its number is of a descriptor that was closed past the
/// client.
pub(super) fn is_new(fd: c_int) {
    if fd_table::entry(fd).is_some() {
        note(fd, None);
    }
}

/// A stream of the C library was opened on `fd`: whatever the program puts there is plain.
pub fn stream_opened(fd: c_int) {
    fd_table::set_stream(fd, true);
}

/// Before the stream on `fd` is closed.
pub fn stream_closing(fd: c_int) {
    fd_table::set_stream(fd, false);
}

/// `fd` was named to be duplicated for a program that is spawned.
pub fn given(fd: c_int) {
    fd_table::set_given(fd);
}

/// Before `fcntl(F_SETFL)` changes the flags of an absorbed `fd`. Whether a descriptor appends says
/// where its writes go, and is the same for all of the open file, of whichever process: a file is
/// plain before that changes.
///
/// # Errors
/// As [`retire`].
pub fn changing_flags(fd: c_int, flags: c_int) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let appends = rustix::fs::fcntl_getfl(raw)?.contains(OFlags::APPEND);
    match fd_table::entry(fd) {
        Some(_) if appends != (flags & libc::O_APPEND != 0) => retire(fd),
        _ => Ok(()),
    }
}

/// After `fcntl(F_SETFL)` gave an absorbed `fd` these flags.
pub fn changed_flags(fd: c_int, flags: c_int) {
    if flags & libc::O_DIRECT == 0 && fd_table::entry(fd).is_some() {
        fd_table::clear_direct(fd);
    }
}

/// The status flags (`O_SYNC`, `O_DSYNC`, `O_DIRECT`) that `fcntl(F_GETFL)` of an absorbed `fd`
/// must show beside the kernel's.
#[must_use]
pub fn hidden_flags(fd: c_int) -> c_int {
    fd_table::entry(fd).map_or(0, FdEntry::hidden)
}

/// True if a file that is open was opened with `O_SYNC` or `O_DSYNC` and the kernel does not know
/// it: a ring's writes to it would be complete, and not synced. Where threads have descriptors of
/// their own what is known of a number stays ([`unsharing`]); something else than a file, as a
/// ring, may have it by now.
#[must_use]
pub fn hides_syncs() -> bool {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let stat_of = |fd| sys::borrow(fd).and_then(|raw| sys::stat_of(raw).ok());
    let hides = fd_table::synced_unseen()
        .filter_map(stat_of)
        .any(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if hides {
        sys::complain_once(
            &TOLD,
            "an io_uring is refused (ENOSYS): its writes to a log that is open with O_SYNC or O_DSYNC would not be synced",
        );
    }
    hides
}

/// True if `fd`'s file is absorbed: its syncs cost nothing, and the supervisor's are those that
/// count.
#[must_use]
pub fn is_in_pool(fd: c_int) -> bool {
    fd_table::entry(fd).is_some_and(|entry| entry.file().is_some())
}
