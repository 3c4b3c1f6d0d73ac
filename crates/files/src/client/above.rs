//! What a signal handler does above a call of the client that it interrupted (docs/files-protocol.md, "Signal handlers").
//!
//! The call may hold any of our locks and may have a record unfinished, so nothing here takes a lock, allocates, or appends a record. What the
//! handler changes is in the kernel only, and is newer than the lane's records of that file. Before the handler hears that it is durable:
//!
//! 1. The file is unlogged, and is to be retired: nothing is logged of it any more, by any thread or process.
//! 2. The handler waits, [`WAIT`] at most, for another thread to retire the file. Then the lane has nothing of it.
//! 3. If none did, the file is changed later than [`WAIT`] after the last record of it, which a replay sees: it refuses the lane and writes nothing
//!    over what is newer.

use super::{
    CONFIG, Config, FILES, FORKED,
    names::{Key, regular, stat_at},
    open::writes,
    session::{self, Session},
    table,
};
use crate::FILES_MAX;
use rustix::{
    fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT},
    io::Errno,
};
use std::{
    ffi::{CStr, c_int},
    os::fd::BorrowedFd,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

/// Longer than a replay's slack, so that it knows a later change for one that is not in the lane.
const WAIT: Duration = Duration::from_secs(2);
/// How often to look whether another thread retired the file.
const LOOK: Duration = Duration::from_millis(2);

/// Opens a file plainly. If it is absorbed, here or elsewhere, it is so no longer when this returns, or its next change is seen by a replay.
pub(super) fn open(
    config: &Config,
    (dir, path): (c_int, &CStr),
    flags: c_int,
    mut real: impl FnMut(c_int) -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    if flags & libc::O_TRUNC != 0 {
        let_go_at(config, (dir, path));
    }
    let fd = real(flags)?;
    if writes(flags)
        && let Some(raw) = crate::sys::borrow(fd)
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
    for (fd, entry) in table::descriptors_of(number) {
        table::set_entry(fd, entry.plain());
    }
}

/// Syncs an absorbed file: what the handler wrote to it is durable, and nothing older is written over it, when this returns.
///
/// # Errors
/// That of the sync; of changing the file's time, which needs the right to write to it.
pub(super) fn sync(session: &Session, number: usize, fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let is_retired = outlast(session, number);
    if !is_retired {
        let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        let now = Timestamps {
            last_access: time(UTIME_OMIT),
            last_modification: time(UTIME_NOW),
        };
        rustix::fs::futimens(fd, &now)?;
    }
    rustix::fs::fsync(fd)?;
    match session.page.files[number].errno.load(Relaxed) {
        errno if errno != 0 && !is_retired => Err(Errno::from_raw_os_error(errno)),
        _ => Ok(()),
    }
}

fn let_go_at(config: &Config, (dir, path): (c_int, &CStr)) {
    if let Some(key) = stat_at(dir, path, AtFlags::empty()) {
        let_go(config, key);
    }
}

/// Returns when the file is absorbed by no process, or is to be retired by each that absorbs it and was not logged for [`WAIT`].
fn let_go(config: &Config, key: Key) {
    let ours = match session::current().filter(|_| !FORKED.load(Relaxed)) {
        Some(session) => (0..FILES_MAX)
            .find(|number| FILES[*number].key() == Some(key))
            .map(|number| (session, number)),
        None => None,
    };
    if let Some((session, number)) = ours {
        mark(session, number);
    }
    // The supervisor waits for those who absorb it, us included.
    let is_absorbed = ours.is_some() || config.is_anothers(key);
    let told = is_absorbed && config.address.foreign_at_once(key).is_ok();
    if let Some((session, number)) = ours.filter(|_| !told) {
        outlast(session, number);
    }
}

/// From now on nothing of the file is logged, and whoever uses it next retires it.
fn mark(session: &Session, number: usize) {
    FILES[number].lose_track();
    session.page.files[number].retire.store(1, Relaxed);
}

/// Waits until the file is retired, or was not logged for [`WAIT`]; true in the first case.
fn outlast(session: &Session, number: usize) -> bool {
    let key = FILES[number].key();
    mark(session, number);
    let begun = Instant::now();
    while begun.elapsed() < WAIT {
        if FILES[number].key() != key {
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
