//! The lane has ended before the run. docs/files-protocol.md, "A pool on a disk".

use super::{Shared, run::Run};
use crate::{sys, void};
use rustix::io::Errno;
use std::os::fd::AsFd;

impl Run {
    /// The lane has ended before the run, because the pool's disk failed or a process damaged the memory that all share: syncs every file really, after
    /// which nothing in the lane is needed.
    ///
    /// # Errors
    /// That of a file that cannot be synced: then the lane stays as it is.
    pub(super) fn settle(&self, shared: &Shared) -> Result<(), Errno> {
        let _one = self.repairing.lock();
        if self.lane.is_settled() {
            return Ok(());
        }
        if let Some(errno) = self.page.failure() {
            return Err(errno);
        }
        let (why, remedy) = match self.lane.failure() {
            Some(error) => (
                format!(
                    "the disk of the pool {} failed ({error})",
                    self.pool.path().display()
                ),
                "See to that disk, and restart the program",
            ),
            None => (
                "a process of the run has damaged the memory that all of them share".to_owned(),
                "Restart the program, and look into what it writes to",
            ),
        };
        sys::complain(&format!(
            "{why}: nothing is absorbed any more, and every sync is a real one. What was acknowledged is not lost. {remedy}"
        ));
        for file in &self.page.files {
            // From here on each sync of it is a real one, though its own records had all been committed.
            file.leave(file.stamp().generation);
        }
        self.sync_files(shared, |_| true)?;
        let Err(unwritten) = self.lane.settle() else {
            return Ok(());
        };
        // A recovery, once that disk is back, would write what the pool has over what is newer.
        self.mark_void().map_err(|unmarked| {
            sys::complain(&format!(
                "{unwritten}; and {unmarked}. So a recovery could write older bytes over newer ones: nothing is lost, and no sync succeeds any \
                 more. Stop the program, and see to the pool's disk"
            ));
            Errno::IO
        })?;
        self.lane.settled_elsewhere();
        Ok(())
    }

    /// Says in every file that what the lane has of it is void.
    ///
    /// # Errors
    /// In words: of the first that it cannot be said of.
    fn mark_void(&self) -> Result<(), String> {
        let known = self.files.lock().clone();
        for known in known.iter().flatten() {
            // One without a name is found by no recovery.
            let Some(file) = known
                .file
                .as_ref()
                .filter(|_| known.unlinked_from.is_none())
            else {
                continue;
            };
            void::mark(file.as_fd(), self.lane.owner()).map_err(|errno| {
                let path = known.path.display();
                format!("{path} cannot be marked as newer than the pool (an extended attribute: {errno})")
            })?;
        }
        Ok(())
    }
}
