//! What all threads of the agent share, and where one of them is while it acts for a caller.

use crate::{
    caller::AgentStatus, listener::CallListener, numbers::NumberTable, pending::PendingChanges,
    slots::CallSlots,
};
use forebay_files::client;
use libc::c_int;
use parking_lot::{Mutex, RwLock};
use rustix::fs::Mode;
use std::{
    borrow::Cow,
    ffi::{CStr, CString},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// What all threads of the agent share.
pub(crate) struct AgentState {
    pub(crate) listener: CallListener,
    pub(crate) slots: CallSlots,
    pub(crate) numbers: NumberTable,
    pub(crate) pending: PendingChanges,
    pub(crate) status: AgentStatus,
    /// Threads that wait for a call, or are about to.
    pub(crate) idle: AtomicUsize,
    /// Slots that no thread has.
    pub(crate) unused: Mutex<Vec<usize>>,
    /// A process of the program has said that it is to do less than the agent may.
    pub(crate) restricted: AtomicBool,
    /// Held by those that give a log to a process, and alone by who has a process become
    /// invisible.
    pub(crate) openings: RwLock<()>,
    /// Held by a write by a number that no log has.
    pub(crate) unknown: Mutex<()>,
    /// A root directory that holds up no unmounting.
    pub(crate) root: OwnedFd,
    pub(crate) said: AtomicBool,
}

impl AgentState {
    /// Says once why a file that a pattern names stays plain.
    pub(crate) fn say_plain(&self, path: &CStr, flags: c_int, reason: &str) {
        if client::is_wanted(path, flags) && !self.said.swap(true, Ordering::Relaxed) {
            forebay_pool::complain(&format!(
                "{} stays plain, as all files of its process: {reason}",
                path.to_string_lossy()
            ));
        }
    }
}

/// A thread of the agent in the working directory of the caller, with its mask.
pub(crate) struct WorkerPlace<'a> {
    agent: &'a AgentState,
    thread: u32,
    directory: Option<OwnedFd>,
}

impl<'a> WorkerPlace<'a> {
    /// None if the directory cannot be entered.
    pub(crate) fn enter(
        agent: &'a AgentState,
        thread: u32,
        (cwd, directory): (OwnedFd, Option<OwnedFd>),
        umask: u32,
    ) -> Option<Self> {
        rustix::process::fchdir(cwd.as_fd()).ok()?;
        rustix::process::umask(Mode::from_raw_mode(umask));
        Some(Self {
            agent,
            thread,
            directory,
        })
    }

    /// What a path that is not absolute is below.
    pub(crate) fn dir(&self) -> c_int {
        self.directory
            .as_ref()
            .map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd)
    }

    /// A path as the agent must say it: what means "this process" means the caller.
    pub(crate) fn path<'p>(&self, path: &'p CStr) -> Cow<'p, CStr> {
        let names = [
            ("/proc/self/", format!("/proc/{}/", self.thread)),
            ("/proc/thread-self/", format!("/proc/{}/", self.thread)),
            ("/dev/fd/", format!("/proc/{}/fd/", self.thread)),
        ];
        for (name, meant) in names {
            if let Some(rest) = path.to_bytes().strip_prefix(name.as_bytes())
                && let Ok(path) = CString::new([meant.as_bytes(), rest].concat())
            {
                return Cow::Owned(path);
            }
        }
        Cow::Borrowed(path)
    }
}

impl Drop for WorkerPlace<'_> {
    fn drop(&mut self) {
        let _ = rustix::process::fchdir(self.agent.root.as_fd());
    }
}
