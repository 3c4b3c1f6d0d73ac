//! A copy of a lane's log, for a process that reads beside the lane's owner, or beside the records
//! that a killed one left.
//!
//! 1. Read the lane's entry.
//! 2. Copy its segments. The owner may append meanwhile: a record that it has not published yet is
//!    no valid one, and ends the log, as in a recovery.
//! 3. Read the entry again, and walk the log from the head of now. No segment at that or above was
//!    used again meanwhile, so the copy has all that was durable when it was begun and is not
//!    drained by now.
//! 4. Look behind the end for a witness that there was more, as a recovery does. A live owner may
//!    have written both since the end was copied. So it is copied again; if the log still ends
//!    there, the pool is damaged.
//!
//! Nothing is locked and nothing is written: who may only read may do it, and keeps no owner from
//! anything. So a lane may change hands while it is looked up: an entry that is the same before and
//! after the map was read is the map's. What a disk has is read into this pool's own memory, so
//! this must not be a pool in which a lane was claimed: it would be read over what is not committed
//! there.

use super::Pool;
use crate::{
    error::{PoolError, PoolErrorKind},
    format::{
        record::{Lsn, Record},
        segment::{RecordWalk, SegmentHeader, WalkEnd, next_start, witness},
        table::LaneState,
    },
};
use std::{
    io,
    sync::atomic::{Ordering::Acquire, fence},
    thread,
    time::Duration,
};
use uuid::Uuid;

/// Tries while the owner writes, or is another one.
const TRIES: u32 = 100;
/// Times, one after the other, that tables may be found damaged that are written just now.
const DAMAGED_TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// A segment of the owner's log, and which it is of the pool.
struct CopiedSegment {
    segment: u64,
    header: SegmentHeader,
    bytes: Vec<u8>,
}

/// A copy of a lane's log in a pool at one moment.
pub struct LaneCopy {
    state: LaneState,
    end: Lsn,
    /// The place of its next record, or segment.
    next: Lsn,
    /// That of its last record.
    last_epoch: u32,
    /// In the order of the log.
    segments: Vec<CopiedSegment>,
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
            .partition_point(|copied| copied.header.start <= lsn);
        let CopiedSegment {
            header, bytes: all, ..
        } = self.segments.get(behind.checked_sub(1)?)?;
        let at = usize::try_from(lsn - header.start).ok()?;
        all.get(at..at.checked_add(bytes)?)
    }

    /// Its records, in order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let epoch = self.state.epoch;
        (self.segments.iter())
            .flat_map(move |copied| RecordWalk::new(&copied.bytes, copied.header, epoch))
    }
}

impl LaneCopy {
    /// The address from which the log goes on although it ends there, and a valid record that
    /// proves it: in the last segment, or in those `beside` the log.
    fn lost(&self, beside: &[CopiedSegment], owner: Uuid) -> Option<(Lsn, Lsn)> {
        let last = self.segments.last();
        let proof = (last.into_iter().chain(beside))
            .find_map(|copied| witness(&copied.bytes, owner, self.next, self.last_epoch));
        proof.map(|proof| (self.next, proof.lsn))
    }
}

