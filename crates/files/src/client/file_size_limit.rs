//! A process whose limit on the size of files is below the pool's size is no member.

use crate::sys;
use forebay_pool::media::size_limit_below;
use std::os::fd::{AsFd, OwnedFd};

/// The memory of a pool on a disk, if it is one and this process may write to all of the pool's
/// file. To any other pool it writes as to memory.
///
/// # Errors
/// In words: it may not.
pub(super) fn checked(memory: Option<OwnedFd>, pool: impl AsFd) -> Result<Option<OwnedFd>, String> {
    let bytes = sys::stat_of(&pool).map_err(|e| format!("the pool: {e}"))?;
    let bytes = bytes.st_size.unsigned_abs();
    match memory.as_ref().and_then(|_| size_limit_below(pool, bytes)) {
        Some(limit) => Err(format!(
            "its limit on the size of files (ulimit -f) is {limit} bytes, and the pool's file, which it would write to, has {bytes}"
        )),
        None => Ok(memory),
    }
}
