//! Memory that a device can be read into and written from directly.

use std::ops::{Deref, DerefMut};

/// The largest alignment that `O_DIRECT` asks of an address.
pub(crate) const ALIGN: usize = 4096;

/// A fixed number of bytes that begin at a multiple of [`ALIGN`].
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    /// `bytes` zeros.
    pub(crate) fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + ALIGN];
        // At most ALIGN - 1 for bytes; the memory is never moved after this.
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self {
            memory,
            start,
            bytes,
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_where_direct_io_wants_it() {
        for bytes in [1, 512, 4096, 1 << 20] {
            let buffer = Buffer::new(bytes);
            assert_eq!(buffer.len(), bytes);
            assert_eq!(buffer.as_ptr().align_offset(ALIGN), 0);
        }
    }
}
