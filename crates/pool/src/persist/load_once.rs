//! Loading memory once that its owner may change at any moment.
//!
//! A program may write to a buffer from another thread while it is being appended (InnoDB does,
//! with the last block of its redo log). What is stored must be what is checksummed all the same.
//! So each byte of such memory is loaded exactly once, to a [`CopyBuffer`] that is ours, and the
//! checksum and the stores take it from there. The block is small enough to stay in the first-level
//! cache.
#![expect(
    unsafe_code,
    reason = "loads memory that another thread may be changing"
)]

use super::LINE;
use std::{arch::asm, mem::MaybeUninit};

/// Bytes of a [`CopyBuffer`] at most. It is on the stack of a program's thread, or of its signal
/// handler.
const BLOCK: usize = 1024;

const _: () = assert!(BLOCK.is_multiple_of(LINE));

/// Room for some of a caller's bytes on their way to the memory.
#[repr(align(64))]
pub(super) struct CopyBuffer {
    bytes: [MaybeUninit<u8>; BLOCK],
    /// So many are used.
    room: usize,
    /// The first so many bytes are there.
    filled: usize,
}

impl CopyBuffer {
    /// An empty one of `step` bytes, the unit of the stores that need none; or of as many as there
    /// are, if that is 0.
    #[inline]
    pub(super) fn new(step: usize) -> Self {
        Self {
            bytes: [MaybeUninit::uninit(); BLOCK],
            room: if step == 0 { BLOCK } else { step.min(BLOCK) },
            filled: 0,
        }
    }

    /// Takes as many bytes from the front of `from` as there is room for; gives the rest.
    #[inline]
    pub(super) fn take<'a>(&mut self, from: &'a [u8]) -> &'a [u8] {
        let (now, later) = from.split_at(from.len().min(self.room - self.filled));
        load(&mut self.bytes[self.filled..][..now.len()], now);
        self.filled += now.len();
        later
    }

    /// True if there is no room left.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.filled == self.room
    }

    /// The bytes that are there.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `take` and `pad` wrote the first `filled` bytes.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.filled) }
    }

    /// Fills the last line with zeros.
    #[inline]
    pub(super) fn pad(&mut self) {
        let end = self.filled.next_multiple_of(LINE);
        self.bytes[self.filled..end].fill(MaybeUninit::new(0));
        self.filled = end;
    }

    /// Makes room again.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }
}

/// Copies `from`, which another thread may be changing, to `to`. Afterwards `to` holds for each
/// byte one value that it had, and nothing that is read from `to` is ever loaded from `from` again.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub(crate) fn load_once(to: &mut [u8], from: &[u8]) {
    // SAFETY: initialized bytes are also `MaybeUninit` bytes, and `load` writes initialized ones
    // only.
    let to = unsafe { &mut *(std::ptr::from_mut(to) as *mut [MaybeUninit<u8>]) };
    load(to, from);
}

#[inline]
fn load(to: &mut [MaybeUninit<u8>], from: &[u8]) {
    assert_eq!(to.len(), from.len());
    let to = to.as_mut_ptr().cast::<u8>();
    // SAFETY: both ranges are valid for the length, and do not overlap: `to` is borrowed mutably. A
    // byte that another thread changes at this moment is loaded as the old or the new one:
    // processors know nothing else.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    // SAFETY: no instruction. To the compiler it may have stored anything through `to`; so it
    // cannot take what is read from `to` afterwards for what is in `from`, and load it from there a
    // second time.
    unsafe { asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_what_it_has_room_for_and_pads_to_a_line() {
        let source: Vec<u8> = (0..BLOCK + 100).map(|i| (i * 7 + 1) as u8).collect();
        let mut block = CopyBuffer::new(0);
        assert!(block.take(&source[..30]).is_empty());
        assert_eq!(block.bytes(), &source[..30]);
        let left = block.take(&source[30..]);
        assert_eq!(left, &source[BLOCK..]);
        assert!(block.is_full());
        assert_eq!(block.bytes(), &source[..BLOCK]);
        block.clear();
        assert!(block.take(left).is_empty());
        block.pad();
        assert_eq!(block.bytes(), &[&source[BLOCK..], &[0; 28]].concat());
        block.pad();
        assert_eq!(block.bytes().len(), 128);
    }
}
