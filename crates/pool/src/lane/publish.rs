//! Publishing: records become visible in log order, in whatever order their writers finish.
//!
//! A window's mark `visible` stands where everything below is durable without a gap. A writer whose
//! record is durable *finishes*:
//!
//! 1. If the mark stands at its record, it moves the mark over it, and over all finished records
//!    behind.
//! 2. Otherwise it notes its record in a [`PublishCell`], and looks at the mark once more (the
//!    record before may have been published meanwhile). Then it waits until the mark is above its
//!    record: for a moment busily, then asleep.
//!
//! The thread that moves the mark over a noted record wakes its writer. So a writer that loses its
//! processor between its reservation and this costs the others no more than the time that it is
//! away. They give their processors up, to it among others, and need none for their records to be
//! published once it is back. Any thread may move the mark over a finished record, since its own
//! writer fenced it; and one that has noted its record moves the mark itself as far as it goes. So
//! no thread depends on another one's moving it.
//!
//! In step 1 there is no barrier between moving the mark and looking for a note: it would wait for
//! the copy to drain, which the fence does not. So a note can be missed by the writer that moves
//! the mark to it. Its own writer then sees the mark while it waits busily, much later than a store
//! takes to be seen; and if ever it should not, its sleep ends by itself ([`SLEEP`]). A note of the
//! owner's of a shared lane, about what the dead had reserved, has no such writer: the owner looks
//! again itself.
//!
//! All state is words without addresses of memory in them, so several processes can share it
//! (`SharedLane`). A process may write nonsense there: addresses wrap rather than overflow.

use crate::{
    format::record::Lsn,
    media::{SegmentWindow, wait, wake_one},
    persist::LINE,
    steps,
};
use std::{
    hint,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::Duration,
};

/// Cells: more than there are writers at a time, mostly. A writer that finds its cell taken waits
/// for its turn instead.
const CELLS: usize = 256;

/// Turns of the busy wait for earlier writers before a record is noted.
const SPINS_BEFORE_NOTE: u32 = 16;

/// Turns of the busy wait for earlier writers after that: some microseconds, as long as a large
/// copy takes to a writer that has a processor.
const SPINS: u32 = 128;

/// Sleep of a writer that is not woken before it looks itself.
const SLEEP: Duration = Duration::from_millis(1);

/// Sleep of a writer without a cell before it looks again.
const NAP: Duration = Duration::from_micros(50);

/// Bits of a note that hold the record's size in lines.
const SIZE_BITS: u32 = 20;

const _: () = assert!(crate::format::layout::SEGMENT_MAX / (LINE as u64) <= 1 << SIZE_BITS);

/// The address up to which everything is published.
pub(crate) trait PublishMark {
    /// The mark's place.
    fn at(&self) -> Lsn;
    /// Moves it, by the only one who may.
    fn set(&self, to: Lsn);
    /// Moves it, if it stands at `from`. Sequentially consistent.
    fn move_from(&self, from: Lsn, to: Lsn) -> bool;

    /// True if it may stand still for ever: then writers behind it give up.
    fn is_abandoned(&self) -> bool {
        false
    }
}

impl PublishMark for SegmentWindow {
    #[inline]
    fn at(&self) -> Lsn {
        self.visible()
    }

    #[inline]
    fn set(&self, to: Lsn) {
        self.publish(to);
    }

    #[inline]
    fn move_from(&self, from: Lsn, to: Lsn) -> bool {
        self.publish_from(from, to)
    }
}

/// A writer's note that the record at some address is finished.
#[derive(Default)]
#[repr(C, align(16))]
struct PublishCell {
    /// The note, see [`note`]; 0 if the cell is free.
    record: AtomicU64,
    /// [`ASLEEP`] if the writer is to be woken.
    sleep: AtomicU32,
}

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The finished records of a lane that are not published.
#[repr(transparent)]
pub(crate) struct FinishedRecords([PublishCell; CELLS]);

