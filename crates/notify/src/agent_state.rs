//! State that all threads of the agent share, and the place of a thread that acts for a caller.

use crate::{
    caller::AgentStatus, listener::CallListener, numbers::NumberTable, pending::PendingChanges,
    receiver_turn::ReceiverTurn, self_paths::said_for, serving_stage::ServingStage,
    slots::CallSlots,
};
use forebay_files::client;
use libc::c_int;
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::fs::Mode;
use std::{
    borrow::Cow,
    ffi::CStr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

/// State that all threads of the agent share.
pub(crate) struct AgentState {
    pub(crate) listener: CallListener,
    pub(crate) slots: CallSlots,
    pub(crate) numbers: NumberTable,
    pub(crate) pending: PendingChanges,
    pub(crate) status: AgentStatus,
    pub(crate) turn: ReceiverTurn,
    /// The thread is there that watches over it.
    pub(crate) is_watched: AtomicBool,
    /// Slots that no thread has.
    pub(crate) unused: Mutex<Vec<usize>>,
    /// A process of the program has said that it is to do less than the agent may.
    pub(crate) restricted: AtomicBool,
    /// The number of times that a process has become invisible. Held by those that give a log to a
    /// process, and alone by who has one become so.
    pub(crate) openings: RwLock<u64>,
    pub(crate) unknown: FileLocks,
    /// A root directory that holds up no unmounting.
    pub(crate) root: OwnedFd,
    pub(crate) said: AtomicBool,
    /// It was said that a child is refused, since it has its parent's memory.
    pub(crate) said_shared: AtomicBool,
    pub(crate) stage: ServingStage,
}

/// Held by a write to a file by a number that no log has: between the question where its position
/// is and the answer nothing else moves it. Files have locks by their inode.
#[derive(Default)]
pub(crate) struct FileLocks([Mutex<()>; Self::COUNT]);

impl FileLocks {
    const COUNT: usize = 32;

    pub(crate) fn lock_of(&self, inode: u64) -> MutexGuard<'_, ()> {
        self.0[inode as usize % Self::COUNT].lock()
    }
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

    /// The directory that a path which is not absolute is below.
    pub(crate) fn dir(&self) -> c_int {
        self.directory
            .as_ref()
            .map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd)
    }

    /// A path as the agent must say it: a name for "this process" means the caller.
    pub(crate) fn path<'p>(&self, path: &'p CStr) -> Cow<'p, CStr> {
        said_for(self.thread, path)
    }
}

impl Drop for WorkerPlace<'_> {
    fn drop(&mut self) {
        let _ = rustix::process::fchdir(self.agent.root.as_fd());
    }
}
