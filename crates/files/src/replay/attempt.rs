//! Earlier attempts to replay a lane, as it notes them, and their changes of its files.
//!
//! 1. A file that an earlier attempt changed and did not finish gets a time that says so
//!    ([`UNFINISHED`]), and is synced. So nothing depends any more on when that attempt was; what
//!    another program changed between the two stays known as that.
//! 2. Before the first change the lane's label says when this attempt begins, and then that it goes
//!    on. Where that cannot be said nothing is changed. The label says it to the hundredth of a
//!    second: an attempt does not begin in the one in which another program changed a file of the
//!    lane.
//! 3. If something is refused in the end, the label says when that was.

use super::{
    decide::TargetFile,
    lane_contents::LoggedFile,
    sync::{ReplayFailure, confirmed},
};
use crate::{
    lane_label::{APART, BEAT, LabelMark, UNFINISHED, is_told_apart, relabelled},
    sys,
};
use forebay_pool::{Lane, MonotonicTime, PoolError, failpoint};
use rustix::{
    fs::{Timespec, Timestamps},
    io::Errno,
};
use std::{fs::File, thread, time::Duration};

/// One attempt to replay a lane.
pub(super) struct ReplayAttempt<'a> {
    lane: &'a Lane,
    label: &'a str,
    mark: LabelMark,
    beat: Option<MonotonicTime>,
}

impl<'a> ReplayAttempt<'a> {
    pub(super) fn new(lane: &'a Lane, label: &'a str, mark: LabelMark) -> Self {
        Self {
            lane,
            label,
            mark,
            beat: None,
        }
    }

    /// 1., for one file. False if it cannot get one (another user's file, say); then its time has
    /// to go on telling.
    pub(super) fn set_apart(
        file: &LoggedFile<'_>,
        target: &TargetFile,
    ) -> Result<bool, ReplayFailure> {
        // Later it gets the time that the program left, which has to be known.
        if file.left.is_none() || !set_times(&target.file, target.accessed, UNFINISHED)? {
            return Ok(false);
        }
        confirmed(&target.file)?;
        failpoint!("replay:step");
        Ok(true)
    }

    /// All that earlier attempts did not finish is set apart. Returns once this one is told apart
    /// from what other programs did last to each of the files: when those were `changed`.
    pub(super) fn begin(&mut self, changed: &[Duration]) {
        self.mark = self.mark.apart();
        let now = now();
        if changed.iter().any(|changed| !is_told_apart(*changed, now)) {
            thread::sleep(APART);
        }
    }

    /// Says, at most once a [`BEAT`], that the replay goes on.
    pub(super) fn beat(&mut self) -> Result<(), ReplayFailure> {
        if self.beat.is_some_and(|last| last.elapsed() < BEAT) {
            return Ok(());
        }
        self.mark = self.mark.replaying(now());
        self.say().map_err(|e| ReplayFailure::Lane(e.to_string()))?;
        self.beat = Some(MonotonicTime::now());
        failpoint!("replay:step");
        Ok(())
    }

    /// A sync failed: the kernel's bytes may never reach the disk.
    pub(super) fn failed(&mut self) {
        self.mark = self.mark.and_failed();
    }

    /// It ends, with something refused.
    ///
    /// # Errors
    /// The pool cannot be told. True if it has to be, because a sync failed.
    pub(super) fn end(&mut self) -> Result<(), (PoolError, bool)> {
        if self.beat.is_some() {
            self.mark = self.mark.ended(now());
        }
        self.say().map_err(|error| (error, self.mark.failed()))
    }

    fn say(&self) -> Result<(), PoolError> {
        self.lane.relabel(&relabelled(self.label, self.mark))
    }
}

fn now() -> Duration {
    Duration::from_nanos(sys::file_time_now())
}

/// Sets a file's times. False if this process may not.
pub(super) fn set_times(
    open: &File,
    accessed: (i64, i64),
    modified: Duration,
) -> Result<bool, Errno> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: accessed.0,
            tv_nsec: accessed.1,
        },
        last_modification: Timespec {
            tv_sec: i64::try_from(modified.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(modified.subsec_nanos()),
        },
    };
    match rustix::fs::futimens(open, &times) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS | Errno::ROFS) => Ok(false),
        Err(errno) => Err(errno),
    }
}
