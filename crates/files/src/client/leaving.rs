//! Ways in which a file or a process ceases to be absorbed. docs/files-protocol.md, "Retiring a file", "When somebody is gone".

use super::{
    CONFIG, FILES, FORKED, FORKS, GIVEN_UP, REGISTRY, RETIRED, above, interrupted,
    names::{Named, named, regular},
    own,
    session::{self, Session},
    table::{self, Entry, File},
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
    let Some(number) = table::entry(fd).and_then(Entry::file) else {
        return Ok(());
    };
    if interrupted() || FORKED.load(Relaxed) {
        if let Some(raw) = sys::borrow(fd) {
            match FORKED.load(Relaxed) {
                true => leave(raw, number),
                false => above::leave(raw),
            }
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
        (Some(Named::Foreign((dev, ino))), _) => {
            if let Some(config) = CONFIG.get() {
                let _ = config.address.foreign(dev, ino);
            }
            Ok(())
        }
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
    forget(session, number, &mut cell);
    Ok(())
}

/// As [`retire_file`]; if it fails, the file's next write or sync tries again, and until then it is unlogged.
pub(super) fn retire_or_later(session: &Session, number: usize) {
    if retire_file(session, number).is_err() {
        FILES[number].lose_track();
        session.page.files[number].retire.store(1, Relaxed);
    }
}

/// The end of a file of which the lane holds nothing.
pub(super) fn forget(session: &Session, number: usize, cell: &mut RefMut<'_, Option<File>>) {
    **cell = None;
    FILES[number].set_key(None);
    // Their entries went with the file.
    FILES[number].uncounted.store(false, Relaxed);
    session.tell(&Request::Forget {
        file: number as u32,
    });
}

/// Before the process forks.
pub fn forking() {
    if FORKS.swap(true, AcqRel) || FORKED.load(Relaxed) {
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
pub(super) fn leave(fd: BorrowedFd<'_>, number: usize) {
    if interrupted() {
        return above::leave_inherited(fd, number);
    }
    if let (Some(config), Ok((_, (dev, ino)))) = (CONFIG.get(), regular(fd)) {
        // Without a supervisor the parent may be writing to the lane still, and cannot be told.
        let _ = config.address.foreign(dev, ino);
    }
    for (fd, entry) in table::descriptors_of(number) {
        table::set_entry(fd, entry.plain());
    }
}

/// Retires every file and absorbs none from now on: the database does something that cannot be followed (`io_uring`).
pub fn give_up(reason: &'static str) {
    if GIVEN_UP.swap(true, AcqRel) || FORKED.load(Relaxed) {
        return;
    }
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
