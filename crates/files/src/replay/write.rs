//! Carries a recovery's plan out: syncing, writing the same bytes again, writing the lane's
//! records.
//!
//! 1. Mark the lane (`attempt`): from here on, changes of its files that fall in this time are the
//!    recovery's own.
//! 2. Write a file, and sync it.
//! 3. Set its times to what the program left, and sync those: it is as if the recovery had never
//!    written to it.
//! 4. Sync the directories that have its names (`sync`).
//!
//! A cut anywhere leaves the lane as it was, and files that the next recovery knows as its own
//! doing (1) or as the program's (3).

use super::{
    attempt::{ReplayAttempt, set_times},
    decide::{FilePlan, RewritePlan, TargetFile, failed},
    lane_contents::LoggedFile,
    sync::{ReplayFailure, fsync, sync, sync_absence},
};
use crate::{
    identity,
    image::FileImage,
    lane_label::UNFINISHED,
    record::{FileChange, PayloadHead},
    sys,
};
use forebay_pool::{PoolError, failpoint, rewrite};
use rustix::{fs::OFlags, io::Errno};
use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

/// The end of a file's recovery.
pub(super) enum FileOutcome {
    /// It is durable as it was.
    Synced,
    /// The lane's records were written to it.
    Written,
    /// The reason that it could not be, and the remedy.
    Refused(String),
    /// The same: something failed.
    Stopped(String),
}

/// The work on one lane's files.
pub(super) struct LaneWork<'a> {
    attempt: ReplayAttempt<'a>,
    force: bool,
    /// Others may change the files meanwhile, and no later recovery is to take a change of theirs
    /// for one of this: no time is set, and the lane does not say that it goes on.
    takes_over: bool,
}

impl<'a> LaneWork<'a> {
    pub(super) fn new(attempt: ReplayAttempt<'a>, force: bool, takes_over: bool) -> Self {
        Self {
            attempt,
            force,
            takes_over,
        }
    }