impl FinishedRecords {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| PublishCell::default()))
    }

    /// Starts, at or above `from`, of records that are noted as finished.
    pub(crate) fn noted(&self, from: Lsn) -> impl Iterator<Item = Lsn> {
        self.0.iter().filter_map(move |cell| {
            let ahead = lines_ahead(from, cell.record.load(SeqCst))?;
            Some(from.saturating_add(ahead.saturating_mul(LINE as u64)))
        })
    }

    /// True if the record at `lsn` is noted as finished.
    pub(crate) fn end(&self, lsn: Lsn) -> Option<Lsn> {
        end_of(self.cell(lsn).record.load(SeqCst), lsn)
    }

    /// Notes that `[lsn, end)`, which a dead writer had reserved, is durable; or publishes it, if
    /// its cell is taken and the mark stands there. False if neither can be.
    pub(crate) fn note_dead(&self, mark: &impl PublishMark, lsn: Lsn, end: Lsn) -> bool {
        let noted = note(lsn, end);
        (self.cell(lsn).record)
            .compare_exchange(0, noted, SeqCst, SeqCst)
            .is_ok()
            || mark.move_from(lsn, end)
    }

    /// Frees the cells of records below `mark`, which are published: their writers are dead, or do
    /// not miss the note.
    pub(crate) fn forget_below(&self, mark: Lsn) {
        for cell in &self.0 {
            let noted = cell.record.load(SeqCst);
            if noted != 0 && lines_ahead(mark, noted).is_none() {
                let _ = cell.record.compare_exchange(noted, 0, SeqCst, SeqCst);
            }
        }
    }

    /// Publishes the durable record `[lsn, end)` once all before it are published, and returns
    /// then. False if the mark is abandoned and it is not.
    #[inline]
    pub(crate) fn publish(&self, mark: &impl PublishMark, lsn: Lsn, end: Lsn) -> bool {
        if mark.at() == lsn {
            self.publish_first(mark, end);
            true
        } else {
            self.finish_early(mark, lsn, end)
        }
    }

    /// Publishes the durable record `[lsn, end)`, which the mark is known to stand at: false,
    /// without waiting, if it does not.
    pub(crate) fn publish_first_of(&self, mark: &impl PublishMark, lsn: Lsn, end: Lsn) -> bool {
        let moved = mark.move_from(lsn, end);
        self.advance(mark);
        moved
    }

    /// Publishes the record up to `end`, which the mark stands at and of which there is no note, so
    /// that no other thread moves the mark.
    #[inline]
    fn publish_first(&self, mark: &impl PublishMark, end: Lsn) {
        mark.set(end);
        crate::failpoint!("publish:moved");
        if self.cell(end).record.load(Relaxed) != 0 {
            self.advance(mark);
        }
    }

    /// The same for a record before which some are not published.
    #[cold]
    fn finish_early(&self, mark: &impl PublishMark, lsn: Lsn, end: Lsn) -> bool {
        // An earlier writer that has a processor is done in less than a note takes to get from one
        // processor to another.
        if spin(SPINS_BEFORE_NOTE, || mark.at() == lsn) {
            self.publish_first(mark, end);
            return true;
        }
        let cell = self.cell(lsn);
        crate::failpoint!("publish:early");
        if (cell.record)
            .compare_exchange(0, note(lsn, end), SeqCst, Relaxed)
            .is_err()
        {
            let first = self.wait_for_earlier(mark, lsn);
            if first {
                self.publish_first(mark, end);
            }
            return first;
        }
        crate::failpoint!("publish:noted");
        let published = || {
            self.advance(mark);
            mark.at() >= end
        };
        if !spin(SPINS, published) {
            cell.sleep_until(|| published() || mark.is_abandoned());
        }
        if mark.at() < end {
            // The note stays: the record is durable.
            return false;
        }
        // By exchange: the owner of a shared lane may have freed it, and it may be another
        // writer's.
        let _ = (cell.record).compare_exchange(note(lsn, end), 0, SeqCst, Relaxed);
        true
    }

    /// Waits until everything below `lsn` is published: for once a segment, and for who has no
    /// cell. False if the mark is abandoned.
    pub(super) fn wait_for_earlier(&self, mark: &impl PublishMark, lsn: Lsn) -> bool {
        if spin(SPINS, || mark.at() == lsn) {
            return true;
        }
        while mark.at() != lsn {
            if mark.is_abandoned() {
                return false;
            }
            nap(lsn);
            // A note before it may be of a process that died, and missed by the one that moved the
            // mark to it.
            self.advance(mark);
        }
        true
    }

    /// Moves the mark over all finished records that it stands at, and wakes their writers.
    #[inline]
    pub(crate) fn advance(&self, mark: &impl PublishMark) {
        loop {
            let at = mark.at();
            let cell = self.cell(at);
            let Some(end) = end_of(cell.record.load(SeqCst), at) else {
                return;
            };
            crate::failpoint!("publish:found");
            if mark.move_from(at, end) {
                crate::failpoint!("publish:advanced");
                cell.wake();
            }
        }
    }

    #[inline]
    fn cell(&self, lsn: Lsn) -> &PublishCell {
        // Spreads addresses that are a power of two apart.
        let hash = (lsn / LINE as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[(hash >> 32) as usize % CELLS]
    }
}