impl Pool {
    /// A copy of the log of `owner`, whoever has the lane: as durable at this moment as the pool
    /// is. `None` if it has no lane.
    ///
    /// The pool must not be one in which this process has claimed a lane, but one that it has
    /// opened for this.
    ///
    /// # Errors
    /// Of the medium; damage of the tables; [`PoolErrorKind::LostRecords`]. I/O errors of the kind
    /// `WouldBlock`: the owner was so busy, or so many came one after another, that no copy is of
    /// one moment.
    pub fn copy_lane(&self, owner: Uuid) -> Result<Option<LaneCopy>, PoolError> {
        let (mut kept, mut lost_before) = (Vec::new(), None);
        let mut damaged = 0;
        for _ in 0..TRIES {
            let found = self.find_lane(owner).or_else(|e| match e.kind {
                // Tables that are read while they are written may contradict each other.
                PoolErrorKind::Damaged { .. } if damaged < DAMAGED_TRIES => {
                    damaged += 1;
                    thread::sleep(PAUSE);
                    Ok(FoundLane::Changing)
                }
                _ => Err(e),
            });
            let (lane, state, segments) = match found? {
                FoundLane::Whole(lane, state, segments) => (lane, state, segments),
                FoundLane::Absent => return Ok(None),
                FoundLane::Changing => {
                    (kept, lost_before) = (Vec::new(), None);
                    continue;
                }
            };
            damaged = 0;
            // Those above the head were not used again by now.
            kept.retain(|copied: &CopiedSegment| copied.header.start >= state.head);
            for segment in segments {
                if kept.iter().all(|copied| copied.segment != segment) {
                    kept.extend(self.copy_segment(segment, owner)?);
                }
            }
            self.core.load_tables()?;
            let now = self.core.tables().lane(lane).state;
            let now = now.filter(|now| now.taken && is_same_lane(now, &state));
            let Some(now) = now else {
                (kept, lost_before) = (Vec::new(), None);
                continue;
            };
            let (mut log, beside, found) = in_order(now, std::mem::take(&mut kept));
            let lost = log.lost(&beside, owner);
            match lost {
                None => return Ok(Some(log)),
                Some((lsn, witness)) if lost_before == Some(lsn) => {
                    return Err(self.core.fail(PoolErrorKind::LostRecords {
                        lane,
                        lsn,
                        found,
                        witness,
                    }));
                }
                Some((lsn, _)) => lost_before = Some(lsn),
            }
            // All but where the log seems to end, and what was not of it.
            log.segments.pop();
            kept = log.segments;
        }
        let busy = "its owner writes it faster than it is copied; try again";
        Err(PoolError::io(
            &self.core.path,
            "copying a lane",
            io::Error::new(io::ErrorKind::WouldBlock, busy),
        ))
    }

    /// The lane of `owner`, its state, and its segments.
    fn find_lane(&self, owner: Uuid) -> Result<FoundLane, PoolError> {
        self.core.load_tables()?;
        let Some((lane, entry)) = self.lane_of(owner)? else {
            return Ok(FoundLane::Absent);
        };
        let Some(state) = entry.state else {
            return Ok(FoundLane::Absent);
        };
        // The map had been written when the entry was; and whoever writes to it next changes the
        // entry first, or takes other segments.
        fence(Acquire);
        let segments = self.segments_of(lane, &entry);
        fence(Acquire);
        self.core.load_tables()?;
        let after = self.core.tables().lane(lane).state;
        if !after.is_some_and(|after| is_same_lane(&after, &state)) {
            return Ok(FoundLane::Changing);
        }
        Ok(FoundLane::Whole(lane, state, segments?))
    }

    /// A segment with its header, if it is one of `owner`'s log.
    fn copy_segment(&self, segment: u64, owner: Uuid) -> Result<Option<CopiedSegment>, PoolError> {
        let geometry = self.geometry();
        self.prepare_segment(segment, false)?;
        self.load_segment(segment)?;
        let mut bytes = vec![0; usize::try_from(geometry.segment_bytes).unwrap_or(usize::MAX)];
        self.core.media.load(geometry.segment(segment), &mut bytes);
        let header = SegmentHeader::decode(&bytes);
        let of_owner = |h: &SegmentHeader| h.owner == owner && h.bytes == geometry.segment_bytes;
        Ok(header.filter(of_owner).map(|header| CopiedSegment {
            segment,
            header,
            bytes,
        }))
    }
}

/// An owner's lane, as it was found.
enum FoundLane {
    Whole(u32, LaneState, Vec<u64>),
    Absent,
    /// It changed hands, or its segments did, while they were looked up.
    Changing,
}

