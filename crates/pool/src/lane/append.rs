//! Appending: reserve, copy, fence, publish in order.
//!
//! 1. *Reserve* the record's lines by a compare-and-swap on the tail.
//! 2. *Copy* the payload behind its first line, block by block: each byte of the caller's memory is
//!    loaded once, since the program may change it meanwhile, and what is stored is what is
//!    checksummed. Then the first line, which holds the header.
//! 3. *Fence*: the record is durable.
//! 4. *Publish* ([`publish`](super::publish)): raise the window's mark over the record once it
//!    stands at it. So what is published is durable without a gap, and recovery may stop at the
//!    first invalid record.
//!
//! Writers copy in parallel and wait for each other only in step 4. On a disk "durable" is "ready
//! to be committed" ([`commit`](super::commit)). The slow path, once a segment, is
//! [`Lane::make_room`].

use super::{
    Lane, LaneControl, NO_SEGMENT, SlotState, WrittenAhead, pack, payload_of, split, write_record,
};
use crate::{
    error::AppendError,
    format::{
        record::{HEADER, KIND_SEAL, Lsn, RecordHeader, record_bytes},
        segment::{SEGMENT_HEADER, SegmentHeader, next_start},
    },
    media::SegmentWindow,
    persist::LINE,
};
use parking_lot::MutexGuard;
use std::{
    hint,
    io::IoSlice,
    sync::atomic::Ordering::{AcqRel, Acquire, Release},
    time::Duration,
};

impl Lane {
    /// The largest payload that [`append`](Self::append) takes: half a segment less the header.
    #[must_use]
    pub fn payload_max(&self) -> usize {
        usize::try_from(self.segment_bytes / 2).unwrap_or(usize::MAX) - HEADER
    }

