//! Descriptors that come, go, and are changed.

use super::{
    FILES, FORKED,
    leaving::retire_file,
    session,
    table::{self, Entry},
    with_file,
};
use crate::sys;
use std::{ffi::c_int, sync::atomic::Ordering::Relaxed};

/// Before `fd` is closed, or something else is put in its place (`dup2`).
pub fn closing(fd: c_int) {
    let Some(entry) = table::entry(fd) else {
        return;
    };
    // A vforked child shares our memory, but not our descriptors.
    if sys::in_vforked_child() {
        return;
    }
    if let Some(number) = entry.file()
        && !FORKED.load(Relaxed)
    {
        let guard = FILES[number].file.lock();
        if let Ok(mut cell) = guard.try_borrow_mut()
            && let Some(file) = &mut *cell
        {
            file.descriptors = file.descriptors.saturating_sub(1);
            // The number may come back for another open file.
            file.position = None;
        }
    }
    table::set_entry(fd, None);
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
