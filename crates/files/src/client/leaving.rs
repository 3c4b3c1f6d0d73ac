//! Ways in which a file or a process ceases to be absorbed. docs/files-protocol.md, "Retiring a file", "When somebody is gone".

use super::{
    CONFIG, FILES, FORKED, FORKS, GIVEN_UP, PLAIN_FOR, REGISTRY, RETIRED, above, interrupted,
    names::{Named, named, regular},
    others::claim_inherited,
    own,
    session::{self, Session},
    table::{self, File},
    with_file,
};
use crate::{FILES_MAX, sys, wire::Request};
use rustix::{fs::AtFlags, io::Errno};
use std::{
    cell::RefMut,
    ffi::{CStr, c_int},
    os::fd::BorrowedFd,
    sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Before an absorbed `fd`'s file is changed in a way that is not logged (shared writable mapping, `copy_file_range`, `sendfile` or
/// `splice` into it, `fallocate` that changes data, stdio, asynchronous I/O): everything in the pool is drained; from then on
/// the file is plain.
///
/// # Errors
/// If it cannot be drained: then the change must not be made.
pub fn retire(fd: c_int) -> Result<(), Errno> {
    let Some(entry) = table::entry(fd) else {
        return Ok(());
    };
    if entry.is_inherited() {
        return claim_inherited(fd, entry);
    }
    let Some(number) = entry.file() else {
        return Ok(());
    };
    if FORKED.load(Relaxed) {
        return sys::borrow(fd).map_or(Ok(()), |raw| leave(raw, number));
    }
    if interrupted() {
        if let Some(raw) = sys::borrow(fd) {
            above::leave(raw);
        }
        return Ok(());
    }
    session::current().map_or(Ok(()), |session| retire_file(session, number))
}

/// As [`retire`], of the file at a path, if it is absorbed: before stdio opens it for writing.
///
/// # Errors
/// As [`retire`].
pub fn retire_path(dir: c_int, path: &CStr) -> Result<(), Errno> {
    if interrupted() {
        above::leave_path((dir, path));
        return Ok(());
    }
    match (named(dir, path, AtFlags::empty()), session::current()) {
        (Some(Named::Ours(number, _)), Some(session)) => retire_file(session, number),
        (Some(Named::Foreign(key)), _) => CONFIG.get().map_or(Ok(()), |config| config.claim(key)),
        _ => Ok(()),
    }
}

/// Drains the lane, and lets the file be plain.
pub(super) fn retire_file(session: &Session, number: usize) -> Result<(), Errno> {
    let guard = FILES[number].file.lock();
    let Ok(mut cell) = guard.try_borrow_mut() else {
        return Err(Errno::DEADLK);
    };
    let Some(file) = &mut *cell else {
        return Ok(());
    };
    session.drain(Some((number, file)))?;
    if FILES[number].unlogged.load(Acquire) {
        let descriptor = table::descriptors_of(number).next();
        if let Some(fd) = descriptor.and_then(|(fd, _)| sys::borrow(fd)) {
            rustix::fs::fsync(fd)?;
        }
        FILES[number].settled(file);
        FILES[number].take_owed()?;
    }
    RETIRED.lock().push(file.identity.clone());
    for (fd, entry) in table::descriptors_of(number) {
        table::set_entry(fd, entry.plain());
    }
    session.page.files[number].retire.store(0, Relaxed);
    forget(session, number, &mut cell, true);
    Ok(())
}

/// As [`retire_file`]; if it fails, the file's next write or sync tries again, and until then it is unlogged.
pub(super) fn retire_or_later(session: &Session, number: usize) {
    if retire_file(session, number).is_err() {
        FILES[number].lose_track();
        session.page.files[number].retire.store(1, Relaxed);
    }
}

/// The end of a file of which the lane holds nothing; it was `retired`, or it is closed.
pub(super) fn forget(
    session: &Session,
    number: usize,
    cell: &mut RefMut<'_, Option<File>>,
    retired: bool,
) {
    **cell = None;
    FILES[number].set_key(None);
    // Their entries went with the file.
    FILES[number].uncounted.store(false, Relaxed);
    session.tell(&Request::Forget {
        file: number as u32,
        retired,
    });
}

/// Before the process forks. A child is often waited for, and may want what another process asked for already.
pub fn forking() {
    let Some(session) = session::current().filter(|_| !FORKED.load(Relaxed)) else {
        FORKS.store(true, Release);
        return;
    };
    if !interrupted() {
        let asked_for = |number: &usize| session.page.files[*number].retire.load(Relaxed) != 0;
        (0..FILES_MAX)
            .filter(asked_for)
            .for_each(|number| retire_or_later(session, number));
    }
    if FORKS.swap(true, AcqRel) {
        return;
    }
    for (number, slot) in FILES.iter().enumerate() {
        match interrupted() {
            // Its position is noted somewhere that we must not wait for.
            true if slot.key().is_some() => slot.lose_track(),
            true => {}
            false => with_file(number, |file| file.position = None),
        }
    }
}

/// In a forked child, before `fork` returns there: nothing is absorbed by it any more. The locks are as the parent's threads left
/// them, so none is taken. A child of a process that absorbed nothing yet (a daemon on its way into the background) is a process
/// like any other.
pub fn forked() {
    sys::note_process();
    if session::current().is_none() && REGISTRY.try_lock().is_some() && own::is_unlocked() {
        return;
    }
    FORKED.store(true, Release);
    own::close_own();
}

/// In a forked child: `fd`, inherited, is about to be written to. Whoever absorbs the file lets it be plain; so do we.
///
/// # Errors
/// `EIO` if the absorbing process cannot be told: the file must not be written to.
pub(super) fn leave(fd: BorrowedFd<'_>, number: usize) -> Result<(), Errno> {
    if interrupted() {
        above::leave_inherited(fd, number);
        return Ok(());
    }
    if let (Some(config), Ok((_, key))) = (CONFIG.get(), regular(fd)) {
        config.claim(key)?;
    }
    for (fd, entry) in table::descriptors_of(number) {
        table::set_entry(fd, entry.plain());
    }
    Ok(())
}

/// As [`retire_file`], because the supervisor is gone: what it was syncing when it died is written again first.
pub(super) fn retire_orphan(session: &Session, number: usize) -> Result<(), Errno> {
    session.note_orphan();
    session.settle()?;
    retire_file(session, number)
}

/// Before the process becomes another user, who may not write to the pool: everything is drained, and the pool is closed and unmapped.
/// From then on this process absorbs nothing, as a forked child.
///
/// # Errors
/// If a file cannot be drained: then the process must stay who it is.
pub fn changing_identity() -> Result<(), Errno> {
    let Some(session) = session::current() else {
        return Ok(());
    };
    if FORKED.load(Relaxed) {
        return Ok(());
    }
    GIVEN_UP.store(true, Release);
    PLAIN_FOR
        .lock()
        .get_or_insert_with(|| "the process became another user".to_owned());
    let _registry = REGISTRY.lock();
    session.settle()?;
    for number in 0..FILES_MAX {
        retire_file(session, number)?;
    }
    // From here on no call of the client touches the session: no file is absorbed.
    FORKED.store(true, Release);
    own::close_own();
    session.unmap_pool()
}

/// Retires every file and absorbs none from now on: the database does something that cannot be followed (`io_uring`).
pub fn give_up(reason: &'static str) {
    if GIVEN_UP.swap(true, AcqRel) || FORKED.load(Relaxed) {
        return;
    }
    PLAIN_FOR.lock().get_or_insert_with(|| reason.to_owned());
    if let Some(session) = session::current() {
        sys::complain(&format!("files are plain from now on: {reason}"));
        for number in 0..FILES_MAX {
            retire_or_later(session, number);
        }
    }
}

/// Before the process exits in the normal way.
pub fn exiting() {
    if let Some(session) = session::current()
        && !FORKED.load(Relaxed)
    {
        session.end();
    }
}
