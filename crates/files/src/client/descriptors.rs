//! Descriptors that come, go, and are changed.

use super::{
    FILES, FORKED, above, interrupted,
    leaving::retire_file,
    session,
    table::{self, Entry, Gone},
    with_file,
};
use crate::{sys, wire::Request};
use std::{
    ffi::c_int,
    sync::atomic::Ordering::{Relaxed, Release},
};

/// Before `fd` is closed, or something else is put in its place (`dup2`).
pub fn closing(fd: c_int) {
    let Some(entry) = table::entry(fd) else {
        return;
    };
    // A vforked child shares our memory, but not our descriptors.
    if sys::in_vforked_child() {
        return;
    }
    let mut released = false;
    // Until the entry is gone: whoever writes the file's records again by one of its descriptors has the lock.
    let _held = match entry.file() {
        // It counts as open from now on.
        Some(number) if interrupted() => {
            FILES[number].lose_track();
            None
        }
        Some(number) if !FORKED.load(Relaxed) => {
            let guard = FILES[number].file.lock();
            if let Ok(mut cell) = guard.try_borrow_mut()
                && let Some(file) = &mut *cell
            {
                file.descriptors = file.descriptors.saturating_sub(1);
                // The number may come back for another open file.
                file.position = None;
                released = file.gone == Gone::Yes && file.descriptors == 0;
            }
            Some(guard)
        }
        _ => None,
    };
    table::set_entry(fd, None);
    if let (true, Some(file), Some(session)) = (released, entry.file(), session::current()) {
        // Its space is free as soon as the supervisor has closed it, too.
        session.tell(&Request::Released { file: file as u32 });
    }
}

/// After `to` became a duplicate of `from`.
pub fn duplicated(from: c_int, to: c_int) {
    let Some(entry) = table::entry(from) else {
        return;
    };
    if from == to || sys::in_vforked_child() {
        return;
    }
    let Some(number) = entry.file() else {
        table::set_entry(to, Some(entry));
        return;
    };
    if FORKED.load(Relaxed) {
        table::set_entry(to, Some(entry));
        return;
    }
    if interrupted() {
        FILES[number].lose_track();
        FILES[number].uncounted.store(true, Release);
        if !table::set_entry(to, Some(entry))
            && let Some(raw) = sys::borrow(to)
        {
            above::leave(raw);
        }
        return;
    }
    let guard = FILES[number].file.lock();
    if let Ok(mut cell) = guard.try_borrow_mut()
        && let Some(file) = &mut *cell
        && table::set_entry(to, Some(entry))
    {
        file.descriptors += 1;
        return;
    }
    drop(guard);
    // A number too large for the table would write round the lane.
    if let Some(session) = session::current() {
        let _ = retire_file(session, number);
    }
}

/// After `fcntl(F_SETFL)` changed the flags of an absorbed `fd`.
pub fn flags_changed(fd: c_int, flags: c_int) {
    let Some(entry) = table::entry(fd) else {
        return;
    };
    match entry.file() {
        Some(number) if interrupted() => {
            // Its duplicates' flags and positions are not known any more.
            FILES[number].lose_track();
            table::set_entry(fd, Some(entry.with_flags(flags)));
        }
        // Duplicates share their flags.
        Some(number) if !FORKED.load(Relaxed) => {
            for (other, known) in table::descriptors_of(number) {
                if sys::same_open_file(fd, other) {
                    table::set_entry(other, Some(known.with_flags(flags)));
                }
            }
            with_file(number, |file| file.position = None);
        }
        _ => {
            table::set_entry(fd, Some(entry.with_flags(flags)));
        }
    }
}

/// The status flags (`O_SYNC`, `O_DSYNC`, `O_DIRECT`) that `fcntl(F_GETFL)` of an absorbed `fd` must show beside the kernel's.
#[must_use]
pub fn hidden_flags(fd: c_int) -> c_int {
    table::entry(fd).map_or(0, Entry::hidden)
}

/// The number of the emulated device that `fd` is on, as [`set_device`] said. Costs one load.
#[inline]
#[must_use]
pub fn device(fd: c_int) -> Option<usize> {
    table::entry(fd)?.device()
}

/// Notes which emulated device `fd`'s file is on, if any, and the flags (`O_DIRECT`) that the database believes to have opened it with
/// and the kernel does not know of. A descriptor too large for the table is on none.
pub fn set_device(fd: c_int, number: Option<u8>, hidden: c_int) {
    if sys::in_vforked_child() {
        return;
    }
    match (table::entry(fd), number) {
        (Some(entry), None)
            if entry.file().is_none() && entry.hidden() == 0 && !entry.is_inherited() =>
        {
            table::set_entry(fd, None);
        }
        (Some(entry), number) => {
            table::set_entry(fd, Some(entry.on_device(number)));
        }
        (None, None) => {}
        (None, number) => {
            table::set_entry(fd, Some(Entry::new(None, hidden).on_device(number)));
        }
    }
}

/// True if `fd`'s file is absorbed: its syncs cost nothing, and the supervisor's are those that count.
#[must_use]
pub fn is_in_pool(fd: c_int) -> bool {
    table::entry(fd).is_some_and(|entry| entry.file().is_some())
}
