//! Burying a member: records that it had reserved when it died become void, and everything behind
//! goes on.
//!
//! Let `T` be the tail when the owner looks. Every line below `T` was reserved by a writer that had
//! announced itself before. The owner reads `T` first, then every writer's cell, then the mark. A
//! living writer that has lines below `T` then either claims them, or was done with them when its
//! cell was read, so that the mark, read later, is above them. One that has announced itself and
//! claims nothing yet is waited for. So lines below `T` and above the mark that no living writer
//! claims were a dead one's, and no writer that could write there is left.

use super::{
    control::SharedControl,
    owner::{MOMENT, SharedLane, is_over},
    state::{SeenCell, WriterCell, first},
};
use crate::MonotonicTime;
use crate::{format::record::Lsn, lane::split, persist::LINE};
use std::sync::atomic::Ordering::SeqCst;

impl SharedLane {
    /// Member `member` is dead, all its threads: what it reserved and did not publish becomes void.
    /// False if that cannot be told from what a living member is about to claim (it may be
    /// stopped): call again. After true its number may be given to another process.
    ///
    /// A member is dead when nothing can run any more that appends by its number. A process that
    /// executes another program is another member then, and so is a forked child; but not one that
    /// still shares its memory (`vfork`), which may outlast it.
    #[must_use]
    pub fn bury(&self, member: u32) -> bool {
        self.free_commit(member);
        let mut control = self.control.lock();
        if !control.dead.contains(&member) {
            control.dead.push(member);
        }
        if !self.fill_holes(&mut control) {
            return false;
        }
        for writer in self.state().writers() {
            let seen = writer.seen();
            if control.dead.contains(&seen.member()) {
                writer.free_dead(seen);
            }
        }
        // Nothing in the lane has their numbers now.
        control.dead.clear();
        drop(control);
        self.prepare();
        true
    }

    /// False if the lane is closed; it is from now on if a member has written nonsense to the
    /// memory that all share.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let control = self.control.lock();
        self.sane_mark(&control).is_some() && !self.state().is_closed()
    }

    /// Makes void what no living member has reserved. False if that cannot be told yet, or has to
    /// wait.
    pub(super) fn fill_holes(&self, control: &mut SharedControl) -> bool {
        if self.sane_mark(control).is_none() {
            return true;
        }
        let Some(holes) = self.holes(&control.dead) else {
            return false;
        };
        let state = self.state();
        let segments = control.segments();
        crate::failpoint!("bury:holes");
        if !holes.is_empty() {
            crate::failpoint!("bury:found");
        }
        let filled = (holes.iter()).all(|hole| self.fill(&segments, *hole));
        crate::failpoint!("bury:filled");
        state.finished.advance(state);
        crate::failpoint!("bury:advanced");
        if !holes.is_empty() {
            crate::failpoint!("bury:gone");
        }
        state.finished.forget_below(self.us.published());
        control.has_holes = !filled;
        filled
    }

    /// The mark, if it, the tail and the prepared segment are where the owner's own segments are.
    /// Otherwise the lane can do no more than end, and what waits for the mark waits no longer.
    pub(super) fn sane_mark(&self, control: &SharedControl) -> Option<Lsn> {
        let mark = self.us.published();
        // Read after the mark, which is never above it.
        let (_, tail) = split(self.state().tail.0.load(SeqCst));
        let bytes = self.us.core.superblock.geometry.segment_bytes;
        let is_sane = match (control.order.front(), control.order.back()) {
            (Some((_, front)), Some((_, back))) => {
                mark.is_multiple_of(LINE as u64)
                    && (first(*front)..=tail).contains(&mark)
                    && tail <= back + bytes
                    && self.state().next.load(SeqCst) == control.next
            }
            _ => false,
        };
        if !is_sane {
            self.state().abandon();
        }
        is_sane.then_some(mark)
    }

    /// Lines below the tail that no living writer will publish; none if that cannot be told yet.
    fn holes(&self, dead: &[u32]) -> Option<Vec<(Lsn, Lsn)>> {
        let state = self.state();
        let (_, tail) = split(state.tail.0.load(SeqCst));
        crate::failpoint!("bury:tail");
        let deadline = MonotonicTime::now() + MOMENT;
        let mut taken: Vec<(Lsn, Lsn)> = Vec::new();
        for writer in state.writers() {
            let seen = resolved(writer, dead, deadline)?;
            let lives = !dead.contains(&seen.member());
            if seen.is_claimed() && lives {
                // If it is done with them by now, the mark is above them.
                taken.extend(writer.claimed(seen).map(whole_lines));
            }
        }
        crate::failpoint!("bury:cells");
        let mark = self.us.published();
        crate::failpoint!("bury:mark");
        // What a dead writer has finished is durable, and is published in its turn.
        let finished = state.finished.noted(mark);
        taken.extend(finished.filter_map(|from| Some((from, state.finished.end(from)?))));
        taken.sort_unstable();
        let mut holes = Vec::new();
        let mut at = mark;
        for (from, to) in taken {
            if from >= tail {
                break;
            }
            if from > at {
                holes.push((at, from));
            }
            at = at.max(to);
        }
        if at < tail {
            holes.push((at, tail));
        }
        Some(holes)
    }

    /// Makes the hole void and finished, segment by segment. False if it has to wait for what
    /// precedes it.
    pub(super) fn fill(&self, segments: &[(u64, Lsn)], (from, to): (Lsn, Lsn)) -> bool {
        let state = self.state();
        let bytes = self.us.core.superblock.geometry.segment_bytes;
        segments.iter().all(|(offset, start)| {
            let header = first(*start);
            // It is there: the segment was prepared.
            let has_header =
                from > *start || to < header || state.finished.note_dead(state, *start, header);
            let (first, end) = (from.max(header), to.min(start + bytes));
            if first >= end {
                return has_header;
            }
            self.us.void(offset + (first - start), first, end);
            crate::failpoint!("bury:voided");
            has_header && state.finished.note_dead(state, first, end)
        })
    }
}

/// The cell once it does not announce what it did when the owner first looked; none if it still
/// does at the `deadline`. What is announced later reserves only lines that are above the tail that
/// the owner read.
fn resolved(writer: &WriterCell, dead: &[u32], deadline: MonotonicTime) -> Option<SeenCell> {
    let first = writer.seen();
    let mut seen = first;
    while seen == first && seen.is_announced() && !dead.contains(&seen.member()) {
        if is_over(deadline) {
            return None;
        }
        std::thread::yield_now();
        seen = writer.seen();
    }
    Some(seen)
}

/// The lines that a claim touches. A member may have written nonsense there.
fn whole_lines((from, to): (Lsn, Lsn)) -> (Lsn, Lsn) {
    let line = LINE as u64;
    let end = to
        .checked_next_multiple_of(line)
        .unwrap_or(Lsn::MAX - line + 1);
    (from - from % line, end)
}
