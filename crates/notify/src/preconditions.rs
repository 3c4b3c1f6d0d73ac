//! Whether an agent can serve a program here: what it needs of the kernel and of the container is
//! tried on a child. Each reason has a remedy.
#![expect(unsafe_code, reason = "reads a child's memory, of one thread alone")]

use crate::{
    caller::CallerThread,
    launch::{self, ProgramImage, WaitingChild},
    number_window::NumberWindow,
    open_files::{share, taken},
};
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
    thread::UnshareFlags,
};
use std::os::fd::{AsRawFd, OwnedFd};

/// Why a program runs plainly after all: in words, with a remedy.
pub struct NotServed(pub String);

/// Whether programs of this process could be served: tried on a child, which ends then. The
/// guardian's part is not tried.
///
/// # Errors
/// Why not.
pub fn can_serve() -> Result<(), NotServed> {
    let tried = window().and_then(|window| {
        // It executes nothing.
        let nothing = ProgramImage::nothing();
        let child = launch::start(&nothing, Some(window)).map_err(|e| format!("a process: {e}"))?;
        let found = check(&child).map(drop);
        child.end();
        found
    });
    tried.map_err(NotServed)
}

/// True if a program that is served, and what it executes, gains no rights (`no_new_privs`):
/// without `CAP_SYS_ADMIN` the kernel takes the filter only so.
#[must_use]
pub fn costs_rights() -> bool {
    let own = rustix::thread::capabilities(None);
    own.is_ok_and(|own| {
        let admin = rustix::thread::CapabilitySet::SYS_ADMIN;
        !own.effective.contains(admin)
    })
}

/// The numbers of logs.
///
/// # Errors
/// There are not enough.
pub(crate) fn window() -> Result<NumberWindow, String> {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    NumberWindow::below(limit).ok_or_else(|| {
        "the limit of open files is below 1,536: raise it (ulimit -Hn, LimitNOFILE=)".into()
    })
}

/// Tries on a child that waits what an agent does with its program: the listener.
///
/// # Errors
/// What is refused.
pub(crate) fn check(child: &WaitingChild) -> Result<&OwnedFd, String> {
    let listener = child.listener.as_ref().map_err(|errno| {
        format!(
            "the kernel or the container refuses the filter (seccomp user notification, Linux 5.19): {errno}. In a container, allow seccomp (docker run --security-opt seccomp=…)"
        )
    })?;
    let own = std::fs::read_link("/proc/self").map_err(|_| "/proc is not mounted: mount it")?;
    if own.to_str() != Some(&std::process::id().to_string()) {
        return Err("/proc is another process namespace's: mount that of this one".into());
    }
    // Its threads act in the callers' directories.
    unshare_directories().map_err(|errno| {
        format!(
            "the container refuses unshare(CLONE_FS): {errno}. Give it a seccomp profile that allows unshare and kcmp (docker run --security-opt seccomp=…)"
        )
    })?;
    let thread = child.pid.as_raw_nonzero().get().cast_unsigned();
    // Of itself it may ask in any case.
    let number = listener.as_raw_fd();
    share(thread, number, number).map_err(|errno| {
        format!(
            "the kernel or the container does not let forebay look at the program's descriptors (kcmp): {errno}. In a container, allow kcmp (docker run --cap-add SYS_PTRACE, or --security-opt seccomp=…)"
        )
    })?;
    let refuses = |what: &str, errno: Errno| {
        format!(
            "the kernel or the container does not let forebay {what}: {errno}. Set kernel.yama.ptrace_scope to 0 or 1, or give forebay CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE)"
        )
    };
    read_memory(thread).map_err(|e| refuses("read the program's memory (process_vm_readv)", e))?;
    // The child has this process's numbers still.
    taken(thread, number)
        .map_err(|e| refuses("take the program's descriptors (pidfd_getfd)", e))?;
    Ok(listener)
}

/// Reads what a child has where this process has it, too.
fn read_memory(child: u32) -> Result<(), Errno> {
    static WORD: u64 = 1;
    let address = (&raw const WORD).addr() as u64;
    CallerThread(child).words::<1>(address).map(drop)
}

/// Gives this thread a working directory and a mask of its own.
///
/// # Errors
/// The kernel's.
pub(crate) fn unshare_directories() -> Result<(), Errno> {
    // SAFETY: it is about directories; descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
}
