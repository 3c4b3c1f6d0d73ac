//! Changes of an absorbed file's size: truncation, and allocation of room in it.
//!
//! A truncation is logged before the kernel is asked, what makes the file longer after it; both
//! under the file's lock, as what is written ([`write`](super::write)).

use super::{
    bypass::claim_inherited,
    call_depth::interrupted,
    config::CONFIG,
    fd_table, in_signal_handler,
    lookup::{NamedFile, named},
    order,
    process::{HeldFile, hold, hold_open, mark_range_unknown},
    retire::leave,
    session,
    times::failed_write,
};
use crate::{log::ENDED, record::SIZE_MAX, shared::DueSync, sys};
use rustix::{fs::AtFlags, io::Errno};
use std::{
    ffi::{CStr, c_int},
    os::fd::BorrowedFd,
    sync::atomic::{
        Ordering::{Acquire, Relaxed, SeqCst},
        fence,
    },
};

/// A truncation that took longer than this, ns, is logged again.
const STALL_NS: u64 = 10_000_000;

/// `ftruncate` of an absorbed `fd`.
///
/// # Errors
/// The kernel's.
pub fn truncate(fd: c_int, bytes: u64) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let real = || rustix::fs::ftruncate(raw, bytes);
    change_open(fd, true, |held| truncated(held, Some(raw), bytes, real))
}

/// Empties the absorbed `fd`, which was opened just now. That is durable with what is written next:
/// an open waits for no disk.
///
/// # Errors
/// The kernel's.
pub(super) fn truncate_opened(fd: c_int) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let real = || rustix::fs::ftruncate(raw, 0);
    change_open(fd, false, |held| truncated(held, Some(raw), 0, real))
}

/// Truncates the file with this number and generation, unless it is plain by now: then none.
pub(super) fn truncate_file(
    (number, generation): (usize, u32),
    fd: Option<BorrowedFd<'_>>,
    is_it: impl Fn() -> bool,
    bytes: u64,
    real: impl Fn() -> Result<(), Errno>,
) -> Result<Option<()>, Errno> {
    let Some(session) = session::current() else {
        return Ok(None);
    };
    while let Some(held) = hold(session, number, generation)?.filter(|_| is_it()) {
        if let Some(()) = truncated(Some(&held), fd, bytes, &real)? {
            let is_logged = held.shared.is_logged();
            drop(held);
            if !is_logged {
                session.page.ask_first_sync(number, DueSync::Soon);
            }
            return Ok(Some(()));
        }
    }
    Ok(None)
}

/// Logged first: what a power cut finds truncated, the lane must know to be so
/// (`record::KIND_TRUNCATE`). And once more afterwards, if the first record may have left the lane
/// by then. A drain takes no lock of a file, so it may sync the file as long as it was and release
/// the record before the kernel truncates.
///
/// None if the lane has ended: nothing is done yet, and the caller begins anew without the file's
/// locks. It finds the file plain when the lane has nothing that a replay could write behind the
/// cut.
fn truncated(
    held: Option<&HeldFile>,
    fd: Option<BorrowedFd<'_>>,
    bytes: u64,
    real: impl Fn() -> Result<(), Errno>,
) -> Result<Option<()>, Errno> {
    let Some(held) = held.filter(|_| bytes <= SIZE_MAX) else {
        return real().map(Some);
    };
    let (log, number) = (held.session.log(), held.number);
    match order::before_truncation(held, fd) {
        Err(ENDED) => return held.logged(Err(ENDED)).map(|()| None),
        done => done?,
    }
    let in_place = &held.shared.order.in_place_below;
    in_place.fetch_min(bytes, Relaxed);
    let begun = sys::file_time_now();
    held.shared.set_resizing(Some(bytes));
    let logged = log.truncate(number, bytes).and_then(|()| {
        let end = held.shared.end.load(Acquire);
        held.session.commit(end)
    });
    if logged == Err(ENDED) {
        held.shared.set_resizing(None);
        return held.logged(logged).map(|()| None);
    }
    // A file is named where it has its records.
    let logged_in = held.shared.named_in();
    let done = logged.and_then(|()| real());
    forebay_pool::failpoint!("files:truncate");
    // The segment of the record is looked for after the kernel truncated: while it is the open one,
    // it is synced later than that.
    fence(SeqCst);
    let may_be_released = || log.segment().ok() != logged_in;
    // Held up in between: a recovery is not to take the file's time for that of another program's
    // truncation.
    let was_held_up = || sys::file_time_now().saturating_sub(begun) > STALL_NS;
    let settled = match done {
        Err(_) if logged.is_ok() => log.refused(number, bytes),
        Ok(()) if logged.is_ok() && (may_be_released() || was_held_up()) => {
            log.truncate(number, bytes)
        }
        _ => Ok(()),
    };
    let has_ended = done.is_ok() && settled == Err(ENDED);
    if settled.is_err() && !has_ended {
        // The lane says what is not so.
        held.shared.stray(held.generation());
    }
    held.shared.set_resizing(None);
    done?;
    changed(held, bytes, if has_ended { settled } else { logged }).map(Some)
}

