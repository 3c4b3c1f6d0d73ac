//! The identity of this process: a forked child has its parent's memory, and none of its parent's
//! standing.
#![expect(unsafe_code, reason = "asks for the process's number")]

use crate::{
    call_context::{FailedCall, inside},
    installed_layer,
};
use forebay_files::client;
use libc::pid_t;
use std::sync::atomic::{AtomicI32, Ordering};

/// The process that the client works for.
static PROCESS: AtomicI32 = AtomicI32::new(0);

pub(crate) fn own_pid() -> pid_t {
    // SAFETY: it needs nothing.
    unsafe { libc::getpid() }
}

/// The client works for this process from now on.
pub(crate) fn begin() {
    PROCESS.store(own_pid(), Ordering::Relaxed);
}

/// False in the child of a `clone` that no handler heard of.
pub(crate) fn has_begun() -> bool {
    PROCESS.load(Ordering::Relaxed) == own_pid()
}

/// In a forked child.
pub(crate) fn forked() {
    begin();
    let _: Result<(), FailedCall> = inside(|| {
        client::forked();
        Ok(())
    });
    forebay_innodb::forked();
    installed_layer::forked();
}
