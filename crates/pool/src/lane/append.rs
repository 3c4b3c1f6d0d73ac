//! Appending: reserve, copy, fence, publish in order.
//!
//! 1. *Reserve* the record's lines by a compare-and-swap on the tail.
//! 2. *Copy* the payload behind its first line; compute the checksum while the copy drains to the
//!    memory; copy the first line, which holds the header.
//! 3. *Fence*: the record is durable.
//! 4. *Publish*: wait until every earlier record is published, then raise the window's mark. So
//!    what is published is durable without a gap, and recovery may stop at the first invalid record.
//!
//! Writers copy in parallel and wait for each other only in step 4, for no longer than a copy.
//! The slow path, once a segment, is [`Lane::make_room`].

use super::{Control, Lane, SlotState, pack, split};
use crate::{
    error::AppendError,
    media::Window,
    persist::LINE,
    record::{HEADER, Header, KIND_SEAL, Lsn, record_bytes},
    segment::{SEGMENT_HEADER, SegmentHeader, next_start},
};
use parking_lot::MutexGuard;
use std::{
    hint,
    io::IoSlice,
    sync::atomic::Ordering::{AcqRel, Acquire, Release},
    thread,
    time::Duration,
};

/// Turns of the busy wait for earlier writers before the processor is offered to them.
const SPINS: u32 = 256;

impl Lane {
    /// The largest payload that [`append`](Self::append) takes: half a segment less the header.
    #[must_use]
    pub fn payload_max(&self) -> usize {
        usize::try_from(self.segment_bytes / 2).unwrap_or(usize::MAX) - HEADER
    }

