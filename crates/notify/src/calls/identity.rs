//! A process becomes invisible to the agent: another user, or one that may not be looked at
//! (`PR_SET_DUMPABLE`). Before the kernel lets it, its logs are plain, and the kernel knows all
//! that was to be done with each write to them: what the process does from then on the agent cannot
//! follow.
//!
//! A process that changes who it is by all of its threads, as those of Go and the C library do,
//! makes the call once in each. The first of them changes the memory, which all have; the agent
//! finds nothing more to do for the others, and each gets the kernel's own answer.

use super::{CallOutcome, GO_ON, TrappedCall};
use forebay_files::client;
use rustix::io::Errno;

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
        let (count, is_group) = match self.seen.number {
            libc::SYS_prctl => return arguments[1] as u32 != 0,
            libc::SYS_setuid | libc::SYS_setfsuid => (1, false),
            libc::SYS_setgid | libc::SYS_setfsgid => (1, true),
            libc::SYS_setreuid => (2, false),
            libc::SYS_setregid => (2, true),
            libc::SYS_setresuid => (3, false),
            _ => (3, true),
        };
        // It is the same four times, and is to become the same.
        let Some([id, others @ ..]) = self.thread().ids(is_group) else {
            return false;
        };
        let is_same = |wanted: &u64| *wanted as u32 == id || *wanted as u32 == u32::MAX;
        others.iter().all(|other| *other == id) && arguments[..count].iter().all(is_same)
    }

    /// Nothing is absorbed any more, and the logs that the caller's process has are the kernel's.
    ///
    /// # Errors
    /// One cannot be made plain: then the process stays who it is.
    fn leave_unseen(&self) -> Result<(), Errno> {
        // None is given to it meanwhile.
        let _none_opens = self.agent.openings.write();
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
}
