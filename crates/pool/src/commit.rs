//! Commits of a lane and of a shared lane: the committer, the waiters, and the bytes that are
//! written.
//!
//! On a medium that needs it ([`Media::needs_commit`]), what was appended is durable once it is
//! written back:
//!
//! 1. One thread *begins* a commit for all that wait, unless [`IN_FLIGHT`] are being written
//!    already.
//! 2. It *fills the page* in which the log ends with a void record, so that no durable page is ever
//!    written again, and waits until everything before that is published. From here on another may
//!    begin the next commit.
//! 3. It *writes back* what no commit before it does, whole pages, segment by segment.
//! 4. It waits until everything before is committed, moves the mark `committed`, and wakes those
//!    that wait: commits are acknowledged in order.
//!
//! If a process dies in the middle of a commit, the next one that begins writes again what is not
//! committed.
//!
//! Records state how far behind them the log was *committed* (`record::RecordHeader`), since that
//! alone is what a recovery may hold against a gap.

use crate::{
    MonotonicTime,
    error::AppendError,
    format::record::{Lsn, RecordHeader},
    media::{Media, OwnLine, wait, wake},
    steps,
};
use std::{
    hint,
    io::{self, IoSlice},
    ops::Range,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
    time::Duration,
};
use uuid::Uuid;

/// Wait for another's commit before looking if it is still under way.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Commits that are being written at a time. A third brings no more.
const IN_FLIGHT: usize = 2;
/// Turns of the busy wait for another that begins a commit: what it does then takes no system call.
const SPINS: u32 = 200;

/// A stretch of a log from the start of a segment on, and where that segment lies in the pool.
pub(crate) type LogPart = (Range<Lsn>, u64);

/// A log's side of a commit.
pub(crate) trait CommitLog {
    /// Fails if nothing is committed any more, with the reason.
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    fn check(&self) -> Result<(), AppendError>;

    /// Step 2: the parts of the log to be committed, committed parts of its segments included, and
    /// their end.
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    fn fill(&self) -> Result<(Vec<LogPart>, Lsn), AppendError>;

    /// The medium that the log lies on.
    fn media(&self) -> &dyn Media;

    /// The medium failed: nothing is committed from now on.
    fn fail(&self, error: &io::Error);
}

/// A log's committed address, and its committer: atomics only, so that processes may share it.
#[repr(C)]
pub(crate) struct Commits {
    /// Everything below is committed, or released.
    committed: OwnLine<AtomicU64>,
    /// Everything below is committed, or written by one of `writers`. Moved by who begins.
    started: AtomicU64,
    /// The committer that begins, or keeps others from it; 0 for none.
    beginner: AtomicU32,
    /// Counts commits that ended; who waits for one sleeps on it.
    ended: AtomicU32,
    /// The committers that write; 0 for none.
    writers: [AtomicU32; IN_FLIGHT],
    /// Not 0 after one of them died: not all below `started` is written by the others.
    again: AtomicU32,
}

impl Commits {
    /// Of a log of which everything below `start` is committed.
    pub(crate) fn new(start: Lsn) -> Self {
        Self {
            committed: OwnLine(AtomicU64::new(start)),
            started: AtomicU64::new(start),
            beginner: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            writers: Default::default(),
            again: AtomicU32::new(0),
        }
    }

    /// The same, for one that lies in memory of zeros.
    pub(crate) fn start_at(&self, start: Lsn) {
        self.started.store(start, Relaxed);
        self.committed.0.store(start, Release);
    }

    /// Everything below is committed.
    #[inline]
    pub(crate) fn committed(&self) -> Lsn {
        self.committed.0.load(Acquire)
    }

    /// True if everything below `lsn` is committed.
    #[inline]
    pub(crate) fn reach(&self, lsn: Lsn) -> bool {
        self.committed() >= lsn
    }

    /// Bytes between the committed address and `lsn`.
    #[inline]
    pub(crate) fn behind(&self, lsn: Lsn) -> u64 {
        lsn.saturating_sub(self.committed())
    }

    /// Everything below `end` is committed.
    pub(crate) fn move_to(&self, end: Lsn) {
        self.committed.0.fetch_max(end, SeqCst);
    }

    /// Returns when everything that was appended below `lsn` is committed: by others, or by `who`
    /// (not 0).
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    pub(crate) fn commit(
        &self,
        log: &impl CommitLog,
        lsn: Lsn,
        who: u32,
    ) -> Result<(), AppendError> {
        loop {
            let seen = self.ended.load(SeqCst);
            if self.reach(lsn) {
                return Ok(());
            }
            log.check()?;
            let is_to_begin = self.is_to_begin(lsn);
            crate::failpoint!("shared:commit-looked");
            if is_to_begin && self.begin(who) {
                crate::failpoint!("shared:commit-begun");
                // Another may have done it meanwhile.
                if self.reach(lsn) || !self.is_to_begin(lsn) {
                    self.not_begun();
                    continue;
                }
                // What had been appended before is committed then, whatever the caller made of its
                // address.
                if self.lead(log, who, || log.fill())? {
                    return Ok(());
                }
            }
            wait(&self.ended, seen, LOOK);
        }
    }

    /// Commits the parts that `fill` gives, unless others commit: none is waited for.
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    pub(crate) fn commit_alone(
        &self,
        log: &impl CommitLog,
        who: u32,
        fill: impl FnOnce() -> Result<(Vec<LogPart>, Lsn), AppendError>,
    ) -> Result<(), AppendError> {
        if !self.begin(who) {
            return Ok(());
        }
        if self.is_written() {
            self.not_begun();
            return Ok(());
        }
        self.lead(log, who, fill).map(drop)
    }

