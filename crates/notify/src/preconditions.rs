//! Preconditions of an agent: its needs of the kernel and of the container are tried on a child.
//! Each refusal has a remedy.
#![expect(unsafe_code, reason = "reads a child's memory, of one thread alone")]

use crate::{
    caller::CallerThread,
    launch::{self, ProgramImage, WaitingChild},
    number_window::NumberWindow,
    open_files::{share, taken},
};
use libc::c_int;
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
    thread::UnshareFlags,
};
use std::os::fd::{AsRawFd, OwnedFd};

/// The reason that a program runs plainly after all: in words, with a remedy.
pub struct NotServed(pub String);

/// Fails if programs of this process could not be served: tried on a child, which ends then. The
/// guardian's part is not tried.
///
/// # Errors
/// Why not.
pub fn can_serve() -> Result<(), NotServed> {
    let tried = window(u64::MAX).and_then(|window| {
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

/// Fails if children of the run's programs can have no agents of their own, as far as can be told
/// before any is there. With `may_cost_rights`, they may give up gaining rights for it.
///
/// # Errors
/// Why not.
pub fn can_serve_children(may_cost_rights: bool) -> Result<(), NotServed> {
    const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";
    let own = rustix::thread::capabilities(None);
    let traces = own.is_ok_and(|own| {
        let right = rustix::thread::CapabilitySet::SYS_PTRACE;
        own.effective.contains(right)
    });
    let yama = std::fs::read_to_string(YAMA).unwrap_or_default();
    let is_kept_off = !matches!(yama.trim(), "" | "0") && !traces;
    if is_kept_off {
        return Err(NotServed(format!(
            "Yama lets only a parent look at a process (ptrace_scope {}), and its agent is none. Set kernel.yama.ptrace_scope to 0, or give forebay CAP_SYS_PTRACE",
            yama.trim()
        )));
    }
    // Of who can gain none in any case nothing is taken.
    let gains = !rustix::thread::no_new_privs().unwrap_or(false);
    if costs_rights() && gains && !may_cost_rights {
        return Err(NotServed(
            "without CAP_SYS_ADMIN it would lose the right to gain rights (sudo, ping) by it. Allow that by --no-new-privs".into(),
        ));
    }
    Ok(())
}

/// The numbers of logs, for this process and one that may have no more than `others` files open.
///
/// # Errors
/// There are not enough.
pub(crate) fn window(others: u64) -> Result<NumberWindow, String> {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    NumberWindow::below(limit.min(others)).ok_or_else(|| {
        "the limit of open files is below 1,536: raise it (ulimit -Hn, LimitNOFILE=)".into()
    })
}

/// Tries an agent's work on a child that waits: the listener.
///
/// # Errors
/// What is refused.
pub(crate) fn check(child: &WaitingChild) -> Result<&OwnedFd, String> {
    let listener = child.listener.as_ref().map_err(|errno| {
        format!(
            "the kernel or the container refuses the filter (seccomp user notification, Linux 5.19): {errno}. In a container, allow seccomp (docker run --security-opt seccomp=…)"
        )
    })?;
    let thread = child.pid.as_raw_nonzero().get().cast_unsigned();
    // The child has this process's numbers and memory still.
    let number = listener.as_raw_fd();
    check_looks(thread, (number, number), own_word()).map_err(|refused| refused.why)?;
    Ok(listener)
}

/// A look at a process that is refused.
pub(crate) struct RefusedLook {
    /// In words, with a remedy.
    pub(crate) why: String,
    /// The kernel's, if it is that.
    errno: Option<Errno>,
}

impl RefusedLook {
    /// True if it is refused for every process; else this one is gone, or something is short.
    pub(crate) fn is_for_all(&self) -> bool {
        self.errno.is_none_or(is_lasting)
    }
}

impl From<&str> for RefusedLook {
    fn from(why: &str) -> Self {
        Self {
            why: why.to_owned(),
            errno: None,
        }
    }
}

/// True of an error that the kernel or the container has for such a call whatever it is about.
pub(crate) fn is_lasting(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::PERM)
}

/// Tries an agent's work on a process: on a descriptor that it has by one number and this process
/// by another, and on a word that it has at an address.
///
/// # Errors
/// What is refused.
pub(crate) fn check_looks(
    thread: u32,
    (theirs, number): (c_int, c_int),
    word: (u64, u64),
) -> Result<(), RefusedLook> {
    let own = std::fs::read_link("/proc/self").map_err(|_| "/proc is not mounted: mount it")?;
    if own.to_str() != Some(&std::process::id().to_string()) {
        return Err("/proc is another process namespace's: mount that of this one".into());
    }
    let refused = |errno: Errno, why: String| RefusedLook {
        why,
        errno: Some(errno),
    };
    // Its threads act in the callers' directories.
    unshare_directories().map_err(|errno| {
        refused(errno, format!(
            "the container refuses unshare(CLONE_FS): {errno}. Give it a seccomp profile that allows unshare and kcmp (docker run --security-opt seccomp=…)"
        ))
    })?;
    // Of itself it may ask in any case.
    share(thread, theirs, number).map_err(|errno| {
        refused(errno, format!(
            "the kernel or the container does not let forebay look at the program's descriptors (kcmp): {errno}. In a container, allow kcmp (docker run --cap-add SYS_PTRACE, or --security-opt seccomp=…)"
        ))
    })?;
    let refuses = |what: &str, errno: Errno| {
        refused(
            errno,
            format!(
                "the kernel or the container does not let forebay {what}: {errno}. Set kernel.yama.ptrace_scope to 0 or 1, or give forebay CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE)"
            ),
        )
    };
    read_memory(thread, word)
        .map_err(|e| refuses("read the program's memory (process_vm_readv)", e))?;
    taken(thread, theirs)
        .map_err(|e| refuses("take the program's descriptors (pidfd_getfd)", e))?;
    Ok(())
}

/// The address of a word of this process, and the word.
fn own_word() -> (u64, u64) {
    static WORD: u64 = 1;
    ((&raw const WORD).addr() as u64, WORD)
}

/// Reads a word that a process has.
fn read_memory(thread: u32, (address, word): (u64, u64)) -> Result<(), Errno> {
    match CallerThread(thread).words::<1>(address)? {
        [found] if found == word => Ok(()),
        _ => Err(Errno::FAULT),
    }
}

/// Gives this thread a working directory and a mask of its own.
///
/// # Errors
/// The kernel's.
pub(crate) fn unshare_directories() -> Result<(), Errno> {
    // SAFETY: it is about directories; descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_or_gone_is_not_refused_for_all() {
        let look = |thread: u32, number: c_int| check_looks(thread, (number, 0), own_word());
        // No process has this id, and this one not that descriptor.
        for (thread, number) in [(i32::MAX as u32, 0), (std::process::id(), 100_000)] {
            let refused = look(thread, number).err().unwrap();
            assert!(!refused.is_for_all(), "{}", refused.why);
        }
        assert!(is_lasting(Errno::NOSYS) && !is_lasting(Errno::NOMEM));
    }
}
