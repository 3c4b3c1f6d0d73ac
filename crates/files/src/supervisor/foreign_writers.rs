//! Files that are to be plain, because a process that is no member is to write to them.
//! docs/files-membership.md, "Other writers".

use super::SupervisorState;
use crate::{absorbed::FileKey, identity, record::silence, sys};
use forebay_pool::MonotonicTime;
use rustix::fs::OFlags;
use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread,
    time::Duration,
};

/// Wait for a member that is in the middle of a write, and for the disk.
const RETIRE_WAIT: Duration = Duration::from_secs(2);
/// The longest time until the file's time is on its disk.
const OUTLAST_WAIT: Duration = Duration::from_secs(2);
const OUTLAST_LOOK: Duration = Duration::from_millis(1);

/// Neither for reading nor for writing: enough to sync by, and the kernel counts it neither among
/// the readers nor among the writers of the file. So it hinders no lease.
pub(super) const UNCOUNTED: OFlags = OFlags::from_bits_retain(libc::O_ACCMODE.unsigned_abs());

/// After a silence: gives the file the time of now, on its disk. A write over what it has, synced
/// by `fdatasync`, moves its time there only when the file system commits for itself (ext4 after 5
/// s, XFS after 30). A recovery before that would not see that the file was changed later than the
/// lane.
///
/// By an open file of its own: another one would hear no more of an error that this is told of.
pub(super) fn outlast(file: BorrowedFd<'_>) {
    let set = identity::reopen(file, UNCOUNTED).and_then(|again| {
        sys::set_changed_now(again.as_fd())?;
        rustix::fs::fsync(again)
    });
    if let Err(errno) = set {
        let what = format!(
            "the time of a file that is written to past the pool cannot be set ({errno}): a power cut in the next seconds may undo that"
        );
        sys::complain_repeated(&what, &what);
    }
}

/// As [`outlast`], for so long at most. It opens the file, which may wait for the same process that
/// waits for this, and syncs it, on a disk that may hang.
fn outlast_for(file: Arc<File>, limit: Duration) {
    let ended = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&ended);
    let work = move || {
        outlast(file.as_fd());
        says.store(true, Release);
    };
    let thread = thread::Builder::new().name("outlasting".into()).spawn(work);
    let begun = MonotonicTime::now();
    while thread.is_ok() && !ended.load(Acquire) && begun.elapsed() < limit {
        thread::sleep(OUTLAST_LOOK);
    }
    if !ended.load(Acquire) {
        sys::complain(
            "the time of a file that is written to past the pool is not set yet: a power cut in the next seconds may undo that",
        );
    }
}

impl SupervisorState {
    /// Nothing is logged of the file any more: a process that is no member may change it before it
    /// is plain. Waits for nothing.
    pub(super) fn stray(&self, key: FileKey) {
        if let Some(run) = self.running()
            && let Some((number, stamp, _)) = run.find(key)
        {
            run.page.files[number].stray(stamp.generation);
        }
    }

    /// Makes the file plain, if the run absorbs it, and returns when it is, or else after a
    /// [silence]. A member that is stopped in the middle of a write cannot be waited for, nor a
    /// disk that fails. Nothing is logged of the file in that time, so a replay sees that it was
    /// changed later.
    pub(super) fn let_go(&self, key: FileKey) {
        let Some(run) = self.running() else { return };
        // Also one that is being registered: who has opened it since the kernel was asked who has
        // it open is seen by nothing else.
        if let Some((number, stamp, _)) = run.find(key) {
            let retired = run.retire(self, number, stamp.generation, RETIRE_WAIT);
            // It cannot be synced, or a member is stopped in the middle of a write: it is written
            // to past the lane nevertheless.
            if retired.is_err() {
                run.page.files[number].stray(stamp.generation);
                thread::sleep(silence(self.pool.needs_commit()));
                if let Some(file) = run.known(number).and_then(|known| known.file.clone()) {
                    outlast_for(file, OUTLAST_WAIT);
                }
            }
        }
    }

    /// [Lets go](Self::let_go) of all files.
    pub(super) fn let_go_of_all(&self) {
        let keys = self.running().map_or_else(Vec::new, |run| run.keys());
        keys.into_iter().for_each(|key| self.let_go(key));
    }

    /// True if a user may have a file made plain: one who may write to it.
    pub(super) fn may_ask(&self, uid: u32, key: FileKey) -> bool {
        let stat = self.running().and_then(|run| run.stat_of(key));
        stat.is_none_or(|stat| sys::may_write(uid, &stat))
    }

    /// The path by which an absorbed file was registered.
    pub(super) fn absorbed_as(&self, key: FileKey) -> Option<PathBuf> {
        let (_, _, path) = self.running()?.find(key)?;
        Some(path)
    }
}