/// True if both are of one owner's session with the same segments.
fn is_same_lane(a: &LaneState, b: &LaneState) -> bool {
    let of = |s: &LaneState| (s.taken, s.owner, s.incarnation, s.epoch, s.segments);
    of(a) == of(b)
}

/// The log that the segments hold from the head on, those that are not of it, and what stands at
/// its end: see `lane::recover`.
fn in_order(
    state: LaneState,
    mut copies: Vec<CopiedSegment>,
) -> (LaneCopy, Vec<CopiedSegment>, String) {
    let mut log = LaneCopy {
        state,
        end: state.head,
        next: state.head,
        last_epoch: 0,
        segments: Vec::new(),
    };
    let mut found = "no segment".to_owned();
    let mut expected = Some(state.head);
    while let Some(start) = expected.take() {
        let epochs = log.last_epoch..=state.epoch;
        let next = (copies.iter().enumerate())
            .filter(|(_, c)| c.header.start == start && epochs.contains(&c.header.epoch))
            .max_by_key(|(_, c)| c.header.epoch);
        let Some((at, _)) = next else {
            break;
        };
        let copied = copies.swap_remove(at);
        let (end, last) = RecordWalk::new(&copied.bytes, copied.header, state.epoch).finish();
        log.last_epoch = last;
        (log.end, log.next) = match end {
            WalkEnd::Sealed(end) => {
                expected = Some(next_start(end));
                "no segment".clone_into(&mut found);
                (end, next_start(end))
            }
            WalkEnd::Open(end, invalid) => {
                found = invalid.to_string();
                (end, end)
            }
        };
        log.segments.push(copied);
    }
    (log, copies, found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::CopiedSegment;
    use crate::{
        ClaimOptions, Pool, PoolErrorKind, PoolOptions,
        format::{layout::LANE_ENTRY, record::HEADER},
        media::{Media, PoolPersistence},
    };
    use parking_lot::Mutex;
    use std::{io::IoSlice, os::unix::fs::FileExt, path::Path, sync::Arc, time::Duration};
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

    #[test]
    fn tables_that_are_written_meanwhile_are_no_damaged_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let options = PoolOptions::new().size(1 << 20).segment_size(64 << 10);
        let pool = options.emulated(true).create(&path).unwrap();
        let owner = Uuid::new_v4();
        let (lane, _) = pool.claim(owner, &ClaimOptions::new()).unwrap();
        lane.append(7, &[IoSlice::new(b"record")]).unwrap();
        let looking = PoolOptions::new().open(&path).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path);
        let (file, at) = (file.unwrap(), pool.geometry().lane_entry(lane.number()));
        let mut entry = vec![0; LANE_ENTRY as usize];
        file.read_exact_at(&mut entry, at).unwrap();
        let half_written = || file.write_all_at(&[0xA5; LANE_ENTRY as usize], at).unwrap();
        half_written();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                file.write_all_at(&entry, at).unwrap();
            });
            let copy = looking.copy_lane(owner).unwrap().unwrap();
            assert_eq!(copy.records().count(), 1);
        });
        half_written();
        let error = looking.copy_lane(owner).map(drop).unwrap_err();
        assert!(
            matches!(error.kind, PoolErrorKind::Damaged { .. }),
            "{error}"
        );
        file.write_all_at(&entry, at).unwrap();
    }

    /// A medium before which something is done each time that so many bytes are read.
    struct BusyMedium<F> {
        inner: Arc<dyn Media>,
        bytes: usize,
        meanwhile: F,
    }

    impl<F> BusyMedium<F> {
        fn noted(&self, _: &[IoSlice<'_>], _: usize) {}
    }

    #[expect(unsafe_code, reason = "implements the trait's unsafe methods")]
    impl<F: Fn() + Send + Sync + 'static> Media for BusyMedium<F> {
        crate::forward_media!(medium inner then noted);

        fn durability(&self) -> PoolPersistence {
            self.inner.durability()
        }

        fn describe(&self) -> String {
            self.inner.describe()
        }

        fn fence(&self) {
            self.inner.fence();
        }

        fn is_free(&self, lock: u32) -> std::io::Result<bool> {
            self.inner.is_free(lock)
        }

        fn load(&self, offset: u64, to: &mut [u8]) {
            if to.len() == self.bytes {
                (self.meanwhile)();
            }
            self.inner.load(offset, to);
        }
    }

    fn pool(path: &Path) -> Pool {
        let options = PoolOptions::new().size(1 << 20).lanes(4);
        let options = options.segment_size(64 << 10).emulated(true);
        options.create(path).unwrap()
    }

    /// Promise (pool): A lane is copied while its owner drains it at any pace.
    #[test]
    fn a_lane_is_copied_beside_an_owner_that_never_rests() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let owner = Uuid::new_v4();
        let (lane, _) = (pool(&path).claim(owner, &ClaimOptions::new().segments(4))).unwrap();
        let lane = Arc::new(lane);
        let addresses = Arc::new(Mutex::new(Vec::new()));
        let meanwhile = {
            let (lane, addresses) = (Arc::clone(&lane), Arc::clone(&addresses));
            move || {
                // More than a segment, and away with one.
                for _ in 0..25 {
                    let lsn = lane.append(7, &[IoSlice::new(&[7; 3000])]).unwrap();
                    addresses.lock().push(lsn);
                }
                while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
                    sealed.release();
                }
            }
        };
        let looking = PoolOptions::new().open(&path).unwrap();
        let looking = looking.on_layer(|inner| {
            let bytes = 64 << 10;
            Arc::new(BusyMedium {
                inner,
                bytes,
                meanwhile,
            })
        });
        for _ in 0..20 {
            let before = addresses.lock().clone();
            let copy = looking.copy_lane(owner).unwrap().unwrap();
            let found: Vec<_> = copy.records().map(|record| record.header.lsn).collect();
            let due = before.iter().filter(|lsn| **lsn >= copy.head());
            assert!(due.into_iter().all(|lsn| found.contains(lsn)));
            assert!(copy.end() >= copy.head());
        }
    }

    /// Promise (pool): A damaged record that others were written behind is no end of the log to a
    /// reader either.
    #[test]
    fn a_copy_of_a_lane_that_lost_records_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let owner = Uuid::new_v4();
        let pool = pool(&path);
        let (lane, _) = pool.claim(owner, &ClaimOptions::new().segments(4)).unwrap();
        let append = |_| lane.append(7, &[IoSlice::new(&[7; 3000])]).unwrap();
        let addresses: Vec<u64> = (0..40).map(append).collect();
        let looking = PoolOptions::new().open(&path).unwrap();
        let copy = looking.copy_lane(owner).unwrap().unwrap();
        assert_eq!((copy.segments.len(), copy.records().count()), (2, 40));
        let place_of = |lsn: u64| {
            let holds = |c: &&CopiedSegment| c.header.start <= lsn;
            let copied = copy.segments.iter().rfind(holds).unwrap();
            pool.geometry().segment(copied.segment) + lsn - copied.header.start
        };
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        // A record, and the whole first segment by its header.
        for at in [
            place_of(addresses[5]),
            place_of(copy.segments[0].header.start),
        ] {
            let mut right = [0; 100];
            looking.core.media.load(at, &mut right);
            file.write_all_at(&[0xa5; 100], at).unwrap();
            let lost = looking.copy_lane(owner).err().unwrap();
            let is_lost = matches!(lost.kind, PoolErrorKind::LostRecords { .. });
            assert!(is_lost, "{lost}");
            file.write_all_at(&right, at).unwrap();
            assert_eq!(
                looking.copy_lane(owner).unwrap().unwrap().records().count(),
                40
            );
        }
        // The last one may never have been whole.
        let last = place_of(addresses[39]);
        file.write_all_at(&[0xa5; 100], last).unwrap();
        assert_eq!(
            looking.copy_lane(owner).unwrap().unwrap().records().count(),
            39
        );
    }
}
