//! A copy of a lane's log, for a process that reads beside the lane's owner, or beside what a
//! killed one left.
//!
//! 1. Read the lane's entry, and with it the head of its log.
//! 2. Copy its segments. The owner may append meanwhile: a record that it has not published yet is
//!    no valid one, and ends the log, as in a recovery.
//! 3. Read the head again. If it is the same, no segment of the log was used again meanwhile, and
//!    the copy has all that was durable when it was begun. Otherwise try again.
//!
//! Nothing is locked but the pool while the lane is looked up, and nothing is written. What a disk
//! has is read into this pool's own memory, so this must not be a pool in which a lane was claimed:
//! it would be read over what is not committed there.

use super::Pool;
use crate::{
    error::PoolError,
    format::{
        record::{Lsn, Record},
        segment::{RecordWalk, SegmentHeader, WalkEnd, next_start},
        table::LaneState,
    },
};
use std::io;
use uuid::Uuid;

/// How often it is tried while the owner drains.
const TRIES: u32 = 100;

/// What a pool had of a lane's log at one moment.
pub struct LaneCopy {
    state: LaneState,
    end: Lsn,
    /// In the order of the log.
    segments: Vec<(SegmentHeader, Vec<u8>)>,
}

impl LaneCopy {
    /// Log address below which everything was drained.
    #[must_use]
    pub fn head(&self) -> Lsn {
        self.state.head
    }

    /// Log address behind its last record.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The number of the session that has the lane, or had it last.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.state.epoch
    }

    /// So many bytes at a log address, if it has them.
    #[must_use]
    pub fn read(&self, lsn: Lsn, bytes: usize) -> Option<&[u8]> {
        let behind = self
            .segments
            .partition_point(|(header, _)| header.start <= lsn);
        let (header, all) = self.segments.get(behind.checked_sub(1)?)?;
        let at = usize::try_from(lsn - header.start).ok()?;
        all.get(at..at.checked_add(bytes)?)
    }

    /// Its records, in order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let epoch = self.state.epoch;
        (self.segments.iter())
            .flat_map(move |(header, bytes)| RecordWalk::new(bytes, *header, epoch))
    }
}

impl Pool {
    /// What the pool has of the log of `owner`, whoever has the lane: as durable at this moment as
    /// the pool is. `None` if it has no lane.
    ///
    /// The pool must not be one in which this process has claimed a lane, but one that it has
    /// opened for this.
    ///
    /// # Errors
    /// Of the medium; damage of the tables; an owner that drains so fast that no copy is of one
    /// moment.
    pub fn copy_lane(&self, owner: Uuid) -> Result<Option<LaneCopy>, PoolError> {
        for _ in 0..TRIES {
            let Some((lane, state, segments)) = self.find_lane(owner)? else {
                return Ok(None);
            };
            let mut copies = Vec::with_capacity(segments.len());
            for segment in segments {
                copies.extend(self.copy_segment(segment, owner)?);
            }
            self.core.load_tables()?;
            let now = self.core.tables().lane(lane).state;
            if now.is_some_and(|now| now.head == state.head && now.epoch == state.epoch) {
                return Ok(Some(in_order(state, copies)));
            }
        }
        let busy = "its owner drains it faster than it is copied; try again";
        Err(PoolError::io(
            &self.core.path,
            "copying a lane",
            io::Error::new(io::ErrorKind::WouldBlock, busy),
        ))
    }

    /// The lane of `owner`, its state, and its segments.
    fn find_lane(&self, owner: Uuid) -> Result<Option<(u32, LaneState, Vec<u64>)>, PoolError> {
        let _pool = self.core.lock_pool()?;
        let Some((lane, entry)) = self.lane_of(owner)? else {
            return Ok(None);
        };
        let segments = self.segments_of(lane, &entry)?;
        Ok(entry.state.map(|state| (lane, state, segments)))
    }