    /// Does `work` while none is committing. If one is at it for longer than `patience` (it may be
    /// stopped), or `check` says that there will be no commit any more, nothing is done.
    pub(crate) fn between(
        &self,
        who: u32,
        patience: Duration,
        check: impl Fn() -> bool,
        work: impl FnOnce(),
    ) {
        let since = MonotonicTime::now();
        let is_time = || (steps::is_scheduled() || since.elapsed() < patience) && check();
        while is_time() {
            let seen = self.ended.load(SeqCst);
            if !self.begin(who) {
                wait(&self.ended, seen, LOOK);
                continue;
            }
            let mut seen = self.ended.load(SeqCst);
            while self.is_written() && is_time() {
                wait(&self.ended, seen, LOOK);
                seen = self.ended.load(SeqCst);
            }
            if !self.is_written() && check() {
                work();
            }
            self.begun();
            return wake(&self.ended);
        }
    }

    /// `who` is dead, and commits nothing any more.
    pub(crate) fn free(&self, who: u32) {
        let free = |place: &AtomicU32| place.compare_exchange(who, 0, SeqCst, Relaxed).is_ok();
        let mut freed = false;
        for writer in &self.writers {
            if writer.load(SeqCst) == who {
                // Before another finds the place free.
                self.again.store(1, SeqCst);
                freed |= free(writer);
            }
        }
        freed |= free(&self.beginner);
        if freed {
            wake(&self.ended);
        }
    }

    /// True unless what is below `lsn` is being written.
    fn is_to_begin(&self, lsn: Lsn) -> bool {
        self.started.load(SeqCst) < lsn || self.again.load(SeqCst) != 0 || !self.is_written()
    }

    fn is_written(&self) -> bool {
        (self.writers.iter()).any(|writer| writer.load(SeqCst) != 0)
    }

    /// True if `who` begins a commit from now on; false if another does, for longer than it takes.
    fn begin(&self, who: u32) -> bool {
        (0..SPINS).any(|turn| {
            if turn > 0 {
                hint::spin_loop();
            }
            self.beginner.load(Relaxed) == 0
                && (self.beginner.compare_exchange(0, who, SeqCst, Relaxed)).is_ok()
        })
    }

    /// The beginner has begun: another may.
    fn begun(&self) {
        self.beginner.store(0, SeqCst);
    }

    /// The beginner does not begin, after all. Another that could not begin meanwhile waits for a
    /// commit to end: if there is none, it is to look again.
    fn not_begun(&self) {
        self.begun();
        if !self.is_written() {
            wake(&self.ended);
        }
    }

    /// Steps 2 to 4 by `who`, which begins. False if it has to be done again.
    fn lead(
        &self,
        log: &impl CommitLog,
        who: u32,
        fill: impl FnOnce() -> Result<(Vec<LogPart>, Lsn), AppendError>,
    ) -> Result<bool, AppendError> {
        let place = (self.writers.iter())
            .find(|place| (place.compare_exchange(0, who, SeqCst, Relaxed)).is_ok());
        let Some(place) = place else {
            self.not_begun();
            return Ok(false);
        };
        crate::failpoint!("shared:commit-led");
        let filled = fill();
        let died = self.again.swap(0, SeqCst) != 0;
        // Of what is not committed nothing is left to those that write, if none does.
        let is_alone = (self.writers.iter())
            .all(|other| std::ptr::eq(other, place) || other.load(SeqCst) == 0);
        let committed = self.committed();
        let from = match died || is_alone {
            true => committed,
            false => self.started.load(SeqCst).max(committed),
        };
        if let Ok((_, end)) = &filled {
            self.started.store(from.max(*end), SeqCst);
        }
        crate::failpoint!("shared:commit-filled");
        self.begun();
        let done = filled.and_then(|(parts, end)| {
            if let Err(error) = write_back(log.media(), parts, from) {
                log.fail(&error);
                return Err(AppendError::Closed);
            }
            crate::failpoint!("shared:commit-written");
            self.acknowledge(log, from, end)
        });
        crate::failpoint!("shared:commit-done");
        place.store(0, SeqCst);
        crate::failpoint!("shared:commit-left");
        wake(&self.ended);
        done
    }

    /// Step 4: what is below `end` is committed with everything below `from`. False if who had to
    /// commit that is dead.
    fn acknowledge(&self, log: &impl CommitLog, from: Lsn, end: Lsn) -> Result<bool, AppendError> {
        loop {
            let seen = self.ended.load(SeqCst);
            if self.reach(from) {
                crate::failpoint!("shared:commit-reached");
                self.move_to(end);
                return Ok(true);
            }
            if self.again.load(SeqCst) != 0 {
                return Ok(false);
            }
            log.check()?;
            wait(&self.ended, seen, LOOK);
        }
    }
}

/// Step 3: writes back what of `parts` is not below `from`.
fn write_back(media: &dyn Media, mut parts: Vec<LogPart>, from: Lsn) -> io::Result<()> {
    // In log order: each is on the disk before the next one is begun.
    parts.sort_unstable_by_key(|(part, _)| part.start);
    for (part, offset) in parts {
        let from = from.max(part.start);
        if from < part.end {
            media.commit_pages(offset + (from - part.start), part.end - from)?;
        }
    }
    Ok(())
}

/// Makes `[from, to)`, at `offset` in the pool, a void record; `lag` is a record's.
pub(crate) fn write_void(
    media: &dyn Media,
    offset: u64,
    (from, to): (Lsn, Lsn),
    (owner, epoch): (Uuid, u32),
    lag: u32,
) {
    let header = RecordHeader::void(from, to - from, epoch, lag);
    media.store(offset, &[IoSlice::new(&header.encode(owner, &[]))]);
    media.fence();
}
