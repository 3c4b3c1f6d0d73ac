//! [`Head`]: where the log grows.

use super::{Claim, FileHead, Resident};
use crate::error::StoreError;
use forebay_pool::{Lane, Lsn};
use std::io::IoSlice;

/// The end of the log.
pub(crate) enum Head {
    /// In a pool: an append is durable when it returns; a drain moves segments to the files.
    Pool(Box<Lane>),
    /// In a pool, where it stays.
    Resident(Resident),
    /// In the last value-log file.
    File(FileHead),
}

impl Head {
    /// The lane, if there is one.
    #[inline]
    pub(crate) fn lane(&self) -> Option<&Lane> {
        match self {
            Self::Pool(lane) => Some(lane),
            Self::Resident(resident) => Some(resident.lane()),
            Self::File(_) => None,
        }
    }

    /// Appends a record; when this returns, it is as durable as the variant promises. Only a resident log asks what `claim` the
    /// writer has to its last free segments; [`StoreError::Full`] if that has no room now.
    #[inline]
    pub(crate) fn append(
        &self,
        claim: Claim,
        kind: u16,
        parts: &[IoSlice<'_>],
    ) -> Result<Lsn, StoreError> {
        match self {
            Self::Resident(resident) => resident.append(claim, kind, parts),
            Self::Pool(lane) => Ok(lane.append(kind, parts)?),
            Self::File(file) => file.append(kind, parts),
        }
    }

    /// The lane that drains to the value log, and how far the record at `lsn` lies in its crowded end, if it does.
    #[inline]
    pub(crate) fn crowding(&self, lsn: Lsn) -> Option<(&Lane, f64)> {
        match self {
            Self::Pool(lane) => lane.crowding(lsn).map(|far| (&**lane, far)),
            Self::Resident(_) | Self::File(_) => None,
        }
    }

    /// Payload bytes of one record at most.
    #[inline]
    pub(crate) fn payload_max(&self) -> usize {
        match self {
            Self::Pool(lane) => lane.payload_max(),
            Self::Resident(resident) => resident.lane().payload_max(),
            Self::File(file) => file.payload_max(),
        }
    }

    /// Log address of the next record.
    pub(crate) fn tail(&self) -> Lsn {
        match self {
            Self::Pool(lane) => lane.usage().tail,
            Self::Resident(resident) => resident.lane().usage().tail,
            Self::File(file) => file.tail(),
        }
    }

    /// Log address below which everything is in the files, or, if it is resident, where the log begins.
    pub(crate) fn drained(&self) -> Lsn {
        match self {
            Self::Pool(lane) => lane.usage().head,
            Self::Resident(resident) => resident.lane().usage().head,
            Self::File(file) => file.tail(),
        }
    }

    /// Makes everything appended durable, wherever it is.
    pub(crate) fn make_durable(&self) -> Result<(), StoreError> {
        match self {
            Self::Pool(_) | Self::Resident(_) => Ok(()),
            Self::File(file) => file.sync(),
        }
    }

    /// Waits until everything appended before is durable in the value-log files, or where it stays.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        match self {
            Self::Pool(lane) => Ok(lane.wait_drained(lane.seal())?),
            Self::Resident(_) => Ok(()),
            Self::File(file) => file.sync(),
        }
    }
}
