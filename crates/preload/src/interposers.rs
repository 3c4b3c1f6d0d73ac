//! Libraries that are put before the C library's functions as this one is, and behind it: a hook
//! may go on to one of theirs, and they may make the system call by its number.
#![expect(unsafe_code, reason = "reads what libraries define")]

use crate::{call_context::without_cancellation, next_definition::library_of, real::hidden};
use forebay_files::client;
use libc::{c_long, c_void};
use std::{
    ops::{
        ControlFlow::{self, Break, Continue},
        Range,
    },
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Does `call`, in the place of a system call that `caller` makes; unless that is the end of a call
/// of the client.
pub(crate) fn instead(caller: *const c_void, call: impl FnOnce() -> c_long) -> ControlFlow<c_long> {
    match is_ours_already(caller) {
        true => Continue(()),
        false => Break(without_cancellation(call)),
    }
}

/// True if a system call is made by a call of the client. The client goes on to the next library's
/// function, and that one may make the system call by its number, as an allocator or a library that
/// fakes users does. Then all has been done, and the client may have locks. A signal handler, which
/// makes its own call above the client's, is no such library's.
fn is_ours_already(caller: *const c_void) -> bool {
    client::is_inside() && is_interposer(caller.addr())
}

/// True if this code is of a library that is searched after this one and has functions that it
/// hides. Neither allocates nor locks anything of ours.
fn is_interposer(code: usize) -> bool {
    if INTERPOSERS.iter().any(|known| known.contains(code)) {
        return true;
    }
    let Some(library) = library_of(code).filter(|library| library.is_behind_us) else {
        return false;
    };
    // SAFETY: it is loaded: its code calls us.
    let is_one = hidden::ALL
        .iter()
        .any(|one| unsafe { library.defines(one.name()) });
    if is_one {
        // Loaded with the program, it stays where it is.
        INTERPOSERS
            .iter()
            .any(|known| known.note(&library.addresses));
    }
    is_one
}

/// The addresses of a library that [`is_interposer`].
struct InterposerRange {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Those that were met first; others are looked for each time.
static INTERPOSERS: [InterposerRange; 8] = [const {
    InterposerRange {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
    }
}; 8];

impl InterposerRange {
    fn contains(&self, code: usize) -> bool {
        let end = self.end.load(Acquire);
        (self.start.load(Relaxed)..end).contains(&code)
    }

    /// False if it is another already.
    fn note(&self, addresses: &Range<usize>) -> bool {
        let noted = (self.start).compare_exchange(0, addresses.start, Relaxed, Relaxed);
        if noted.is_ok() {
            self.end.store(addresses.end, Release);
        }
        noted.is_ok()
    }
}