    /// Appends a record of the owner's `kind` (not 0) whose payload is the concatenation of
    /// `parts`. When this returns, the record is durable and so is every record of this lane with a lower address.
    ///
    /// Waits while all segments are in the drain's hands.
    ///
    /// # Errors
    /// [`AppendError`]; nothing was written then.
    #[inline]
    pub fn append(&self, kind: u16, parts: &[IoSlice<'_>]) -> Result<Lsn, AppendError> {
        debug_assert!(kind != KIND_SEAL);
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        if payload > self.payload_max() {
            return Err(AppendError::TooLarge {
                bytes: payload,
                bytes_max: self.payload_max(),
            });
        }
        let bytes = record_bytes(payload);
        let (slot, start, lsn) = loop {
            match self.reserve(bytes) {
                Ok(reserved) => break reserved,
                Err(full) => self.make_room(full)?,
            }
        };
        let window = &self.slots[slot];
        self.write(window, start, lsn, kind, parts, payload);
        publish(window, lsn, lsn + bytes);
        Ok(lsn)
    }

    /// Reserves `bytes` bytes: slot, the slot's start, and log address. The tail, if there is no room.
    #[inline]
    fn reserve(&self, bytes: u64) -> Result<(usize, Lsn, Lsn), u64> {
        loop {
            let tail = self.tail.0.load(Acquire);
            let (slot, lsn) = split(tail);
            // Read after the tail: if the slot was opened anew in between, the tail has moved and
            // the exchange fails.
            let Some(start) = self.slots[slot].start() else {
                return Err(tail);
            };
            if lsn + bytes > start + self.segment_bytes {
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
        window: &Window,
        start: Lsn,
        lsn: Lsn,
        kind: u16,
        parts: &[IoSlice<'_>],
        payload: usize,
    ) {
        const INLINE: usize = LINE - HEADER;
        if payload > INLINE {
            window.stream(start, lsn + LINE as u64, parts, INLINE);
        }
        let lag = (lsn - window.visible()) / LINE as u64;
        let header = Header {
            length: u32::try_from(payload).unwrap_or(u32::MAX),
            lsn,
            epoch: self.epoch,
            lag: u32::try_from(lag).unwrap_or(u32::MAX),
            kind,
        };
        let mut line = [0; LINE];
        line[..HEADER].copy_from_slice(&header.encode(self.owner, parts));
        let mut filled = HEADER;
        for part in parts {
            let take = part.len().min(LINE - filled);
            line[filled..filled + take].copy_from_slice(&part[..take]);
            filled += take;
        }
        window.stream(start, lsn, &[IoSlice::new(&line)], 0);
        self.media().fence();
    }

    /// Seals the segment that was found full at `full`, and opens the next one, waiting for the drain if need be.
    #[cold]
    fn make_room(&self, full: u64) -> Result<(), AppendError> {
        let mut control = self.control.lock();
        let (slot, _) = split(full);
        if self.tail.0.load(Acquire) != full {
            return Ok(());
        }
        if control.states[slot] == SlotState::Open {
            self.seal_open(&mut control, slot);
        }
        self.open_next(&mut control)
    }

    /// Seals the open segment, if it holds any record, and returns the log address up to which
    /// the drain must come for everything appended before this call to be drained.
    pub fn seal(&self) -> Lsn {
        let mut control = self.control.lock();
        let open = control.states.iter().position(|s| *s == SlotState::Open);
        if let Some(slot) = open {
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
    fn seal_open(&self, control: &mut Control, slot: usize) {
        let window = &self.slots[slot];
        let start = window.start().unwrap_or(control.next_start);
        let limit = start + self.segment_bytes;
        let (_, lsn) = split(self.tail.0.swap(pack(slot, limit), AcqRel));
        let end = if lsn < limit {
            self.write(window, start, lsn, KIND_SEAL, &[], 0);
            lsn + record_bytes(0)
        } else {
            limit
        };
        wait_for_earlier(window, lsn);
        window.freeze();
        control.states[slot] = SlotState::Sealed(end);
        control.next_start = next_start(end);
        self.sealed.notify_one();
    }

    /// Opens a free slot as the next segment. With none free, waits for the drain.
    fn open_next(&self, control: &mut MutexGuard<'_, Control>) -> Result<(), AppendError> {
        loop {
            if control.closed {
                return Err(AppendError::Closed);
            }
            if control.states.contains(&SlotState::Open) {
                return Ok(());
            }
            let mut free = (0..self.slots.len()).filter(|&s| control.states[s] == SlotState::Free);
            if let Some(slot) = free.clone().find(|&s| !self.slots[s].pinned()) {
                self.open(control, slot);
                return Ok(());
            }
            if free.next().is_some() {
                // A reader is in the only free slot; it does not tell us when it leaves.
                self.freed.wait_for(control, Duration::from_micros(50));
            } else if let Some(reason) = &control.stalled {
                return Err(AppendError::Stalled(reason.clone()));
            } else {
                self.freed.wait(control);
            }
        }
    }

    /// Opens `slot`, which is free and unpinned, as the next segment.
    pub(super) fn open(&self, control: &mut Control, slot: usize) {
        let window = &self.slots[slot];
        let start = control.next_start;
        let header = SegmentHeader {
            start,
            epoch: self.epoch,
            bytes: self.segment_bytes,
            owner: self.owner,
        };
        window.open(start, start);
        window.stream(start, start, &[IoSlice::new(&header.encode())], 0);
        self.media().fence();
        window.publish(start + SEGMENT_HEADER);
        control.states[slot] = SlotState::Open;
        control.order.push_back(slot);
        self.tail
            .0
            .store(pack(slot, start + SEGMENT_HEADER), Release);
    }
}

/// Publishes a durable record once all before it are.
#[inline]
fn publish(window: &Window, lsn: Lsn, end: Lsn) {
    wait_for_earlier(window, lsn);
    window.publish(end);
}

#[inline]
fn wait_for_earlier(window: &Window, lsn: Lsn) {
    let mut turns = 0;
    while window.visible() != lsn {
        turns += 1;
        if turns < SPINS {
            hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}
