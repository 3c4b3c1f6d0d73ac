//! Reading and writing a page file past the cache, as its caller does it.

use rustix::io::Errno;

/// Reads or writes the file itself, by the caller's descriptor, at an offset: bytes that were read
/// or written.
pub type RealRead<'a> = &'a mut dyn FnMut(&mut [u8], u64) -> Result<usize, Errno>;
/// See [`RealRead`].
pub type RealWrite<'a> = &'a mut dyn FnMut(&[u8], u64) -> Result<usize, Errno>;
