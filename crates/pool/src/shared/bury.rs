//! Burying a member: what it had reserved when it died becomes void, and everything behind goes on.
//!
//! Let `T` be the tail when the owner looks. Every line below `T` was reserved by a writer that had announced itself before. The owner reads `T`
//! first, then every writer's cell, then the mark. A living writer that has lines below `T` then either claims them, or was done with them when its
//! cell was read, so that the mark, read later, is above them. One that has announced itself and claims nothing yet is waited for.
//! So lines below `T` and above the mark that no living writer claims were a dead one's, and whoever could have written there is gone.

use super::{
    owner::SharedLane,
    state::{Seen, Writer, first},
};
use crate::{lane::split, record::Lsn};
use std::{
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

/// How long a living writer may have announced itself without claiming anything, before the owner gives up for now.
const RESOLVE: Duration = Duration::from_millis(5);

impl SharedLane {
    /// Member `member` is dead, all its threads: what it reserved and did not publish becomes void. False if that cannot be told from what a living
    /// member is about to claim (it may be stopped): call again.
    #[must_use]
    pub fn bury(&self, member: u32) -> bool {
        let mut control = self.control.lock();
        if !control.dead.contains(&member) {
            control.dead.push(member);
        }
        let Some(holes) = self.holes(&control.dead) else {
            return false;
        };
        let state = self.state();
        let segments = control.segments();
        let filled = (holes.iter()).all(|hole| self.fill(&segments, *hole));
        state.finished.advance(&state.mark);
        state.finished.forget_below(self.us.published());
        if !filled {
            return false;
        }
        for writer in state.writers() {
            let seen = writer.seen();
            if control.dead.contains(&seen.member()) {
                writer.free_dead(seen);
            }
        }
        // A number is given once, so the dead need not be remembered.
        control.dead.clear();
        drop(control);
        self.prepare();
        true
    }

    /// Lines below the tail that no living writer will publish; none if that cannot be told yet.
    fn holes(&self, dead: &[u32]) -> Option<Vec<(Lsn, Lsn)>> {
        let state = self.state();
        let (_, tail) = split(state.tail.0.load(SeqCst));
        let deadline = Instant::now() + RESOLVE;
        let mut taken: Vec<(Lsn, Lsn)> = Vec::new();
        for writer in state.writers() {
            let seen = resolved(writer, dead, deadline)?;
            let lives = !dead.contains(&seen.member());
            if seen.is_claimed() && lives {
                // If it is done with them by now, the mark is above them.
                taken.extend(writer.claimed(seen));
            }
        }
        let mark = self.us.published();
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

    /// Makes the hole void and finished, segment by segment. False if it has to wait for what precedes it.
    fn fill(&self, segments: &[(u64, Lsn)], (from, to): (Lsn, Lsn)) -> bool {
        let state = self.state();
        let bytes = self.us.core.superblock.geometry.segment_bytes;
        segments.iter().all(|(offset, start)| {
            let header = first(*start);
            // It is there: the segment was prepared.
            let has_header = from > *start
                || to < header
                || state.finished.note_dead(&state.mark, *start, header);
            let (first, end) = (from.max(header), to.min(start + bytes));
            if first >= end {
                return has_header;
            }
            self.us.void(offset + (first - start), first, end);
            has_header && state.finished.note_dead(&state.mark, first, end)
        })
    }
}

/// The cell once it does not announce what it did when the owner first looked; none if it still does at the `deadline`. What is announced later reserves
/// only lines that are above the tail that the owner read.
fn resolved(writer: &Writer, dead: &[u32], deadline: Instant) -> Option<Seen> {
    let first = writer.seen();
    let mut seen = first;
    while seen == first && seen.is_announced() && !dead.contains(&seen.member()) {
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::yield_now();
        seen = writer.seen();
    }
    Some(seen)
}
