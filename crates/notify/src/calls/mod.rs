//! The agent's answer to each call: one function a call.
//!
//! A call that is none of the client's business goes on. If it changes a name, a size or an
//! attribute that a sync is to be ordered behind, that is [noted](crate::pending).

mod changes;
mod copied_bytes;
mod data;
mod descriptors;
mod front_ends;
mod identity;
mod names;
#[cfg(target_arch = "x86_64")]
mod old_times;
mod open;
mod plain;
mod user_ids;

pub(crate) use user_ids::HeldIds;

use crate::{
    agent_state::AgentState,
    caller::CallerThread,
    listener::CallAnswer,
    numbers::UsedNumber,
    receiver_turn::ReceivedCall,
    slots::{CallSlot, SeenCall},
};
use forebay_files::{AGENT_QUESTION, client};
use libc::c_int;
use rustix::io::Errno;
use std::{ffi::CString, os::fd::AsRawFd, sync::atomic::Ordering};

/// A call, and the means to answer it.
pub(crate) struct TrappedCall<'a> {
    pub(crate) agent: &'a AgentState,
    pub(crate) slot: &'a CallSlot,
    pub(crate) seen: SeenCall,
    pub(crate) received: ReceivedCall,
}

/// The answer to the thread. None if it was told already.
type CallOutcome = Result<Option<CallAnswer>, Errno>;

const GO_ON: CallOutcome = Ok(Some(CallAnswer::GoOn));

/// The call was done, with this result.
fn done(result: Result<i64, Errno>) -> CallOutcome {
    result.map(|value| Some(CallAnswer::Done(value)))
}

