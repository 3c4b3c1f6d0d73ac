//! The log's end, and the tail with which it goes on. docs/store-format.md, "Opening", 4 and 5.
//!
//! A lane that this session can use keeps what is in it, and the log goes on behind. Any other is
//! emptied into the value-log files; then, as without a lane, the log ends in the files, and goes
//! on in a new lane or in the next file. Nothing that was acknowledged lies behind the end, and
//! what else lies there is never read as a part of the log.

use super::{
    lane::{LeftLane, claim_options},
    session::OpeningSession,
};
use crate::{
    db::recovery::{find_end, walk},
    error::StoreError,
    log::{FileTail, LogTail, Resident, drain, drain_one},
    options::Durability,
};
use forebay_pool::{AppendError, Lane, Lsn, Recovered, format::segment::next_start};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

/// Room that an opening needs beside that for the log: for the headers of files and the manifest.
const MORE: u64 = 1 << 20;

/// The log as a session begins with it.
pub(super) struct OpenedLog {
    pub(super) tail: LogTail,
    /// The end of the log in the files.
    pub(super) files_end: Lsn,
    /// The lane's records beyond it.
    pub(super) recovered: Option<Recovered>,
    /// The session's number.
    pub(super) epoch: u32,
}

impl OpeningSession<'_> {
    /// Finds where the log ends and makes the tail with which it goes on.
    pub(super) fn open_log(&self, lane: Option<LeftLane>) -> Result<OpenedLog, StoreError> {
        let watermark = self.watermark();
        let (files_end, epoch) = match lane {
            Some((lane, recovered)) if self.can_use(&lane, &recovered) => {
                return self.go_on_in(lane, recovered);
            }
            Some((lane, recovered)) => {
                self.walk(watermark, recovered.head())?;
                let epoch = lane.epoch();
                (self.empty(lane, recovered)?, epoch)
            }
            None => {
                let (end, last) = self.end_in_files()?;
                (end, last.saturating_add(1))
            }
        };
        let epoch = epoch.max(self.state.epoch.saturating_add(1));
        // Never below what the index was told of, where a replay would not look; nor at addresses
        // that it leads to.
        let start = next_start(files_end.max(watermark));
        let closed = self.state.log_end.is_some() && !self.options.salvage;
        self.log.end_at(watermark, files_end, epoch, closed)?;
        if start > next_start(files_end) {
            self.log.complete_at(next_start(files_end))?;
        }
        self.begin_at(start, files_end, epoch)
    }

    /// True if this session's log goes on in the lane that the last one left.
    fn can_use(&self, lane: &Lane, recovered: &Recovered) -> bool {
        let Durability::Buffered(buffers) = self.options.durability else {
            return false;
        };
        // The index may have been told of the seal behind the last record.
        let lost = next_start(recovered.end()) < self.watermark();
        // A resident log is to have all the room that it was given.
        let enough = !self.options.resident || lane.segments() >= usize::from(buffers);
        !lost && enough
    }

    /// Goes on in the lane that the last session left, with what is in it.
    fn go_on_in(&self, lane: Lane, recovered: Recovered) -> Result<OpenedLog, StoreError> {
        let files_end = recovered.head();
        if self.options.resident {
            self.walk(self.watermark(), files_end)?;
        }
        Ok(OpenedLog {
            epoch: lane.epoch(),
            tail: self.tail(lane, files_end)?,
            files_end,
            recovered: Some(recovered),
        })
    }

    /// Where the log ends in the files, if no lane has anything of it, and the last session that
    /// wrote there. The manifest knows nothing of an opening that emptied a lane, with a seal of
    /// its own, and was cut then.
    fn end_in_files(&self) -> Result<(Lsn, u32), StoreError> {
        let (watermark, salvage) = (self.watermark(), self.options.salvage);
        if let Some(end) = self.state.log_end.filter(|_| !salvage) {
            return Ok((end, self.walk(watermark, end)?));
        }
        let (end, epoch) = find_end(&self.log, self.state.uuid, watermark, salvage)?;
        if salvage && end <= watermark {
            // What the index was told of need not be there.
            return Ok((self.log.content_end(end)?, epoch));
        }
        Ok((end, epoch))
    }

    /// A tail that begins at `start`, while the log in the files ends at `files_end`.
    fn begin_at(&self, start: Lsn, files_end: Lsn, epoch: u32) -> Result<OpenedLog, StoreError> {
        let buffered = matches!(self.options.durability, Durability::Buffered(_));
        let Some(pool) = self.pool.filter(|_| buffered) else {
            let tail = FileTail::new(
                self.state.uuid,
                epoch,
                self.options.segment_bytes,
                self.options.durability == Durability::Fsync,
                Arc::clone(&self.log),
                start,
            );
            return Ok(OpenedLog {
                tail: LogTail::File(tail),
                files_end,
                recovered: None,
                epoch,
            });
        };
        let options = claim_options(self.dir, self.options, epoch.saturating_sub(1), start);
        let (lane, recovered) = pool.claim(self.state.uuid, &options)?;
        Ok(OpenedLog {
            epoch: lane.epoch().max(epoch),
            tail: self.tail(lane, start)?,
            files_end,
            recovered: Some(recovered),
        })
    }

    /// Checks that the log in the files can be read in order from one address to another, before it
    /// is built on; the last session there.
    fn walk(&self, from: Lsn, to: Lsn) -> Result<u32, StoreError> {
        if self.options.salvage {
            return Ok(0);
        }
        walk(&self.log, self.state.uuid, from, to, |_, _| Ok(()))
    }

    /// The tail of a log that goes on in `lane`, which begins at `start`.
    fn tail(&self, lane: Lane, start: Lsn) -> Result<LogTail, StoreError> {
        let lane = Box::new(lane);
        if !self.options.resident {
            return Ok(LogTail::Pool(lane));
        }
        self.log.complete_at(start)?;
        // A session that ended in the middle of a segment leaves it short. If the collector has no
        // empty one to copy to, the oldest goes to a file, as it would without resident.
        let usage = lane.usage();
        if usage.segments_used == usage.segments && lane.segment().is_none() {
            drain_one(&lane, &self.log)?;
            self.log.complete_at(lane.usage().head)?;
        }
        Ok(LogTail::Resident(Resident::new(lane)))
    }

    /// The store cannot be opened before there is room for so many `bytes` of log.
    pub(super) fn no_room(&self, bytes: u64, reason: String) -> StoreError {
        StoreError::NoRoomToOpen {
            dir: self.dir.to_owned(),
            bytes: bytes + MORE,
            reason,
        }
    }

    /// Moves everything that the lane holds to the value-log files and gives the lane back; where
    /// the log ends then. What is dead may have the room that the files need, and goes first.
    fn empty(&self, lane: Lane, recovered: Recovered) -> Result<Lsn, StoreError> {
        drop(recovered);
        self.unlink_dead();
        let end = lane.seal();
        let (order, stop) = (Mutex::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| drain(&lane, &self.log, &order, &stop));
            let drained = lane.wait_drained(end);
            stop.store(true, SeqCst);
            drained
        })
        .map_err(|error| match (error, self.log.reserve().is_short()) {
            (AppendError::Stalled(reason), true) => self.no_room(end - lane.usage().head, reason),
            (error, _) => error.into(),
        })?;
        // First: a process that finds no lane in the pool then is told that the files have
        // everything.
        self.log.note(|state| {
            state.log_end = Some(end);
        })?;
        if lane.remove() {
            Ok(end)
        } else {
            Err(StoreError::damaged(
                &self
                    .pool
                    .map_or_else(Default::default, |p| p.path().to_owned()),
                "the drained lane is not empty",
            ))
        }
    }
}
