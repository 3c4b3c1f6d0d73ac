//! The owner of a shared lane: it opens segments, and releases what is durable elsewhere.

use super::{
    member::Member,
    state::{NONE, State, first, wait, wake},
};
use crate::{
    error::{AppendError, PoolError},
    lane::{LaneUse, pack, split},
    layout::PAGE,
    media::{Guard, Mapped},
    pool::{ClaimOptions, Claimed, Pool},
    record::{Lsn, Record},
    segment::{Records, SegmentHeader},
    table::{LaneEntry, LaneState},
};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::Ordering::{Acquire, SeqCst},
    },
    time::Duration,
};
use uuid::Uuid;

/// A segment that is complete: everything in it is published, and nothing is appended to it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Log address of its first byte.
    pub start: Lsn,
    /// Log address behind it.
    pub end: Lsn,
}

/// A lane that several processes append to, in the hands of the one that opens and releases its segments.
pub struct SharedLane {
    pub(super) us: Member,
    state_fd: OwnedFd,
    lane: u32,
    pub(super) control: Mutex<Control>,
    /// Until the lane is dropped; beyond that as long as another process has the pool's open file.
    _lock: Guard,
}

/// What the owner's threads share.
pub(super) struct Control {
    entry: LaneEntry,
    /// Where each slot's segment lies in the pool.
    offsets: Vec<u64>,
    /// Slots that hold nothing.
    free: Vec<usize>,
    /// Slots in use and their starts, in log order, the prepared one included.
    order: VecDeque<(usize, Lsn)>,
    /// Members that are gone.
    pub(super) dead: Vec<u32>,
    given_back: bool,
}

impl Control {
    /// Offset in the pool and start of each segment in use, in log order.
    pub(super) fn segments(&self) -> Vec<(u64, Lsn)> {
        let place = |(slot, start): &(usize, Lsn)| (self.offsets[*slot], *start);
        self.order.iter().map(place).collect()
    }
}

impl Pool {
    /// Claims a lane for a new `owner` that several processes are to append to.
    ///
    /// The lane's lock is the pool's open file's: members that were sent that one (not one that they opened) keep the lane from being recovered
    /// as long as they live.
    ///
    /// # Errors
    /// [`PoolErrorKind::Full`](crate::PoolErrorKind), [`PoolErrorKind::InUse`](crate::PoolErrorKind) if the owner has a lane already; I/O errors
    /// of the memory to share.
    pub fn claim_shared(
        &self,
        owner: Uuid,
        options: &ClaimOptions,
    ) -> Result<SharedLane, PoolError> {
        let (state, state_fd) = Mapped::<State>::new("forebay-lane")
            .map_err(|e| PoolError::io(self.path(), "making a shared lane", e.into()))?;
        let Claimed {
            lane,
            lock,
            entry,
            segments,
        } = self.claim_new(owner, options)?;
        let geometry = self.core.superblock.geometry;
        for &segment in &segments {
            self.prepare_segment(segment, true)?;
        }
        let epoch = entry.state.map_or(0, |state| state.epoch);
        state.begin(owner, epoch, options.start);
        let lane = SharedLane {
            us: Member::new(Arc::clone(&self.core), Arc::new(state), 0),
            state_fd,
            lane,
            control: Mutex::new(Control {
                entry,
                free: (0..segments.len()).rev().collect(),
                offsets: segments.iter().map(|s| geometry.segment(*s)).collect(),
                order: VecDeque::new(),
                dead: Vec::new(),
                given_back: false,
            }),
            _lock: lock,
        };
        lane.begin(options.start);
        Ok(lane)
    }
}

impl SharedLane {
    /// Opens the first segment, and prepares the second.
    fn begin(&self, start: Lsn) {
        let state = self.state();
        let mut control = self.control.lock();
        if let Some(slot) = self.write_header(&mut control, start) {
            state.mark.0.store(first(start), SeqCst);
            state.tail.0.store(pack(slot, first(start)), SeqCst);
        }
        drop(control);
        self.prepare();
    }

    pub(super) fn state(&self) -> &State {
        &self.us.state
    }

    fn segment_bytes(&self) -> u64 {
        self.us.core.superblock.geometry.segment_bytes
    }

    /// Makes a free slot the segment that starts at `start`.
    fn write_header(&self, control: &mut Control, start: Lsn) -> Option<usize> {
        let slot = control.free.pop()?;
        let header = SegmentHeader {
            start,
            epoch: self.us.epoch(),
            bytes: self.segment_bytes(),
            owner: self.us.owner,
        };
        let media = &*self.us.core.media;
        media.stream(control.offsets[slot], &[IoSlice::new(&header.encode())], 0);
        media.fence();
        self.state().set_segment(slot, control.offsets[slot], start);
        control.order.push_back((slot, start));
        Some(slot)
    }

