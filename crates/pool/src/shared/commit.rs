//! Commits of a shared lane; those of any lane share [`commit`](crate::commit).
//!
//! A member commits for all (threads, processes, files). While the owner releases segments it keeps
//! members from committing: what is being written is never another segment by then. When a member
//! dies, the owner frees its place, and the next one does its work again. A medium that fails
//! closes the lane.

use super::{member::Member, owner::SharedLane, state::first};
use crate::{
    commit::{CommitLog, Commits, LogPart},
    error::AppendError,
    format::{
        layout::{PAGE, SEGMENTS_MAX},
        record::Lsn,
    },
    lane::{nap, pack, split},
    media::Media,
};
use std::{hint, io, time::Duration};

/// The owner's wait for a commit of a member.
const PATIENCE: Duration = Duration::from_secs(1);
/// Turns of the busy wait for records before the end to be published.
const SPINS: u32 = 1000;

impl Member {
    /// Log address behind the last record that was appended.
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    pub fn end(&self) -> Result<Lsn, AppendError> {
        let (tail, _, start) = self.open_segment()?;
        match split(tail).1 {
            none if none == first(start) => Ok(start),
            end => Ok(end),
        }
    }

    /// True if an append alone is not durable: see [`commit`](Self::commit).
    #[inline]
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        self.needs_commit
    }

    /// Returns when every record below `lsn` that was appended is durable. At once where an append
    /// is so by itself.
    ///
    /// # Errors
    /// [`AppendError::Closed`]: the medium failed, or the lane has ended; what is not committed may not be recovered.
    #[inline]
    pub fn commit(&self, lsn: Lsn) -> Result<(), AppendError> {
        match !self.needs_commit || self.is_committed(lsn) || crate::fault_enabled!("no-commit") {
            true => Ok(()),
            false => {
                self.core.check_own()?;
                self.commit_below(lsn)
            }
        }
    }

    /// True if all below `lsn` is durable, where an append alone is not: [`commit`](Self::commit)
    /// returns at once. Only of a lane that [needs it](Self::needs_commit).
    #[inline]
    #[must_use]
    pub fn is_committed(&self, lsn: Lsn) -> bool {
        self.commits().reach(lsn)
    }

    /// True if fewer copies are kept of committed records than there are to be: a sync is to be a
    /// real one, too.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.core.media.is_degraded()
    }

    #[inline]
    pub(super) fn commits(&self) -> &Commits {
        &self.state.commits
    }

    /// The number that it commits by: not 0.
    fn committer(&self) -> u32 {
        committer(self.number())
    }

    #[cold]
    fn commit_below(&self, lsn: Lsn) -> Result<(), AppendError> {
        self.commits().commit(self, lsn, self.committer())
    }

    /// Ends the page in which the log ends: the page's end.
    fn fill_page(&self) -> Result<Lsn, AppendError> {
        let writer = self.announce()?;
        loop {
            let open = self.open_segment();
            let (tail, offset, start) = open.inspect_err(|_| writer.free())?;
            let (slot, lsn) = split(tail);
            let end = lsn.next_multiple_of(PAGE);
            // A segment in which nothing is has nothing to be committed.
            if end == lsn || lsn == first(start) {
                writer.free();
                return Ok(lsn / PAGE * PAGE);
            }
            if !self.exchange_tail(tail, pack(slot, end)) {
                continue;
            }
            writer.claim(lsn, end);
            self.void(offset + (lsn - start), lsn, end);
            self.publish(lsn, end, writer)?;
            return Ok(end);
        }
    }

    /// Ends the page in which the log ends, if everything in it is published: the page's end, or
    /// where the last whole page that is published ends.
    fn fill_quiet_page(&self) -> Result<Lsn, AppendError> {
        let (tail, offset, start) = self.open_segment()?;
        let (slot, lsn) = split(tail);
        let (published, end) = (self.published(), lsn.next_multiple_of(PAGE));
        let whole = published / PAGE * PAGE;
        if published != lsn || end == lsn || lsn == first(start) {
            return Ok(whole);
        }
        let writer = self.announce()?;
        if !self.exchange_tail(tail, pack(slot, end)) {
            writer.free();
            return Ok(whole);
        }
        writer.claim(lsn, end);
        self.void(offset + (lsn - start), lsn, end);
        let done = self.state.finished.publish_first_of(&self.mark(), lsn, end);
        writer.free();
        if !done {
            // A member has written nonsense there.
            self.state.close();
            return Err(AppendError::Closed);
        }
        Ok(end)
    }

    fn wait_published(&self, end: Lsn) -> Result<(), AppendError> {
        let mut turns = 0;
        while self.published() < end {
            self.check()?;
            turns += 1;
            match turns < SPINS {
                true => hint::spin_loop(),
                // Its writer has lost its processor, or is dead and will be buried.
                false => nap(end),
            }
        }
        Ok(())
    }

    /// Of each segment what lies below `end`.
    fn parts_below(&self, end: Lsn) -> Vec<LogPart> {
        let geometry = &self.core.superblock.geometry;
        // A segment that starts elsewhere has an empty part: a member has written nonsense there.
        let part = |(offset, start): (u64, Lsn)| {
            let limit = start.saturating_add(self.segment_bytes);
            (start..end.min(limit), offset)
        };
        (0..usize::from(SEGMENTS_MAX))
            .filter_map(|slot| self.state.segment(slot, geometry))
            .map(part)
            .collect()
    }
}

impl CommitLog for Member {
    fn check(&self) -> Result<(), AppendError> {
        match self.state.is_closed() || (self.is_orphan)() {
            true => Err(AppendError::Closed),
            false => Ok(()),
        }
    }

    fn fill(&self) -> Result<(Vec<LogPart>, Lsn), AppendError> {
        let end = self.fill_page()?;
        self.wait_published(end)?;
        Ok((self.parts_below(end), end))
    }

    fn media(&self) -> &dyn Media {
        &*self.core.media
    }

    fn fail(&self, error: &io::Error) {
        // Every member finds the lane closed; the owner is to say why.
        self.state.fail(error.raw_os_error().unwrap_or(libc::EIO));
    }
}

impl SharedLane {
    /// Does `work` while no member commits. If one is at it for longer than [`PATIENCE`] (it may be
    /// stopped), nothing is done: try again later.
    pub(super) fn between_commits(&self, work: impl FnOnce()) {
        if !self.us.needs_commit {
            return work();
        }
        let check = || self.us.check().is_ok();
        let commits = self.us.commits();
        commits.between(self.us.committer(), PATIENCE, check, work);
    }

    /// Notes that all below `head` is released, and committed or not needed any more.
    pub(super) fn committed_to(&self, head: Lsn) {
        self.us.commits().move_to(head);
    }

    /// `member` is dead: if it was committing, it does so no more.
    pub(super) fn free_commit(&self, member: u32) {
        self.us.commits().free(committer(member));
    }

    /// Makes all records durable that are published until now, if that takes a commit and no member
    /// is at one: all of them, or all but the page in which they end while members append. It waits
    /// for no member, which may be stopped.
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    pub fn commit(&self) -> Result<(), AppendError> {
        if !self.us.needs_commit {
            return Ok(());
        }
        self.us.check()?;
        let (us, commits) = (&self.us, self.us.commits());
        commits.commit_alone(us, us.committer(), || {
            let end = us.fill_quiet_page()?;
            Ok((us.parts_below(end), end))
        })
    }
}

/// The number that a member commits by: not 0.
fn committer(member: u32) -> u32 {
    member + 1
}
