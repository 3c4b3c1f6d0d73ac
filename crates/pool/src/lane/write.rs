//! Appends, to a lane and to a shared one: a payload's bounds, and a record's way to its reserved
//! place.

use crate::{
    error::AppendError,
    format::record::{FirstLine, INLINE, KIND_SEAL, KIND_VOID, RecordHeader},
    media::Media,
    persist::LINE,
};
use std::io::IoSlice;
use uuid::Uuid;

/// Bytes of the payload of an owner's record, checked.
///
/// # Panics
/// If the kind is the pool's own.
#[inline]
pub(crate) fn payload_of(
    kind: u16,
    parts: &[IoSlice<'_>],
    bytes_max: usize,
) -> Result<usize, AppendError> {
    assert!(
        kind != KIND_SEAL && kind != KIND_VOID,
        "the kind is the pool's own"
    );
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    if bytes > bytes_max {
        return Err(AppendError::TooLarge { bytes, bytes_max });
    }
    Ok(bytes)
}

/// Copies one record to its reserved place, `offset` in the pool, and makes it durable. The caller
/// has checked its length.
#[inline]
pub(crate) fn write_record(
    media: &dyn Media,
    offset: u64,
    header: &RecordHeader,
    owner: Uuid,
    parts: &[IoSlice<'_>],
) {
    let payload = header.length as usize;
    let torn = payload > INLINE && crate::failpoint::hit("pool:append-torn");
    let mut first = FirstLine::new(header, owner, parts);
    if payload > INLINE && !torn {
        media.store_once(offset + LINE as u64, parts, INLINE, &mut first.sum);
    }
    media.store(offset, &[IoSlice::new(&first.finish())]);
    if torn {
        // Before the fence lines arrive in any order: this one did, the others did not.
        media.fence();
        crate::failpoint::announce("pool:append-torn");
    }
    media.fence();
}
