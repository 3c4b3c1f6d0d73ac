//! [`LogTail`]: the growing end of the log.

use super::{
    FileTail, ReadTail, Resident, RoomClaim,
    refused::{opened_read_only, read_only, refused},
};
use crate::error::StoreError;
use forebay_pool::{Crowded, Lane, Lsn};
use std::io::IoSlice;

/// The end of the log.
pub(crate) enum LogTail {
    /// In a pool: an append is durable when it returns, or, on a disk, once it is committed; a
    /// drain moves segments to the files.
    Pool(Box<Lane>),
    /// In a pool, where it stays.
    Resident(Resident),
    /// In the last value-log file.
    File(FileTail),
    /// Another process's, if any: nothing is appended.
    ReadOnly(ReadTail),
}

impl LogTail {
    /// The lane, if there is one.
    #[inline]
    pub(crate) fn lane(&self) -> Option<&Lane> {
        match self {
            Self::Pool(lane) => Some(lane),
            Self::Resident(resident) => Some(resident.lane()),
            Self::File(_) | Self::ReadOnly(_) => None,
        }
    }

    /// Appends a record; when this returns, it is as durable as the options promise, but for a
    /// pool on a disk ([`commit`](Self::commit)). Only a resident log asks what `claim` the writer
    /// has to its last free segments; [`StoreError::Full`] if that has no room now.
    #[inline]
    pub(crate) fn append(
        &self,
        claim: RoomClaim,
        kind: u16,
        parts: &[IoSlice<'_>],
    ) -> Result<Lsn, StoreError> {
        match self {
            Self::Resident(resident) => resident.append(claim, kind, parts),
            Self::Pool(lane) => lane.append(kind, parts).map_err(|e| refused(lane, e)),
            Self::File(file) => file.append(kind, parts),
            Self::ReadOnly(_) => Err(opened_read_only()),
        }
    }

    /// The lane that drains to the value log, and what it says of the record of `bytes` at `lsn`,
    /// if that lies where the lane is crowded.
    #[inline]
    pub(crate) fn crowding(&self, lsn: Lsn, bytes: u64) -> Option<(&Lane, Crowded)> {
        match self {
            Self::Pool(lane) => lane.crowding(lsn, bytes).map(|crowded| (&**lane, crowded)),
            Self::Resident(_) | Self::File(_) | Self::ReadOnly(_) => None,
        }
    }

    /// Payload bytes of one record at most.
    #[inline]
    pub(crate) fn payload_max(&self) -> usize {
        match self {
            Self::Pool(lane) => lane.payload_max(),
            Self::Resident(resident) => resident.lane().payload_max(),
            Self::File(file) => file.payload_max(),
            Self::ReadOnly(_) => 0,
        }
    }

    /// Log address of the next record.
    pub(crate) fn tail(&self) -> Lsn {
        match self {
            Self::Pool(lane) => lane.usage().tail,
            Self::Resident(resident) => resident.lane().usage().tail,
            Self::File(file) => file.tail(),
            Self::ReadOnly(tail) => tail.end(),
        }
    }

    /// Log address below which everything is in the files, or, if it is resident, where the log
    /// begins.
    pub(crate) fn drained(&self) -> Lsn {
        match self {
            Self::Pool(lane) => lane.usage().head,
            Self::Resident(resident) => resident.lane().usage().head,
            Self::File(file) => file.tail(),
            Self::ReadOnly(tail) => tail.end(),
        }
    }

    /// The same, also of a log that is only read: behind that it is in the copy of a pool.
    pub(crate) fn in_files(&self) -> Lsn {
        match self {
            Self::ReadOnly(tail) => tail.in_files(),
            _ => self.drained(),
        }
    }

    /// So many bytes at a log address, if a look has copied them from a pool.
    pub(crate) fn copied(&self, lsn: Lsn, bytes: usize) -> Option<&[u8]> {
        match self {
            Self::ReadOnly(tail) => tail.read(lsn, bytes),
            _ => None,
        }
    }

    /// True if an append in a pool is durable only once it is [committed](Self::commit): the pool
    /// lies on a disk.
    pub(crate) fn needs_commit(&self) -> bool {
        self.lane().is_some_and(Lane::needs_commit)
    }

    /// Makes the record at `lsn` durable, and all before it, where an append in a pool is not so by
    /// itself.
    pub(crate) fn commit(&self, lsn: Lsn) -> Result<(), StoreError> {
        let Some(lane) = self.lane() else {
            return Ok(());
        };
        lane.commit(lsn + 1).map_err(|error| match lane.failure() {
            Some(reason) => StoreError::NotCommitted { reason },
            None => error.into(),
        })
    }

    /// Makes everything durable that writers have appended.
    pub(crate) fn commit_written(&self) -> Result<(), StoreError> {
        match self {
            Self::Resident(resident) => {
                let written = resident.lane().commit(resident.written());
                written.map_err(|e| refused(resident.lane(), e))
            }
            Self::Pool(_) | Self::File(_) | Self::ReadOnly(_) => self.make_durable(),
        }
    }

    /// Makes everything appended durable, wherever it is.
    pub(crate) fn make_durable(&self) -> Result<(), StoreError> {
        match self {
            Self::Pool(_) | Self::Resident(_) => self.lane().map_or(Ok(()), |lane| {
                lane.commit(Lsn::MAX).map_err(|e| refused(lane, e))
            }),
            Self::File(file) => file.sync(),
            Self::ReadOnly(_) => Ok(()),
        }
    }

    /// The error if the pool failed.
    pub(crate) fn failed(&self) -> Option<StoreError> {
        self.lane()?.failure().map(|reason| read_only(&reason))
    }

    /// The reason that the pool's records cannot be written to the files at present, if so.
    pub(crate) fn stalled(&self) -> Option<String> {
        let reason = self.lane()?.stalled()?;
        Some(format!("the value log cannot be written ({reason})"))
    }

    /// Waits until everything appended before is durable in the value-log files, or where it stays.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        match self {
            Self::Pool(lane) => {
                let drained = lane.wait_drained(lane.seal());
                drained.map_err(|e| refused(lane, e))
            }
            Self::Resident(_) => self.commit_written(),
            Self::File(file) => file.sync(),
            Self::ReadOnly(_) => Ok(()),
        }
    }
}
