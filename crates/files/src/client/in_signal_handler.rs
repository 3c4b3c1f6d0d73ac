//! File calls of a signal handler above a call of the client that it interrupted
//! (docs/files-limits.md, "Signal handlers").
//!
//! The call may hold any of our locks and may have a record unfinished, so nothing here takes a
//! lock, allocates, or appends a record. What the handler changes is in the kernel only, and is
//! newer than the lane's records of that file. Before the handler hears that it is durable:
//!
//! 1. The file has *strayed*: no record of it has a time any more, of any thread or process.
//! 2. The handler waits, [`MemberSession::silence`] at most, for the supervisor to make it plain.
//!    Then the lane has nothing of it.
//! 3. If the interrupted call has the file's lock, it cannot. Then the file is changed later than
//!    that after the last record of it, which a replay sees: it refuses the lane and writes nothing
//!    over what is newer.

use super::{
    config::{CONFIG, ClientConfig},
    fd_table,
    lookup::{FileKey, regular, stat_at},
    process::generation,
    session::{self, MemberSession},
};
use crate::{
    shared::FileState,
    sys::{self, writes},
};
use forebay_pool::MonotonicTime;
use rustix::{
    fs::{AtFlags, Timespec},
    io::Errno,
};
use std::{
    ffi::{CStr, c_int},
    os::fd::BorrowedFd,
    time::Duration,
};

/// The longest time of the supervisor to have a file let go of.
const LET_GO_WAIT: Duration = Duration::from_secs(15);
/// Interval of looks if another thread retired the file.
const LOOK: Duration = Duration::from_millis(2);

/// Opens a file plainly. If it is absorbed, here or elsewhere, it is so no longer when this
/// returns, or its next change is seen by a replay.
#[inline(never)]
pub(super) fn open(
    config: &ClientConfig,
    (dir, path): (c_int, &CStr),
    flags: c_int,
    mut real: impl FnMut(c_int) -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    if flags & libc::O_TRUNC != 0 {
        let_go_at(config, (dir, path));
    }
    let fd = real(flags)?;
    if writes(flags)
        && let Some(raw) = sys::borrow(fd)
        && let Ok((_, key)) = regular(raw)
    {
        let_go(config, key);
    }
    Ok(fd)
}

/// Before the file at a path is changed plainly.
pub(super) fn leave_path((dir, path): (c_int, &CStr)) {
    if let Some(config) = CONFIG.get() {
        let_go_at(config, (dir, path));
    }
}

/// Before an absorbed file is changed in a way that is not logged.
pub(super) fn leave(fd: BorrowedFd<'_>) {
    if let (Some(config), Ok((_, key))) = (CONFIG.get(), regular(fd)) {
        let_go(config, key);
    }
}

/// In a forked child: `fd`, inherited, is about to be written to.
pub(super) fn leave_inherited(fd: BorrowedFd<'_>, number: usize) {
    leave(fd);
    for (fd, entry) in fd_table::descriptors_of(number) {
        fd_table::set_entry(fd, entry.plain());
    }
}

/// Syncs an absorbed file: the handler's writes to it are durable, and nothing older is written
/// over them, when this returns.
///
/// # Errors
/// That of the sync; of changing the file's time, which needs the right to write to it.
pub(super) fn sync(number: usize, fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let Some(session) = session::there() else {
        // A child that is not a member yet. What it inherited is its parent's and the run's.
        leave(fd);
        return rustix::fs::fsync(fd);
    };
    let is_retired = outlast(session, number, generation(number));
    if !is_retired {
        sys::set_changed_now(fd)?;
    }
    rustix::fs::fsync(fd)?;
    match session.page.files[number].error() {
        Some(errno) if !is_retired => Err(errno),
        _ => Ok(()),
    }
}

fn let_go_at(config: &ClientConfig, (dir, path): (c_int, &CStr)) {
    if let Some(key) = stat_at(dir, path, AtFlags::empty()) {
        let_go(config, key);
    }
}

/// Returns when the run does not absorb the file, or is to make it plain and has logged nothing of
/// it for [long enough](MemberSession::silence).
fn let_go(config: &ClientConfig, key: FileKey) {
    let ours = session::there().and_then(|session| Some((session, session.find(key)?)));
    if let Some((session, (number, stamp))) = ours {
        session.page.files[number].stray(stamp.generation);
    }
    let is_absorbed = ours.is_some() || config.is_absorbed(key);
    let told = is_absorbed && asked(config, key);
    if let Some((session, (number, stamp))) = ours.filter(|_| !told) {
        outlast(session, number, stamp.generation);
    }
}

/// Has the file made plain: true if the supervisor says so, or does so once this is over.
fn asked(config: &ClientConfig, key: FileKey) -> bool {
    match config.asking {
        Some(_) => config.ask_by_table(key, LET_GO_WAIT).is_some(),
        None => config.address.foreign_at_once(key).is_ok(),
    }
}

/// From now on nothing of the file is logged. Waits until it is plain, or was not logged for that
/// long; true in the first case.
fn outlast(session: &MemberSession, number: usize, generation: u32) -> bool {
    let file = &session.page.files[number];
    if !file.stray(generation) {
        return true;
    }
    // The supervisor does it, if the interrupted call has not the file's lock.
    if let Some(config) = CONFIG.get() {
        let _ = asked(config, file.key());
    }
    let begun = MonotonicTime::now();
    while begun.elapsed() < session.silence() {
        let stamp = file.stamp();
        if stamp.generation != generation || stamp.state == FileState::Free {
            return true;
        }
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(LOOK.subsec_nanos()),
        };
        // A signal that ends it early only makes us look earlier.
        let _ = rustix::thread::nanosleep(&pause);
    }
    false
}