    /// Before anything is changed: sets apart the unfinished work of earlier attempts. If that
    /// fails, of which file, and why.
    pub(super) fn begin(
        &mut self,
        files: &[LoggedFile<'_>],
        plans: &[FilePlan],
    ) -> Result<(), (usize, String)> {
        let (mut are_apart, mut changed) = (true, Vec::new());
        for (at, (file, plan)) in files.iter().zip(plans).enumerate() {
            match plan {
                FilePlan::Sync(target, _) | FilePlan::Write(target) if target.is_ours => {
                    let is_apart = ReplayAttempt::set_apart(file, target);
                    are_apart &= is_apart.map_err(|failed| (at, self.stopped(file, &failed)))?;
                }
                FilePlan::Sync(target, _) | FilePlan::Write(target) | FilePlan::Keep(target, _) => {
                    changed.push(target.modified);
                }
                _ => {}
            }
        }
        if are_apart {
            self.attempt.begin(&changed);
        }
        Ok(())
    }

    /// Something was refused: notes its fate in the lane. As [`ReplayAttempt::end`].
    pub(super) fn end(&mut self) -> Result<(), (PoolError, bool)> {
        self.attempt.end()
    }

    /// Carries out the plan for a file.
    pub(super) fn carry_out(&mut self, file: &LoggedFile<'_>, plan: FilePlan) -> FileOutcome {
        let (done, otherwise) = match plan {
            FilePlan::Nothing(_) => (sync_absence(file), FileOutcome::Synced),
            FilePlan::Refuse(why) => return FileOutcome::Refused(why),
            FilePlan::SyncAll(directory, _) => (
                sys::sync_file_system(&directory).map_err(ReplayFailure::Sync),
                FileOutcome::Synced,
            ),
            // Opened since: the kernel tells this one of what it could not write back, unless
            // another process heard of it.
            FilePlan::Sync(target, RewritePlan::No) | FilePlan::Keep(target, _) => {
                (sync(file, &target.file), FileOutcome::Synced)
            }
            FilePlan::Sync(target, again) => match self.write_again(file, target, again) {
                Ok(None) => (Ok(()), FileOutcome::Synced),
                Ok(Some(refused)) => return FileOutcome::Refused(refused),
                Err(failed) => (Err(failed), FileOutcome::Synced),
            },
            FilePlan::Write(target) => (self.write(file, target), FileOutcome::Written),
        };
        match done {
            Ok(()) => otherwise,
            Err(failed) => FileOutcome::Stopped(self.stopped(file, &failed)),
        }
    }

    /// In words: why the recovery of a file stopped. After a failed sync the lane is to say so.
    fn stopped(&mut self, file: &LoggedFile<'_>, failed: &ReplayFailure) -> String {
        let path = file.path().display();
        match failed {
            ReplayFailure::Sync(errno) => {
                self.attempt.failed();
                format!(
                    "{path} cannot be synced: {errno}. Remedy that, then recover again: its writes are kept in the pool until then"
                )
            }
            ReplayFailure::Lane(error) => format!(
                "{path} is not written to, since the pool cannot be told so: {error}. Remedy that, then recover again: its writes are kept in the pool until then"
            ),
            ReplayFailure::Other(errno) => format!(
                "{path} cannot be written to: {errno}. Remedy that (free space, chmod u+w, chattr -i), or run the recovery as a user who may, \
                 then recover again: its writes are kept in the pool until then"
            ),
        }
    }

    /// Says, at most once a [`BEAT`](crate::lane_label::BEAT), that the replay goes on.
    fn beat(&mut self) -> Result<(), ReplayFailure> {
        match self.takes_over {
            true => Ok(()),
            false => self.attempt.beat(),
        }
    }

    /// Writes what the file holds already, and syncs it. In words why that had to be and could not.
    fn write_again(
        &mut self,
        file: &LoggedFile<'_>,
        target: TargetFile,
        again: RewritePlan,
    ) -> Result<Option<String>, ReplayFailure> {
        let accessed = target.accessed;
        // A replay that was cut before may have moved it.
        let left = (file.left.filter(|_| target.is_ours)).unwrap_or(target.modified);
        if self.takes_over {
            // First: so what a power cut in the middle of the writing leaves is what the lane says,
            // unless a sync had failed.
            sync(file, &target.file)?;
        }
        let refused = |why: &str| {
            let must = again == RewritePlan::Must && !self.force;
            must.then(|| failed(file, why))
        };
        let Ok(open) = identity::reopen(target.seen.as_fd(), OFlags::RDWR) else {
            let why = "it cannot be opened for writing: permit that (chmod u+w, chattr -a -i) and recover again. If the file's bytes are right";
            return match refused(why) {
                Some(refused) => Ok(Some(refused)),
                None => self
                    .settle(file, &target.file, accessed, left)
                    .map(|()| None),
            };
        };
        let TargetFile {
            seen,
            file: reading,
            ..
        } = target;
        drop((reading, seen));
        // Before openers wait.
        rewrite::flush(&open);
        let why = "another process has it open: stop that and recover again. If the file's bytes are right";
        let refused = refused(why);
        // No process opens it from looking to having written, all in memory. The sync takes longer,
        // and no opener waits for it.
        if !sys::take_lease(open.as_fd()) {
            return match refused {
                Some(refused) => Ok(Some(refused)),
                None => self.settle(file, &open, accessed, left).map(|()| None),
            };
        }
        let image = FileImage::of(&file.changes);
        let is_in = image.is_in(&open).map_err(|e| sys::errno_of(&e))?;
        if is_in {
            self.beat()?;
            // Until it is written it may hold less than it did, which it says by its time.
            if !self.takes_over && file.left.is_some() && set_times(&open, accessed, UNFINISHED)? {
                rewrite::drop_pages(&open, rewrite::ranges_of(&image.parts));
                failpoint!("replay:step");
            }
            for (at, bytes) in &image.parts {
                sys::write_at(open.as_fd(), bytes, *at)?;
                failpoint!("replay:step");
            }
        }
        sys::give_lease(open.as_fd());
        self.settle(file, &open, accessed, left)?;
        Ok(refused.filter(|_| !is_in))
    }

    /// Writes the lane's records, in order.
    fn write(&mut self, file: &LoggedFile<'_>, target: TargetFile) -> Result<(), ReplayFailure> {
        let left = file.left.unwrap_or(target.modified);
        let open = match identity::reopen(target.seen.as_fd(), OFlags::RDWR) {
            Ok(open) => open,
            Err(errno) => match identity::reopen(target.seen.as_fd(), OFlags::WRONLY) {
                Ok(open) => open,
                Err(Errno::PERM) if !self.takes_over => {
                    return self.append(file, &target, left);
                }
                Err(_) => return Err(errno.into()),
            },
        };
        let (accessed, ends_at) = (target.accessed, target.ends_at);
        drop(target);
        // Kept until it is synced and closed.
        if self.takes_over && !sys::take_lease(open.as_fd()) {
            return Err(ReplayFailure::Other(Errno::BUSY));
        }
        self.beat()?;
        let image = FileImage::of(&file.changes);
        rewrite::flush(&open);
        rewrite::drop_pages(&open, rewrite::ranges_of(&image.parts));
        for (head, change) in &file.changes {
            self.beat()?;
            apply(open.as_fd(), *head, *change)?;
            failpoint!("files:replay");
            failpoint!("replay:step");
        }
        if let Some(size) = ends_at {
            rustix::fs::ftruncate(&open, size)?;
            failpoint!("replay:step");
        }
        self.settle(file, &open, accessed, left)
    }

    /// Writes what is missing at the end of a file that may only be appended to (`chattr +a`).
    fn append(
        &mut self,
        file: &LoggedFile<'_>,
        target: &TargetFile,
        left: Duration,
    ) -> Result<(), ReplayFailure> {
        let size = target.file.metadata().map_err(|e| sys::errno_of(&e))?.len();
        let image = FileImage::of(&file.changes);
        let tail = image
            .missing(&target.file, size)
            .map_err(|e| sys::errno_of(&e))?;
        let tail = tail
            .filter(|_| image.size.is_none_or(|expected| expected >= size))
            .ok_or(Errno::PERM)?;
        let open = identity::reopen(target.seen.as_fd(), OFlags::WRONLY | OFlags::APPEND)?;
        self.beat()?;
        rewrite::flush(&open);
        rewrite::drop_pages(&open, rewrite::ranges_of(&image.parts));
        let mut end = size;
        let grown = image.size.unwrap_or(0);
        let tail = tail
            .into_iter()
            .chain((grown > size).then_some((grown, &[][..])));
        for (at, bytes) in tail {
            while end < at {
                let zeros = [0; 4096];
                let gap = usize::try_from(at - end).map_or(zeros.len(), |gap| gap.min(zeros.len()));
                sys::write_at(open.as_fd(), &zeros[..gap], end)?;
                end += gap as u64;
            }
            self.beat()?;
            sys::write_at(open.as_fd(), bytes, at)?;
            end = end.max(at + bytes.len() as u64);
            failpoint!("replay:step");
        }
        self.settle(file, &open, target.accessed, left)
    }

    /// After it was written to: makes it durable, with the times that the program left.
    fn settle(
        &self,
        file: &LoggedFile<'_>,
        open: &File,
        accessed: (i64, i64),
        modified: Duration,
    ) -> Result<(), ReplayFailure> {
        fsync(open)?;
        let image = FileImage::of(&file.changes);
        rewrite::check(open, &image.parts).map_err(ReplayFailure::Sync)?;
        failpoint!("replay:step");
        if self.takes_over {
            return sync(file, open);
        }
        // A file of another user that this one may write to has the time at which it was.
        set_times(open, accessed, modified)?;
        failpoint!("replay:step");
        sync(file, open)?;
        failpoint!("replay:step");
        Ok(())
    }
}

/// Makes one change to a file. Changing it again changes nothing.
fn apply(fd: BorrowedFd<'_>, head: PayloadHead, change: FileChange<'_>) -> Result<(), Errno> {
    match change {
        FileChange::Write(bytes) => sys::write_at(fd, bytes, head.at),
        FileChange::Truncate => rustix::fs::ftruncate(fd, head.at),
        _ => Ok(()),
    }
}
