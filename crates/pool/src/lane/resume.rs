//! Starting a session on a lane, and ending the lane.

use super::{
    Crowding, FinishedRecords, Lane, LaneControl, NO_SEGMENT, Recovered, SlotState, WrittenAhead,
};
use crate::{
    commit::Commits,
    core::Core,
    error::PoolError,
    format::{
        layout::PAGE,
        record::{HEADER, KIND_SEAL, RecordHeader, record_bytes},
        segment::next_start,
        table::{LaneEntry, LaneState, settle},
    },
    media::{OwnLine, SegmentWindow},
    persist::LINE,
};
use parking_lot::{Condvar, Mutex};
use std::{
    io::IoSlice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};
use uuid::Uuid;

impl Lane {
    /// The lane after recovery: its log sealed where it ended, its segments with the drain, and
    /// a fresh segment open if there is a free one.
    ///
    /// # Errors
    /// A disk that cannot be written.
    pub(crate) fn resume(
        core: Arc<Core>,
        number: u32,
        entry: LaneEntry,
        epoch: u32,
        windows: Vec<Arc<SegmentWindow>>,
        recovered: &mut Recovered,
    ) -> Result<Self, PoolError> {
        let owner = entry.state.map_or_else(Uuid::nil, |s| s.owner);
        let mut states = vec![SlotState::Free; windows.len()];
        // What a process stored and did not live to fence is read now and may be gone after a power
        // cut. The log goes on behind it, so it is made durable first. Only the last two segments
        // can hold any: a shared lane's owner opens none before all that precedes the open one is
        // published, and others none before the open one is.
        for last in recovered.segments.iter().rev().take(2) {
            let media = &*core.media;
            settle(
                media,
                windows[last.slot].offset(),
                last.end - last.header.start,
            );
        }
        end_log(&core, (owner, epoch), &windows, recovered)?;
        for segment in &recovered.segments {
            states[segment.slot] = SlotState::Sealed(segment.end);
        }
        let lane = Self {
            lane: number,
            owner,
            epoch,
            segment_bytes: core.superblock.geometry.segment_bytes,
            slots: windows.into(),
            tail: OwnLine(AtomicU64::new(NO_SEGMENT)),
            finished: FinishedRecords::new(),
            // All that was recovered is on the disk.
            commits: (core.media.needs_commit())
                .then(|| Box::new(Commits::new(recovered.next_start()))),
            crowding: Crowding::default(),
            control: Mutex::new(LaneControl {
                entry,
                order: recovered.segments.iter().map(|s| s.slot).collect(),
                next_start: recovered.next_start(),
                ahead: vec![WrittenAhead::default(); states.len()],
                stalled: None,
                failure: None,
                closed: false,
                states,
            }),
            freed: Condvar::new(),
            sealed: Condvar::new(),
            core,
        };
        lane.open_free(&mut lane.control.lock());
        Ok(lane)
    }

    /// Changes the label, durably. Whole words of eight bytes change at once; a crash may leave
    /// some of them changed.
    ///
    /// # Errors
    /// The medium failed, so that a recovery may find the label as it was.
    pub fn relabel(&self, label: &str) -> Result<(), PoolError> {
        self.core.check_process()?;
        self.core.tables().write_label(self.lane, label);
        self.core.check()
    }

    /// Ends the session and gives the lane back to the pool. False if its log is not drained, or
    /// the medium [failed](Self::failure): then the lane stays its owner's, with everything in it.
    #[must_use]
    pub fn remove(self) -> bool {
        self.give_back()
    }

    /// As [`remove`](Self::remove), while others may hold this lane still: they read nothing in it
    /// any more, and appends are refused. The caller has ended all appends. Its segments are free
    /// for others once it is dropped.
    #[must_use]
    pub fn give_back(&self) -> bool {
        if self.core.check_own().is_err() {
            return false;
        }
        let mut control = self.control.lock();
        let Some(state) = control.entry.state.filter(|_| !self.used(&control)) else {
            return false;
        };
        let freed = LaneState {
            taken: false,
            head: control.next_start,
            segments: 0,
            ..state
        };
        self.tail.0.store(NO_SEGMENT, SeqCst);
        for slot in &self.slots {
            slot.close();
        }
        // No segment is open any more: a thread that sealed one would wait for what is published in
        // it.
        control.states.fill(SlotState::Free);
        control.order.clear();
        control.closed = true;
        self.core
            .tables()
            .write_lane(self.lane, &mut control.entry, freed);
        self.freed.notify_all();
        self.sealed.notify_all();
        match self.core.media.check() {
            Ok(()) => true,
            Err(error) => {
                self.end_by(&mut control, &error);
                false
            }
        }
    }

    /// True if the log holds a record that is not drained.
    fn used(&self, control: &LaneControl) -> bool {
        control
            .order
            .iter()
            .any(|&slot| match control.states[slot] {
                SlotState::Open => self.open_has_records(slot),
                _ => true,
            })
    }
}

/// The old end of the log is sealed rather than continued: what an earlier session left
/// unacknowledged behind it must never line up with records of this one. On a disk, too, when this
/// returns.
fn end_log(
    core: &Core,
    (owner, epoch): (Uuid, u32),
    windows: &[Arc<SegmentWindow>],
    recovered: &mut Recovered,
) -> Result<(), PoolError> {
    let Some(last) = recovered.segments.last_mut().filter(|last| !last.sealed) else {
        return Ok(());
    };
    // On a disk its page may have records in front of it, though none that was committed: commits
    // end with a page. Until the page is written they are no more certain than it is.
    let page = last.end / PAGE * PAGE;
    let behind = match core.media.needs_commit() {
        true => (last.end - page) / LINE as u64,
        false => 0,
    };
    let header = RecordHeader {
        length: 0,
        lsn: last.end,
        epoch,
        lag: u32::try_from(behind).unwrap_or(0),
        kind: KIND_SEAL,
    };
    let bytes = header.encode(owner, &[]);
    let segment = windows[last.slot].offset();
    let at = segment + (last.end - last.header.start);
    core.media.store(at, &[IoSlice::new(&bytes)]);
    core.media.fence();
    last.end += record_bytes(0);
    last.sealed = true;
    let written = (core.media).commit_pages(
        segment + (page - last.header.start),
        next_start(last.end) - page,
    );
    written.map_err(|e| PoolError::io(&core.path, "ending the recovered log", e))?;
    Ok(())
}

const _: () = assert!(record_bytes(0) as usize == 2 * HEADER);
