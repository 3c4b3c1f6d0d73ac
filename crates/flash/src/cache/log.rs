//! The lane, and checkpoints. docs/flash-format.md, "Checkpoint".
//!
//! A thread that changes what is durable holds `log` from before its record to after it is applied
//! to the map. So the map below `recorded`, seen under `log`, is exactly what the lane says, and a
//! checkpoint is a copy of it.

use super::Cache;
use crate::{
    buffer::Buffer,
    checkpoint::{Checkpoint, push_file},
    error::FlashError,
    layout::CHECKPOINT_HEADER,
    map::Map,
    stats::add,
};
use std::{io::IoSlice, time::Duration};

/// Pages that are copied to a checkpoint before readers get the map again.
const COPIED_AT_ONCE: u64 = 4096;

impl Cache {
    /// Runs `section` under `log` until it says that its record found room, after a checkpoint each
    /// time that it did not. It is given a buffer to build the record in.
    pub(super) fn record<T>(
        &self,
        mut section: impl FnMut(&Self, &mut Vec<u8>) -> Result<Option<T>, FlashError>,
    ) -> Result<T, FlashError> {
        loop {
            {
                let mut log = self.log.lock();
                if let Some(done) = section(self, &mut log)? {
                    return Ok(done);
                }
            }
            self.checkpoint()?;
        }
    }

    /// Appends a record, durably. False if no segment has room for it; never waits for a
    /// checkpoint. The caller holds `log`.
    pub(super) fn try_append(&self, kind: u16, parts: &[IoSlice<'_>]) -> Result<bool, FlashError> {
        self.check_resized()?;
        loop {
            let segment = self.lane.segment();
            if let Some(open) = segment
                && self.lane.append_in(open, kind, parts)?.is_some()
            {
                return Ok(true);
            }
            if self.lane.next_segment(segment)?.is_none() {
                return Ok(false);
            }
        }
    }

    /// Records of `kind` name these positions, in their order, and once they do `apply` is done to
    /// each. The caller holds a lock by which they stay in the queue.
    pub(super) fn record_positions(
        &self,
        kind: u16,
        positions: &[u64],
        apply: fn(&mut Map, u64),
    ) -> Result<(), FlashError> {
        for some in positions.chunks((self.lane.payload_max() / 8).max(1)) {
            self.record(|cache, log| {
                log.clear();
                for position in some {
                    log.extend_from_slice(&position.to_le_bytes());
                }
                if !cache.try_append(kind, &[IoSlice::new(log)])? {
                    return Ok(None);
                }
                let map = &mut cache.state.lock().map;
                some.iter().for_each(|&position| apply(map, position));
                Ok(Some(()))
            })?;
        }
        Ok(())
    }

    /// True if the lane has full segments, which a checkpoint would give back.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.lane.usage().segments_used > 1
    }

    /// Writes down all of the lane's contents, durably, and releases the lane's full segments.
    ///
    /// 1. *Copy* what is recorded, and note where the lane's open segment starts: every record
    ///    below that is in the copy. What is in that segment already may be in the copy as well; to
    ///    apply it again changes nothing.
    /// 2. *Write* it to the region that does not hold the last checkpoint, and *sync* flash.
    /// 3. *Release* the segments below.
    pub(super) fn checkpoint(&self) -> Result<(), FlashError> {
        let mut last = self.checkpointer.lock();
        self.check_resized()?;
        let sequence = *last + 1;
        let (through, bytes) = self.copy_metadata(sequence);
        let region = self.geometry().checkpoint(sequence % 2);
        forebay_pool::failpoint!("flash:checkpoint");
        self.write_durably(|| {
            self.flash
                .write_at(&bytes, region)
                .map_err(|e| self.flash_failed("writing a checkpoint", e))?;
            forebay_pool::failpoint!("flash:checkpoint-written");
            Ok(())
        })?;
        forebay_pool::failpoint!("flash:checkpoint-synced");
        *last = sequence;
        add(&self.counters.checkpoints, 1);
        add(&self.counters.flash_bytes, bytes.len() as u64);
        self.release_below(through);
        Ok(())
    }

    /// Gives back the lane's full segments before this address: a checkpoint has all that they say.
    pub(super) fn release_below(&self, through: u64) {
        while let Some(sealed) = self.lane.take_sealed(Duration::ZERO) {
            if sealed.start() >= through {
                break;
            }
            sealed.release();
        }
    }

    /// Step 1: the checkpoint as it is written, and the address below which it has everything.
    fn copy_metadata(&self, sequence: u64) -> (u64, Buffer) {
        let log = self.log.lock();
        let through = match self.lane.segment() {
            Some(open) => open,
            None => self.lane.seal(),
        };
        let (front, recorded) = {
            let map = &self.state.lock().map;
            (map.front, map.recorded)
        };
        let layout = self.geometry().layout();
        let (checkpoint, mut bytes) =
            self.begin_checkpoint(layout, sequence, through, [front, recorded]);
        let mut at = front;
        while at < recorded {
            // Under `log` nothing in there changes but what is not written down.
            let to = recorded.min(at + COPIED_AT_ONCE);
            let map = &self.state.lock().map;
            for position in at..to {
                map.version(position).entry.encode(&mut bytes);
            }
            at = to;
        }
        drop(log);
        (through, finish(checkpoint, bytes))
    }

    /// A checkpoint with its files, and the bytes that its pages come behind. The caller holds
    /// `log`.
    pub(super) fn begin_checkpoint(
        &self,
        layout: u32,
        sequence: u64,
        through: u64,
        queue: [u64; 2],
    ) -> (Checkpoint, Vec<u8>) {
        let mut checkpoint = Checkpoint::new(self.owner(), layout, sequence, through, queue);
        let mut bytes = vec![0; CHECKPOINT_HEADER as usize];
        let files = self.files.read();
        checkpoint.next_file = files.next();
        checkpoint.epochs = *self.epochs.lock();
        for file in files.iter() {
            push_file(&mut bytes, file.id(), &file.name());
            checkpoint.files += 1;
        }
        (checkpoint, bytes)
    }
}

/// The checkpoint as it is written.
pub(super) fn finish(checkpoint: Checkpoint, mut bytes: Vec<u8>) -> Buffer {
    checkpoint.finish(&mut bytes);
    let mut aligned = Buffer::new(bytes.len());
    aligned.copy_from_slice(&bytes);
    aligned
}
