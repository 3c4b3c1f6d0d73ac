//! Memory for the bytes that a call transfers. It lies in its page as the caller's does, so a file
//! that is open with `O_DIRECT` takes or refuses the one as it would the other.

use crate::caller::PAGE_BYTES;
use rustix::io::Errno;

#[derive(Default)]
pub(super) struct CopiedBytes {
    memory: Vec<u8>,
    /// Offset of the first byte.
    begin: usize,
}

impl CopiedBytes {
    pub(super) const fn new() -> Self {
        Self {
            memory: Vec::new(),
            begin: 0,
        }
    }

    /// Makes it empty, with room for so many bytes that lie as those at an address do.
    ///
    /// # Errors
    /// `ENOMEM`
    pub(super) fn prepare(&mut self, address: u64, bytes: usize) -> Result<(), Errno> {
        self.memory.clear();
        self.memory
            .try_reserve(bytes + PAGE_BYTES)
            .map_err(|_| Errno::NOMEM)?;
        let own = self.memory.as_ptr().addr();
        self.begin = (address as usize).wrapping_sub(own) % PAGE_BYTES;
        self.memory.resize(self.begin, 0);
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..]
    }

    pub(super) fn len(&self) -> usize {
        self.memory.len() - self.begin
    }

    /// The memory, to be filled behind its bytes with no more than was prepared.
    pub(super) fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.memory.shrink_to(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_lie_in_their_page_as_the_callers_bytes_do() {
        let mut copied = CopiedBytes::new();
        for (address, bytes) in [(0x7000, 4096), (0x7200, 512), (0x7003, 100_000)] {
            copied.prepare(address, bytes).unwrap();
            let end = copied.begin + bytes;
            copied.memory().resize(end, 7);
            let lies = copied.bytes().as_ptr().addr() % PAGE_BYTES;
            assert_eq!(lies, address as usize % PAGE_BYTES);
            assert_eq!(copied.len(), bytes);
        }
    }
}