    /// Appends a record of the owner's `kind` (not 0) whose payload is the concatenation of
    /// `parts`. When this returns, the record is durable and so is every record of this lane with a
    /// lower address; on a disk ([`needs_commit`](Self::needs_commit)) once it is
    /// [committed](Self::commit).
    ///
    /// Waits while all segments are in the drain's hands.
    ///
    /// # Errors
    /// [`AppendError`]; nothing was written then.
    ///
    /// # Panics
    /// If `kind` is 0 or 0xFFFF, the pool's own.
    ///
    /// ```
    /// use std::io::IoSlice;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = forebay_pool::PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(dir.path().join("pool"))?;
    /// # let (lane, _) = pool.claim(forebay_pool::Uuid::new_v4(), &forebay_pool::ClaimOptions::new())?;
    /// let event = 7; // the kind is the owner's to choose
    /// let lsn = lane.append(event, &[IoSlice::new(b"sold: "), IoSlice::new(b"a boat")])?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn append(&self, kind: u16, parts: &[IoSlice<'_>]) -> Result<Lsn, AppendError> {
        let payload = payload_of(kind, parts, self.payload_max())?;
        self.core.check_own()?;
        let reserved = loop {
            match self.reserve(record_bytes(payload), |_| true) {
                Ok(reserved) => break reserved,
                Err(full) => self.make_room(full)?,
            }
        };
        Ok(self.fill(reserved, kind, parts, payload))
    }

    /// Log address at which the open segment starts; `None` if none is open.
    #[inline]
    #[must_use]
    pub fn segment(&self) -> Option<Lsn> {
        // A child that was forked in the middle of a seal would wait for its end.
        self.core.check_own().ok()?;
        loop {
            let tail = self.tail.0.load(Acquire);
            if tail == NO_SEGMENT {
                return None;
            }
            let start = self.slots[split(tail).0].start();
            // The tail still points into that segment, so it was open when its start was read.
            if start.is_some() && self.tail.0.load(Acquire) == tail {
                return start;
            }
            hint::spin_loop();
        }
    }

    /// As [`append`](Self::append), but only to the open segment that starts at `segment`: for
    /// records that are to be understood together with an earlier one of the same segment. `None`
    /// if another segment is open, or none, or this one has no room
    /// ([`next_segment`](Self::next_segment) opens the next). Never waits for the drain.
    ///
    /// # Errors
    /// [`AppendError::TooLarge`].
    ///
    /// # Panics
    /// As [`append`](Self::append).
    ///
    /// ```
    /// use std::io::IoSlice;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = forebay_pool::PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(dir.path().join("pool"))?;
    /// # let (lane, _) = pool.claim(forebay_pool::Uuid::new_v4(), &forebay_pool::ClaimOptions::new())?;
    /// lane.next_segment(None)?;
    /// let segment = lane.segment().ok_or("all segments are being drained")?;
    /// lane.append_in(segment, 1, &[IoSlice::new(b"the whole")])?;
    /// if lane.append_in(segment, 2, &[IoSlice::new(b"a change of it")])?.is_none() {
    ///     println!("another segment: the whole has to be appended again");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn append_in(
        &self,
        segment: Lsn,
        kind: u16,
        parts: &[IoSlice<'_>],
    ) -> Result<Option<Lsn>, AppendError> {
        let payload = payload_of(kind, parts, self.payload_max())?;
        self.core.check_own()?;
        let reserved = self.reserve(record_bytes(payload), |start| start == segment);
        Ok(reserved
            .ok()
            .map(|reserved| self.fill(reserved, kind, parts, payload)))
    }

    /// Seals the segment that starts at `full`, if that one is open, and opens the next: its start,
    /// or that of the one that another thread opened meanwhile. `None` while all segments are in
    /// the drain's hands; never waits for it.
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    pub fn next_segment(&self, full: Option<Lsn>) -> Result<Option<Lsn>, AppendError> {
        self.core.check_own()?;
        let mut control = self.control.lock();
        if control.has_ended() {
            return Err(AppendError::Closed);
        }
        if let Some(slot) = control.open() {
            let start = self.slots[slot].start();
            if start != full {
                return Ok(start);
            }
            self.seal_open(&mut control, slot);
        }
        let start = control.next_start;
        Ok(self.open_free(&mut control).then_some(start))
    }

    /// Writes a record to its reserved place, durably, and publishes it.
    #[inline]
    fn fill(
        &self,
        (slot, start, lsn): (usize, Lsn, Lsn),
        kind: u16,
        parts: &[IoSlice<'_>],
        payload: usize,
    ) -> Lsn {
        let window = &*self.slots[slot];
        self.write(window, start, lsn, kind, parts, payload);
        self.finished
            .publish(window, lsn, lsn + record_bytes(payload));
        lsn
    }

    /// Reserves `bytes` bytes in a segment whose start is `wanted`: slot, the slot's start, and log
    /// address. The tail, if there is no room.
    #[inline]
    fn reserve(&self, bytes: u64, wanted: impl Fn(Lsn) -> bool) -> Result<(usize, Lsn, Lsn), u64> {
        loop {
            let tail = self.tail.0.load(Acquire);
            if tail == NO_SEGMENT {
                return Err(tail);
            }
            let (slot, lsn) = split(tail);
            // Read between two looks at the tail. It held this value only while the segment it
            // points into was open, and never holds it again after: if the exchange succeeds, the
            // segment was open all the time, and this is its start.
            let Some(start) = self.slots[slot].start() else {
                return Err(tail);
            };
            if !wanted(start) || lsn + bytes > start + self.segment_bytes {
                return Err(tail);
            }
            let next = pack(slot, lsn + bytes);
            if self
                .tail
                .0
                .compare_exchange_weak(tail, next, AcqRel, Acquire)
                .is_ok()
            {
                return Ok((slot, start, lsn));
            }
        }
    }

    /// Copies one record to its reserved place and makes it durable.
    #[inline]
    fn write(
        &self,
        window: &SegmentWindow,
        start: Lsn,
        lsn: Lsn,
        kind: u16,
        parts: &[IoSlice<'_>],
        payload: usize,
    ) {
        let place = window.place(start, lsn);
        let behind = match &self.commits {
            None => place.behind(),
            Some(commits) => commits.behind(lsn),
        };
        let lag = behind / LINE as u64;
        let header = RecordHeader {
            length: u32::try_from(payload).unwrap_or(u32::MAX),
            lsn,
            epoch: self.epoch,
            lag: u32::try_from(lag).unwrap_or(u32::MAX),
            kind,
        };
        write_record(self.media(), place.offset(), &header, self.owner, parts);
    }

    /// Seals the segment that was found full at `full`, and opens the next one, waiting for the
    /// drain if need be.
    #[cold]
    fn make_room(&self, full: u64) -> Result<(), AppendError> {
        let mut control = self.control.lock();
        if self.tail.0.load(Acquire) != full {
            return Ok(());
        }
        if let Some(slot) = control.open() {
            self.seal_open(&mut control, slot);
        }
        self.open_next(&mut control)
    }

    /// Seals the open segment, if it holds any record, and returns the log address up to which
    /// the drain must come for everything appended before this call to be drained.
    ///
    /// ```
    /// use std::{io::IoSlice, time::Duration};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = forebay_pool::PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(dir.path().join("pool"))?;
    /// # let (lane, _) = pool.claim(forebay_pool::Uuid::new_v4(), &forebay_pool::ClaimOptions::new())?;
    /// lane.append(1, &[IoSlice::new(b"hello")])?;
    /// let end = lane.seal();
    /// let sealed = lane.take_sealed(Duration::ZERO).ok_or("nothing was sealed")?;
    /// assert_eq!(sealed.start(), 0);
    /// sealed.release();
    /// lane.wait_drained(end)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn seal(&self) -> Lsn {
        if self.core.check_own().is_err() {
            // It is never drained to there: `wait_drained` says why.
            return Lsn::MAX;
        }
        let mut control = self.control.lock();
        if let Some(slot) = control.open() {
            if !self.open_has_records(slot) {
                return control.next_start;
            }
            self.seal_open(&mut control, slot);
        }
        control.next_start
    }

    /// True if anything was appended to the open segment in `slot`.
    pub(super) fn open_has_records(&self, slot: usize) -> bool {
        let (_, lsn) = split(self.tail.0.load(Acquire));
        self.slots[slot]
            .start()
            .is_none_or(|start| lsn != start + SEGMENT_HEADER)
    }

    /// Takes the rest of the open segment, ends it with a seal record, and hands it to the drain.
    pub(super) fn seal_open(&self, control: &mut LaneControl, slot: usize) {
        let window = &*self.slots[slot];
        let start = window.start().unwrap_or(control.next_start);
        let limit = start + self.segment_bytes;
        let (_, lsn) = split(self.tail.0.swap(NO_SEGMENT, AcqRel));
        let end = if lsn < limit {
            self.write(window, start, lsn, KIND_SEAL, &[], 0);
            let end = lsn + record_bytes(0);
            self.finished.publish(window, lsn, end);
            end
        } else {
            self.finished.wait_for_earlier(window, lsn);
            limit
        };
        window.freeze();
        control.states[slot] = SlotState::Sealed(end);
        control.next_start = next_start(end);
        crate::failpoint!("pool:sealed");
        self.sealed.notify_one();
    }

    /// Opens a free slot as the next segment. With none free, waits for the drain.
    fn open_next(&self, control: &mut MutexGuard<'_, LaneControl>) -> Result<(), AppendError> {
        let mut waiting = None;
        loop {
            if control.has_ended() {
                return Err(AppendError::Closed);
            }
            if control.open().is_some() || self.open_free(control) {
                return Ok(());
            }
            waiting.get_or_insert_with(|| self.crowding.blocked.begin());
            if control.states.contains(&SlotState::Free) {
                // A reader is in the only free slot; it does not tell us when it leaves.
                self.freed.wait_for(control, Duration::from_micros(50));
            } else if let Some(stall) = &control.stalled {
                return Err(AppendError::Stalled(stall.reason.clone()));
            } else {
                self.freed.wait(control);
            }
        }
    }

    /// Opens a slot that is free and without readers as the next segment. False if there is none.
    pub(super) fn open_free(&self, control: &mut LaneControl) -> bool {
        let start = control.next_start;
        let Some(slot) = (0..self.slots.len())
            .filter(|&slot| control.states[slot] == SlotState::Free)
            .find(|&slot| self.slots[slot].open(start, start))
        else {
            return false;
        };
        let window = &self.slots[slot];
        let header = SegmentHeader {
            start,
            epoch: self.epoch,
            bytes: self.segment_bytes,
            owner: self.owner,
        };
        window
            .place(start, start)
            .stream(0, &[IoSlice::new(&header.encode())]);
        // On a disk it is committed with the first records: until then the log ends before it.
        self.media().fence();
        window.publish(start + SEGMENT_HEADER);
        control.states[slot] = SlotState::Open;
        control.ahead[slot] = WrittenAhead::default();
        control.order.push_back(slot);
        self.note_crowding(control);
        self.tail
            .0
            .store(pack(slot, start + SEGMENT_HEADER), Release);
        true
    }
}
