//! A page in memory.

/// Bytes of a page: InnoDB's default, which the cache is made for.
pub const PAGE_BYTES: usize = 16 << 10;

/// A page, where direct I/O can read to.
#[repr(C, align(4096))]
pub(crate) struct PageBuffer(pub [u8; PAGE_BYTES]);
