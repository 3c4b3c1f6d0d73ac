//! Signals that this process ignores, and may have been started so: the program starts with the
//! caller's set.
//!
//! The supervisor ignores some, and Rust's runtime ignores SIGPIPE before `main`, as many a caller
//! does (systemd: `IgnoreSIGPIPE=yes` is the default). So what was inherited is noted before the
//! runtime begins.
#![expect(unsafe_code, reason = "runs before main")]

use nix::{
    libc,
    sys::signal::{SigSet, Signal},
};
use std::{
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Those that are ignored here.
const IGNORED: [Signal; 3] = [Signal::SIGPIPE, Signal::SIGIO, Signal::SIGXFSZ];

/// Those of them that the caller ignored.
static INHERITED: [AtomicBool; IGNORED.len()] = [const { AtomicBool::new(false) }; IGNORED.len()];

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = note;

extern "C" fn note() {
    for (signal, inherited) in IGNORED.into_iter().zip(&INHERITED) {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: nothing is set, and it says how it is, which is read only if it did.
        let is_ignored = unsafe {
            libc::sigaction(signal as libc::c_int, ptr::null(), action.as_mut_ptr()) == 0
                && action.assume_init().sa_sigaction == libc::SIG_IGN
        };
        inherited.store(is_ignored, Relaxed);
    }
}

/// Those that the caller did not ignore.
pub(crate) fn ignored_here() -> SigSet {
    let signals = IGNORED.into_iter().zip(&INHERITED);
    signals
        .filter(|(_, inherited)| !inherited.load(Relaxed))
        .map(|(signal, _)| signal)
        .collect()
}