    /// A segment with its header, if it is one of `owner`'s log.
    fn copy_segment(
        &self,
        segment: u64,
        owner: Uuid,
    ) -> Result<Option<(SegmentHeader, Vec<u8>)>, PoolError> {
        let geometry = self.geometry();
        self.prepare_segment(segment, false)?;
        self.load_segment(segment)?;
        let mut bytes = vec![0; usize::try_from(geometry.segment_bytes).unwrap_or(usize::MAX)];
        self.core.media.load(geometry.segment(segment), &mut bytes);
        let header = SegmentHeader::decode(&bytes);
        let of_owner = |h: &SegmentHeader| h.owner == owner && h.bytes == geometry.segment_bytes;
        Ok(header.filter(of_owner).map(|header| (header, bytes)))
    }
}

/// The log that the segments hold from the head on: see `lane::recover`.
fn in_order(state: LaneState, mut copies: Vec<(SegmentHeader, Vec<u8>)>) -> LaneCopy {
    let mut log = LaneCopy {
        state,
        end: state.head,
        segments: Vec::new(),
    };
    let (mut expected, mut epoch) = (Some(state.head), 0);
    while let Some(start) = expected.take() {
        let next = (copies.iter().enumerate())
            .filter(|(_, (h, _))| h.start == start && (epoch..=state.epoch).contains(&h.epoch))
            .max_by_key(|(_, (h, _))| h.epoch);
        let Some((at, _)) = next else {
            break;
        };
        let (header, bytes) = copies.swap_remove(at);
        let (end, last) = RecordWalk::new(&bytes, header, state.epoch).finish();
        epoch = last;
        log.end = match end {
            WalkEnd::Sealed(end) => {
                expected = Some(next_start(end));
                end
            }
            WalkEnd::Open(end, _) => end,
        };
        log.segments.push((header, bytes));
    }
    log
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::{ClaimOptions, PoolOptions, format::record::HEADER};
    use std::io::IoSlice;
    use uuid::Uuid;

    /// Promise (pool): A process that copies a lane beside its owner finds each record that was
    /// durable, and nothing behind the log's end.
    #[test]
    fn a_lane_in_use_is_copied_up_to_its_last_record() {
        for on_disk in [false, true] {
            let dir = tempfile::tempdir_in(".").unwrap();
            let path = dir.path().join("pool");
            let options = PoolOptions::new().size(1 << 20).lanes(4);
            let options = options.segment_size(64 << 10);
            let pool = match on_disk {
                true => options.on_disk(true),
                false => options.emulated(true),
            };
            let pool = pool.create(&path).unwrap();
            let owner = Uuid::new_v4();
            let looking = PoolOptions::new().open(&path).unwrap();
            assert!(looking.copy_lane(owner).unwrap().is_none());
            let (lane, _) = pool.claim(owner, &ClaimOptions::new().segments(4)).unwrap();
            let copy = looking.copy_lane(owner).unwrap().unwrap();
            assert_eq!(
                (copy.records().count(), copy.end() >= copy.head()),
                (0, true)
            );
            let mut addresses = Vec::new();
            for i in 0..40u8 {
                let payload = vec![i; 3000];
                addresses.push(lane.append(7, &[IoSlice::new(&payload)]).unwrap());
                lane.commit(u64::MAX).unwrap();
                let copy = looking.copy_lane(owner).unwrap().unwrap();
                assert_eq!(copy.records().count(), addresses.len());
                let last = copy.records().last().unwrap();
                assert!(last.payload == payload && Some(&last.header.lsn) == addresses.last());
                let read = copy.read(addresses[0] + HEADER as u64, 3000).unwrap();
                assert!(read == [0; 3000]);
            }
            // What is drained is in it no more.
            let sealed = lane.take_sealed(std::time::Duration::ZERO).unwrap();
            let end = sealed.end();
            sealed.release();
            let copy = looking.copy_lane(owner).unwrap().unwrap();
            let left = addresses.iter().filter(|lsn| **lsn >= end).count();
            assert!(left < 40 && copy.records().count() == left);
            assert!(copy.read(addresses[0], 100).is_none());
        }
    }
}
