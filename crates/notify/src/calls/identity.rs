//! A process becomes invisible to the agent: another user, or one that may not be looked at
//! (`PR_SET_DUMPABLE`). Before the kernel lets it, its logs are plain, and the kernel knows all
//! that was to be done with each write to them: what the process does from then on the agent cannot
//! follow.
//!
//! A process that changes who it is by all of its threads, as those of Go and the C library do,
//! makes the call once in each. The first of them changes the memory, which all have; the agent
//! finds nothing more to do for the others, and each gets the kernel's own answer.
//!
//! A child that has its parent's memory (`vfork`, Go's start of a program as another user) makes
//! the parent invisible with itself. It is refused while the parent has what cannot be followed.

use super::{CallOutcome, GO_ON, TrappedCall};
use crate::open_files::sharing_memory;
use forebay_files::client;
use libc::c_int;
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;

impl TrappedCall<'_> {
    /// `set…uid`, `set…gid`, `prctl(PR_SET_DUMPABLE)`.
    pub(super) fn change_identity(&self) -> CallOutcome {
        if self.agent.status.sees_all() || self.stays_visible() {
            return GO_ON;
        }
        self.leave_unseen()?;
        GO_ON
    }

    /// True if the process is certainly as visible after the call as before.
    fn stays_visible(&self) -> bool {
        let arguments = &self.seen.arguments;
        if self.seen.number == libc::SYS_prctl {
            return arguments[1] as u32 != 0;
        }
        let of_group = [
            libc::SYS_setgid,
            libc::SYS_setregid,
            libc::SYS_setresgid,
            libc::SYS_setfsgid,
        ];
        // /proc says them as the agent's user namespace has them.
        if !self.agent.status.has_same_ids(self.thread()) {
            return false;
        }
        let is_group = of_group.contains(&self.seen.number);
        let Some((held, has_right)) = self.thread().ids(is_group) else {
            return false;
        };
        let [first, second, third, ..] = *arguments;
        held.after(self.seen.number, [first, second, third], has_right) == held
    }

    /// Nothing is absorbed any more, and the logs that the caller's process has are the kernel's.
    ///
    /// # Errors
    /// One cannot be made plain: then the process stays who it is.
    fn leave_unseen(&self) -> Result<(), Errno> {
        // None is given to it meanwhile.
        let mut times = self.agent.openings.write();
        for process in sharing_memory(self.seen.thread) {
            self.check_lacks_synced(process)?;
        }
        *times += 1;
        client::give_up(
            "one of its processes is about to be invisible to forebay (another user, or PR_SET_DUMPABLE)",
        );
        let numbers = &self.agent.numbers;
        for number in numbers.between(0, u32::MAX) {
            // What another thread of it made invisible was handed over then.
            if let Ok(Some(open)) = numbers.used_by(self.seen.thread, number) {
                self.hand_over_open(&open)?;
            }
        }
        Ok(())
    }

    /// Fails if a process that becomes invisible together with the caller has a log that is to be
    /// synced with each write, which the kernel does not know.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: it has one.
    fn check_lacks_synced(&self, process: u32) -> Result<(), Errno> {
        let numbers = &self.agent.numbers;
        let is_synced = |number: &c_int| self.agent.slots.hidden(*number) & libc::O_DSYNC != 0;
        let mut synced = numbers.between(0, u32::MAX).into_iter().filter(is_synced);
        // What cannot be told may be it.
        if synced.all(|number| matches!(numbers.used_by(process, number), Ok(None))) {
            return Ok(());
        }
        if !self.agent.said_shared.swap(true, Relaxed) {
            forebay_pool::complain(
                "a child that has its parent's memory is refused to become another user, or invisible (EOPNOTSUPP), since the parent has a log open with O_DSYNC: \
                 start the child by a program that changes the user (setpriv, gosu), or leave the file out of --absorb",
            );
        }
        Err(Errno::OPNOTSUPP)
    }
}
