//! What commits of a lane and of a shared lane have in common: who leads, who waits, and what is written.
//!
//! On a medium that needs it ([`Media::needs_commit`]), what was appended is durable once it is written back:
//!
//! 1. One thread *leads*: it commits for all that wait.
//! 2. It *fills the page* in which the log ends with a void record, so that no durable page is ever written again, and waits until everything
//!    before that is published.
//! 3. It *writes back* what is not committed yet, whole pages, segment by segment.
//! 4. It moves the mark `committed`, and wakes those that wait. Who came after step 2 leads the next commit.
//!
//! Records state how far behind them the log was *committed* (`record::Header`), since that alone is what a recovery may hold against a gap.

use crate::{
    error::AppendError,
    format::record::{Header, Lsn},
    media::{Media, wait, wake},
};
use std::{
    io::{self, IoSlice},
    ops::Range,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
    time::Duration,
};
use uuid::Uuid;

/// How long a commit of another is waited for before looking whether it is still under way.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// A stretch of a log from the start of a segment on, and where that segment lies in the pool.
pub(crate) type Part = (Range<Lsn>, u64);

/// How far a log is committed and who commits it, wherever that is kept.
#[derive(Clone, Copy)]
pub(crate) struct Commits<'a> {
    /// Everything below is committed, or released.
    pub(crate) committed: &'a AtomicU64,
    /// Who leads a commit, or keeps others from it; 0 for none.
    pub(crate) leader: &'a AtomicU32,
    /// Counts commits that ended; who waits for one sleeps on it.
    pub(crate) ended: &'a AtomicU32,
}

impl Commits<'_> {
    /// True if everything below `lsn` is committed.
    #[inline]
    pub(crate) fn reach(&self, lsn: Lsn) -> bool {
        self.committed.load(Acquire) >= lsn
    }

    /// True if `who` leads from now on; false if another does.
    pub(crate) fn lead(&self, who: u32) -> bool {
        (self.leader.compare_exchange(0, who, SeqCst, Relaxed)).is_ok()
    }

    /// Nobody leads any more.
    pub(crate) fn follow(&self) {
        self.leader.store(0, SeqCst);
        wake(self.ended);
    }

    /// Waits for the end of a commit since `seen` was read of [`ended`](Self::ended), for a moment.
    pub(crate) fn wait(&self, seen: u32) {
        wait(self.ended, seen, LOOK);
    }

    /// Everything below `end` is committed.
    pub(crate) fn move_to(&self, end: Lsn) {
        self.committed.fetch_max(end, Release);
    }

    /// Returns when everything that was appended below `lsn` is committed: by others, or by `who`, which leads with `commit_all` then.
    /// `check` says why there will be no commit any more.
    pub(crate) fn commit(
        &self,
        lsn: Lsn,
        who: u32,
        check: impl Fn() -> Result<(), AppendError>,
        commit_all: impl FnOnce() -> Result<(), AppendError>,
    ) -> Result<(), AppendError> {
        loop {
            if self.reach(lsn) {
                return Ok(());
            }
            let seen = self.ended.load(Acquire);
            check()?;
            if self.lead(who) {
                let done = match self.reach(lsn) {
                    true => Ok(()),
                    false => commit_all(),
                };
                self.follow();
                // What had been appended before is committed, whatever the caller made of its address.
                return done;
            }
            self.wait(seen);
        }
    }

    /// Step 3: writes back what is not committed of `parts`.
    pub(crate) fn write_back(&self, media: &dyn Media, mut parts: Vec<Part>) -> io::Result<()> {
        let committed = self.committed.load(Acquire);
        // In log order: each is on the disk before the next one is begun.
        parts.sort_unstable_by_key(|(part, _)| part.start);
        for (part, offset) in parts {
            let from = committed.max(part.start);
            if from < part.end {
                media.write_back(offset + (from - part.start), part.end - from)?;
            }
        }
        Ok(())
    }
}

/// Makes `[from, to)`, at `offset` in the pool, a void record; `lag` is a record's.
pub(crate) fn write_void(
    media: &dyn Media,
    offset: u64,
    (from, to): (Lsn, Lsn),
    (owner, epoch): (Uuid, u32),
    lag: u32,
) {
    let header = Header::void(from, to - from, epoch, lag);
    media.stream(offset, &[IoSlice::new(&header.encode(owner, &[]))], 0);
    media.fence();
}