/// As [`HeldFile::logged`], of a change of all bytes from `at` on: nothing older is written over
/// it.
fn changed(held: &HeldFile, at: u64, done: Result<(), Errno>) -> Result<(), Errno> {
    if done == Err(ENDED) {
        held.shared.set_newer(at..u64::MAX);
    }
    held.logged(done)
}

/// Does `change` to an `fd`, with the file if it is absorbed, and again if that says none;
/// otherwise it changes the kernel only. If `is_kept`, it is as durable as a write
/// when this returns.
fn change_open(
    fd: c_int,
    is_kept: bool,
    change: impl Fn(Option<&HeldFile>) -> Result<Option<()>, Errno>,
) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let plain = || change(None).map(drop);
    loop {
        let Some(entry) = fd_table::entry(fd) else {
            return plain();
        };
        let Some(number) = entry.file() else {
            if entry.is_inherited() {
                claim_inherited(fd, entry)?;
                continue;
            }
            return plain();
        };
        if interrupted() {
            mark_range_unknown(number);
            return plain();
        }
        let Some(session) = session::current() else {
            leave(raw, number)?;
            continue;
        };
        let Some(held) = hold_open(session, fd, entry, number)? else {
            continue;
        };
        let is_done = change(Some(&held))?.is_some();
        let is_logged = held.shared.is_logged();
        drop(held);
        if is_done {
            if is_kept && !is_logged {
                session.page.ask_first_sync(number, DueSync::Soon);
            }
            return Ok(());
        }
    }
}

/// Does `real` to an absorbed `fd`, which makes room in the file (`fallocate`, `posix_fallocate`):
/// it may be longer then, by zeros, and no byte that it had has changed, whether that failed or
/// not.
///
/// # Errors
/// The kernel's.
pub fn extending(fd: c_int, real: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    change_open(fd, true, |held| {
        let Some(held) = held else {
            return real().map(Some);
        };
        let before = sys::stat_of(raw)?;
        let done = real();
        match sys::stat_of(raw) {
            Ok(after) if after.st_size != before.st_size => {
                let bytes = after.st_size.unsigned_abs();
                let logged = held.session.log().truncate(held.number, bytes);
                changed(held, bytes, logged)?;
            }
            // No byte of it changed, but its time may have.
            Ok(_) => failed_write(held, raw),
            Err(_) => {
                held.shared.stray(held.generation());
            }
        }
        done.map(Some)
    })
}

/// Truncates by path: `real` does it. Logged if the file is absorbed.
///
/// # Errors
/// The kernel's.
pub fn truncate_path(
    path: &CStr,
    bytes: u64,
    real: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    if interrupted() {
        in_signal_handler::leave_path((libc::AT_FDCWD, path));
        return real();
    }
    loop {
        match named(libc::AT_FDCWD, path, AtFlags::empty()) {
            Some(NamedFile::Ours(file)) => {
                if truncate_file(file, None, || true, bytes, &real)?.is_some() {
                    return Ok(());
                }
            }
            Some(NamedFile::Foreign(key)) => {
                CONFIG.get().map_or(Ok(()), |config| config.claim(key))?;
                return real();
            }
            None => return real(),
        }
    }
}