    /// What members join by.
    #[must_use]
    pub fn state_fd(&self) -> BorrowedFd<'_> {
        self.state_fd.as_fd()
    }

    /// The owner's own part: it appends, too.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.us
    }

    /// The lane's number in the pool.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.lane
    }

    /// Prepares the next segment, if there is none, all before the open one is published, and a slot is free. True if one is prepared.
    pub fn prepare(&self) -> bool {
        let state = self.state();
        let mut control = self.control.lock();
        let (_, lsn) = split(state.tail.0.load(Acquire));
        let Some(&(_, last)) = control.order.back() else {
            return false;
        };
        if control.given_back || lsn < last {
            // It is there still.
            return !control.given_back;
        }
        // At most two segments are not published.
        let mark = state.mark.0.load(Acquire);
        if mark < last {
            return false;
        }
        // What the owner noted for the dead.
        state.finished.forget_below(mark);
        let start = last + self.segment_bytes();
        let Some(slot) = self.write_header(&mut control, start) else {
            return false;
        };
        state.next.store(pack(slot, start), SeqCst);
        wake(&state.prepared);
        true
    }

    /// Counts segments that were begun and members that found none prepared: read it before looking, to [`wait`](Self::wait) with.
    #[must_use]
    pub fn turned(&self) -> u32 {
        self.state().turned.load(Acquire)
    }

    /// Sleeps until a member has begun a segment since `seen`, or finds none prepared, or `limit` is over.
    pub fn wait(&self, seen: u32, limit: Duration) {
        wait(&self.state().turned, seen, limit);
    }

    /// Complete segments that are not released, in log order.
    #[must_use]
    pub fn complete(&self) -> Vec<Segment> {
        let mark = self.us.published();
        let bytes = self.segment_bytes();
        let control = self.control.lock();
        let segments = control.order.iter().map(|(_, start)| Segment {
            start: *start,
            end: start + bytes,
        });
        segments.take_while(|segment| segment.end <= mark).collect()
    }

    /// Ends the open segment, if it holds any record: log address up to which [`release`](Self::release) must come for everything appended
    /// before this call. `None` while no segment is prepared.
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    pub fn seal(&self) -> Result<Option<Lsn>, AppendError> {
        let segment = self.us.segment()?;
        let (_, lsn) = split(self.state().tail.0.load(Acquire));
        if lsn == first(segment) {
            return Ok(Some(segment));
        }
        self.prepare();
        let next = self.us.next_segment(segment)?;
        Ok(next.map(|_| segment + self.segment_bytes()))
    }

    /// Everything below `end`, the end of a complete segment, is durable elsewhere: its segments are free.
    pub fn release(&self, end: Lsn) {
        let bytes = self.segment_bytes();
        let mark = self.us.published();
        let mut control = self.control.lock();
        let mut freed = Vec::new();
        let mut head = None;
        while let Some(&(slot, start)) = control.order.front()
            && start + bytes <= end.min(mark)
        {
            control.order.pop_front();
            freed.push(slot);
            head = Some(start + bytes);
        }
        if let (Some(head), Some(state)) = (head, control.entry.state) {
            crate::failpoint!("pool:release-entry");
            let tables = self.us.core.tables();
            tables.write_lane(self.lane, &mut control.entry, LaneState { head, ..state });
            crate::failpoint!("pool:release-free");
            for slot in freed {
                self.state().set_segment(slot, control.offsets[slot], NONE);
                control.free.push(slot);
            }
        }
        drop(control);
        self.prepare();
    }

    /// Calls `each` with the published records that are not released, in log order.
    pub fn records(&self, mut each: impl FnMut(&Record<'_>)) {
        let control = self.control.lock();
        let bytes = self.segment_bytes();
        let mark = self.us.published();
        for (offset, start) in control.segments() {
            let published = mark.saturating_sub(start).min(bytes);
            let mut copy = vec![0; usize::try_from(published).unwrap_or(0)];
            self.us.core.media.load(offset, &mut copy);
            let Some(header) = SegmentHeader::decode(&copy) else {
                continue;
            };
            Records::new(&copy, header, self.us.epoch()).for_each(|record| each(&record));
        }
    }

    /// Position and fill.
    #[must_use]
    pub fn usage(&self) -> LaneUse {
        let control = self.control.lock();
        let (_, tail) = split(self.state().tail.0.load(Acquire));
        LaneUse {
            head: control.entry.state.map_or(0, |state| state.head),
            tail,
            segments_used: control.order.iter().filter(|(_, s)| *s < tail).count(),
            segments: control.offsets.len(),
        }
    }

    /// Changes the label, durably.
    pub fn relabel(&self, label: &str) {
        self.us.core.tables().write_label(self.lane, label);
    }

    /// Nothing is appended from now on: members are told that the lane is closed.
    pub fn close(&self) {
        self.state().close();
    }

    /// Closes the lane and gives it back to the pool, if everything in it was released. False otherwise: then it stays its owner's, with
    /// everything in it. The caller knows that no member lives.
    #[must_use]
    pub fn give_back(&self) -> bool {
        self.close();
        let mut control = self.control.lock();
        let (_, lsn) = split(self.state().tail.0.load(SeqCst));
        let empty = control.order.iter().all(|(_, start)| first(*start) >= lsn);
        let Some(state) = control.entry.state.filter(|_| empty) else {
            return false;
        };
        let head = lsn.next_multiple_of(PAGE);
        let freed = LaneState {
            taken: false,
            head,
            segments: 0,
            ..state
        };
        let tables = self.us.core.tables();
        tables.write_lane(self.lane, &mut control.entry, freed);
        control.given_back = true;
        control.order.clear();
        true
    }
}