impl PublishCell {
    /// Waits, without a processor, until `done`; the thread that makes it so calls
    /// [`wake`](Self::wake) then.
    fn sleep_until(&self, done: impl Fn() -> bool) {
        loop {
            // Sequentially consistent, as moving the mark over a note is: either `wake` finds us
            // asleep, or we find it done.
            self.sleep.swap(ASLEEP, SeqCst);
            crate::failpoint!("publish:asleep");
            if done() {
                break;
            }
            // Woken, or not asleep any more, or interrupted, or at the end of it: in any case it is
            // looked at again.
            wait(&self.sleep, ASLEEP, SLEEP);
        }
        self.sleep.store(AWAKE, Relaxed);
    }

    /// Wakes the writer, if it is asleep. It may be another one by now: that one looks and goes to
    /// sleep again.
    #[inline]
    fn wake(&self) {
        if self.sleep.load(SeqCst) == ASLEEP && self.sleep.swap(AWAKE, SeqCst) == ASLEEP {
            wake_one(&self.sleep);
        }
    }
}

/// Waits for a moment, without a processor, for the mark to come to `lsn`.
pub(crate) fn nap(lsn: Lsn) {
    if !steps::wait_for_mark(lsn) {
        thread::sleep(NAP);
    }
}

/// Waits busily for a moment. False if it is still not `done`.
#[inline]
fn spin(turns: u32, done: impl Fn() -> bool) -> bool {
    for _ in 0..turns {
        if done() {
            return true;
        }
        hint::spin_loop();
    }
    done()
}

/// A cell's word for the finished record `[lsn, end)`. Not 0, since no record is empty. The
/// address's highest bits are missing: a note is cleared by its writer, so two records that have
/// the rest in common are never there at the same time.
#[inline]
fn note(lsn: Lsn, end: Lsn) -> u64 {
    ((lsn / LINE as u64) << SIZE_BITS) | (end.wrapping_sub(lsn) / LINE as u64)
}

/// Lines from `from` on to the record that is `noted`, if there is one and it is not below. The
/// nearer way round counts: the address's highest bits are missing.
#[inline]
fn lines_ahead(from: Lsn, noted: u64) -> Option<u64> {
    const ROUND: u64 = 1 << (64 - SIZE_BITS);
    let ahead = (noted >> SIZE_BITS).wrapping_sub(from / LINE as u64) % ROUND;
    (noted != 0 && ahead < ROUND / 2).then_some(ahead)
}

/// The end of the record at `lsn`, if `noted` is of that one.
#[inline]
fn end_of(noted: u64, lsn: Lsn) -> Option<Lsn> {
    let lines = noted & ((1 << SIZE_BITS) - 1);
    let end = lsn.wrapping_add(lines * LINE as u64);
    (lines > 0 && noted == note(lsn, end)).then_some(end)
}

#[cfg(test)]
mod tests;
