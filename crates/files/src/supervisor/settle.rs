//! The lane has ended before the run. docs/files-write.md, "A pool on a disk";
//! docs/files-membership.md, "When a process dies".

use super::{SupervisorState, run::RunState};
use crate::{
    shared::{FileState, Lock, Stamp},
    sys, void_marks,
};
use rustix::io::Errno;
use std::{os::fd::AsFd, sync::atomic::Ordering::Relaxed};

impl RunState {
    /// The lane has ended before the run: the pool's disk failed, the pool was removed, or a
    /// process damaged the memory that all share. Syncs every file really, after which nothing in
    /// the lane is needed.
    ///
    /// # Errors
    /// That of a file that cannot be synced: then the lane stays as it is.
    pub(super) fn settle(&self, shared: &SupervisorState) -> Result<(), Errno> {
        let _one = self.repairing.lock();
        if self.is_damaged() {
            self.lane.close();
            self.rewrite_page();
        }
        if self.lane.is_settled() {
            return Ok(());
        }
        if let Some(errno) = self.page.failure() {
            return Err(errno);
        }
        let path = self.pool.path().display();
        let (why, remedy) = match self.lane.failure() {
            _ if self.is_pool_gone.load(Relaxed) => (
                format!("the pool {path} was removed while it is used"),
                "Restart the program with a pool that stays",
            ),
            Some(error) if error.raw_os_error() == Some(Errno::FBIG.raw_os_error()) => (
                format!(
                    "a process of the run may not write to the pool {path}, because of its limit on the size of files (ulimit -f)"
                ),
                "Raise that above the size of the pool, and restart the program",
            ),
            Some(error) if self.pool.is_elsewhere() => (
                format!(
                    "the legs of the pool {path} failed ({error}; {})",
                    self.pool.describe()
                ),
                "See to these machines, and restart the program",
            ),
            Some(error) => (
                format!("the disk of the pool {path} failed ({error})"),
                "See to that disk, and restart the program",
            ),
            None => (
                "a process of the run has damaged the memory that all of them share".to_owned(),
                "Restart the program, and look into the disk that it writes to",
            ),
        };
        sys::complain(&format!(
            "{why}: nothing is absorbed any more, and every sync is a real one. No acknowledged write is lost. {remedy}"
        ));
        for (number, file) in self.places() {
            // From here on each sync of it is a real one, though its own records had all been
            // committed.
            file.leave(self.generation(number));
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

    /// A process has written over the page: it says again what the supervisor knows, that of every
    /// file nothing is logged any more. Whatever else stood there is of no use, since the lane is
    /// closed.
    fn rewrite_page(&self) {
        let files = self.files.lock();
        self.page.set_used(files.len(), files.len());
        self.page.free_openings(Lock::is_damaged);
        for (number, file) in self.page.files[..files.len()].iter().enumerate() {
            self.page.end_sync(number);
            let state = match (files.get(number), file.stamp().state) {
                (None, _) => FileState::Free,
                // It may have been changed past the lane.
                (Some(_), FileState::Strayed | FileState::Damaged) => FileState::Strayed,
                (Some(_), _) => FileState::Leaving,
            };
            let generation = self.generation(number);
            file.set(Stamp { generation, state });
            file.set_newer(0..0);
            match self.errors[number].load(Relaxed) {
                0 => self.page.repaired(number),
                errno => self.page.fail(number, Errno::from_raw_os_error(errno)),
            }
            if file.lock.is_damaged() {
                file.lock.free();
            }
        }
    }

    /// Says in every file that what the lane has of it is void.
    ///
    /// # Errors
    /// In words: of the first that it cannot be said of.
    fn mark_void(&self) -> Result<(), String> {
        for number in self.numbers() {
            let Some(known) = self.known(number) else {
                continue;
            };
            // One without a name is found by no recovery.
            let Some(file) = known
                .file
                .as_ref()
                .filter(|_| known.unlinked_from.is_none())
            else {
                continue;
            };
            void_marks::mark(file.as_fd(), self.lane.owner()).map_err(|errno| {
                let path = known.path.display();
                format!("{path} cannot be marked as newer than the pool (an extended attribute: {errno})")
            })?;
        }
        // Without it a recovery asks for files that were removed since.
        let pool = self.pool.file_elsewhere();
        let _ = pool.map(|file| void_marks::mark(file, self.lane.owner()));
        Ok(())
    }
}
