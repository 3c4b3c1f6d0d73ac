//! Below an agent: the choice between this library and the agent for all that concerns logs.
//! docs/notify.md, "A child of a program with the library".
#![expect(unsafe_code, reason = "asks by a system call")]

use forebay_files::AGENT_QUESTION;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static IS_BELOW: AtomicBool = AtomicBool::new(false);

/// True, when the library begins, if there is an agent that serves this process. One that has done
/// nothing yet does nothing from now on.
pub(crate) fn leaves_it_to_an_agent() -> bool {
    // SAFETY: it takes numbers, and the kernel knows no such request.
    match unsafe { libc::prctl(AGENT_QUESTION, 0, 0, 0, 0) } {
        0 => {
            IS_BELOW.store(true, Relaxed);
            false
        }
        answer => answer > 0,
    }
}

/// True if there is an agent, which does nothing: a program has no other one.
pub(crate) fn is_below_agent() -> bool {
    IS_BELOW.load(Relaxed)
}