impl TrappedCall<'_> {
    fn thread(&self) -> CallerThread {
        CallerThread(self.seen.thread)
    }

    fn argument(&self, number: usize) -> u64 {
        self.seen.arguments[number]
    }

    /// An argument that the kernel takes as an `int`.
    fn int(&self, number: usize) -> c_int {
        self.seen.arguments[number] as c_int
    }

    /// Before the call takes effect: the arguments were read, and the thread still waits. From now
    /// on it is done wholly or not at all.
    ///
    /// # Errors
    /// `ESRCH` if it does not, and what was read may be another's.
    fn begin(&self) -> Result<(), Errno> {
        self.check_waiting()?;
        self.slot.begin();
        Ok(())
    }

    /// Before the call waits for a disk: another thread receives what comes next.
    fn pass_turn(&self) {
        self.agent.turn.pass(self.received);
    }

    fn check_waiting(&self) -> Result<(), Errno> {
        match self.agent.listener.is_waiting(self.seen.id) {
            true => Ok(()),
            false => Err(Errno::SRCH),
        }
    }

    /// The thread's log by this number, if that is one.
    ///
    /// # Errors
    /// It may be one, and cannot be made plain.
    fn used(&self, number: c_int) -> Result<Option<UsedNumber>, Errno> {
        if !self.agent.numbers.window.has(number) {
            return Ok(None);
        }
        match self.agent.numbers.used_by(self.seen.thread, number) {
            Ok(Some(used)) => Ok(Some(used)),
            Ok(None) => self.claim_unknown(number).map(|()| None),
            // It may be the log's, and what is done to it cannot be followed.
            Err(used) => {
                client::retire(used.number())?;
                // Nor can the kernel be told to sync what it writes, unless it was told already.
                match self.agent.slots.hidden(number) & libc::O_DSYNC {
                    0 => Ok(None),
                    _ => Err(Errno::IO),
                }
            }
        }
    }

    /// A path, by the address that is this argument. None if the kernel is to say what is wrong.
    fn path(&self, argument: usize) -> Option<CString> {
        match self.thread().path(self.argument(argument)) {
            Ok(path) => Some(path),
            Err(Errno::PERM) => {
                client::give_up("the memory of one of its processes cannot be read");
                None
            }
            Err(_) => None,
        }
    }

    /// A number of the window that the agent does not know: another file's, or a log's of a process
    /// that was forked while the number was let go of. That log is plain from now on.
    fn claim_unknown(&self, number: c_int) -> Result<(), Errno> {
        match self.thread().directory(number) {
            Ok(fd) => client::opened(fd.as_raw_fd()),
            Err(Errno::ACCESS | Errno::PERM) => {
                client::give_up("the descriptors of one of its processes cannot be seen");
                Ok(())
            }
            // There is none.
            Err(_) => Ok(()),
        }
    }

    /// The kernel is to do it, and it changes what syncs are ordered behind.
    fn go_on_changing(&self) -> CallOutcome {
        self.agent.pending.add(self.seen.thread, self.seen.number);
        GO_ON
    }

    /// Does the call. None if the thread was told already.
    pub(crate) fn serve(&self) -> Option<CallAnswer> {
        if let Some(answer) = self.answer_dormant() {
            return Some(answer);
        }
        self.agent.pending.came_back(self.seen.thread);
        self.agent.numbers.held.came_back(self.seen.thread);
        let outcome = self.outcome();
        outcome.unwrap_or_else(|errno| Some(CallAnswer::Failed(errno)))
    }

    fn outcome(&self) -> CallOutcome {
        match self.seen.number {
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2 => self.write(),
            libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range => self.sync(),
            libc::SYS_sync | libc::SYS_syncfs | libc::SYS_msync => self.sync_all(),
            libc::SYS_read | libc::SYS_readv | libc::SYS_preadv2 => self.read(),
            libc::SYS_lseek => self.seek(),
            libc::SYS_openat | libc::SYS_openat2 => self.open(),
            libc::SYS_open_by_handle_at => Err(Errno::OPNOTSUPP),
            libc::SYS_close => self.close(),
            libc::SYS_close_range => self.close_range(),
            libc::SYS_dup => self.duplicate(0, true),
            libc::SYS_dup3 => self.replace(),
            libc::SYS_fcntl => self.control(),
            libc::SYS_sendmsg | libc::SYS_sendmmsg => self.send(),
            libc::SYS_pidfd_getfd => self.take_from_process(),
            libc::SYS_mmap => self.retire(self.int(4)).and(GO_ON),
            libc::SYS_ioctl => self.request(),
            libc::SYS_landlock_restrict_self => {
                self.agent.restricted.store(true, Ordering::SeqCst);
                GO_ON
            }
            libc::SYS_io_uring_setup | libc::SYS_io_setup => self.make_ring(),
            libc::SYS_prctl if self.int(0) == AGENT_QUESTION => self.answer_library(),
            libc::SYS_prctl
            | libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setfsuid
            | libc::SYS_setfsgid => self.change_identity(),
            libc::SYS_ftruncate => self.truncate(),
            libc::SYS_fallocate => self.allocate(),
            libc::SYS_copy_file_range => self.transfer([0, 2], 1),
            libc::SYS_splice => self.transfer([0, 2], 1),
            libc::SYS_sendfile => self.transfer([1, 0], 2),
            libc::SYS_renameat2 | libc::SYS_renameat | libc::SYS_linkat | libc::SYS_unlinkat => {
                self.name()
            }
            libc::SYS_truncate => self.truncate_path(),
            libc::SYS_utimensat => self.touch(),
            number => self.serve_old(number),
        }
    }

    /// Those that newer machines have not.
    #[cfg(target_arch = "x86_64")]
    fn serve_old(&self, number: i64) -> CallOutcome {
        match number {
            libc::SYS_open | libc::SYS_creat => self.open(),
            libc::SYS_dup2 => self.replace(),
            libc::SYS_rename | libc::SYS_link | libc::SYS_unlink => self.name(),
            libc::SYS_utime | libc::SYS_utimes | libc::SYS_futimesat => self.touch_old(),
            _ => self.go_on_changing(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn serve_old(&self, _: i64) -> CallOutcome {
        self.go_on_changing()
    }
}
