//! [`Head`]: where the log grows.

use super::FileHead;
use crate::error::StoreError;
use forebay_pool::{Lane, Lsn};
use std::io::IoSlice;

/// The end of the log.
pub(crate) enum Head {
    /// In a pool: an append is durable when it returns; a drain moves segments to the files.
    Pool(Box<Lane>),
    /// In the last value-log file.
    File(FileHead),
}

impl Head {
    /// Appends a record; when this returns, it is as durable as the variant promises.
    #[inline]
    pub(crate) fn append(&self, kind: u16, parts: &[IoSlice<'_>]) -> Result<Lsn, StoreError> {
        match self {
            Self::Pool(lane) => Ok(lane.append(kind, parts)?),
            Self::File(file) => file.append(kind, parts),
        }
    }

    /// Payload bytes of one record at most.
    #[inline]
    pub(crate) fn payload_max(&self) -> usize {
        match self {
            Self::Pool(lane) => lane.payload_max(),
            Self::File(file) => file.payload_max(),
        }
    }

    /// Log address of the next record.
    pub(crate) fn tail(&self) -> Lsn {
        match self {
            Self::Pool(lane) => lane.usage().tail,
            Self::File(file) => file.tail(),
        }
    }

    /// Log address below which everything is in the files.
    pub(crate) fn drained(&self) -> Lsn {
        match self {
            Self::Pool(lane) => lane.usage().head,
            Self::File(file) => file.tail(),
        }
    }

    /// Makes everything appended durable, wherever it is.
    pub(crate) fn make_durable(&self) -> Result<(), StoreError> {
        match self {
            Self::Pool(_) => Ok(()),
            Self::File(file) => file.sync(),
        }
    }

    /// Waits until everything appended before is durable in the value-log files.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        match self {
            Self::Pool(lane) => Ok(lane.wait_drained(lane.seal())?),
            Self::File(file) => file.sync(),
        }
    }
}
