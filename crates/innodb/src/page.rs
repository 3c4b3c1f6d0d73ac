//! A page in memory.

use crate::PAGE_BYTES;

/// A page, where direct I/O can read to.
#[repr(C, align(4096))]
pub(crate) struct PageBuffer(pub [u8; PAGE_BYTES]);
