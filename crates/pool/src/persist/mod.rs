//! Getting bytes into persistent memory: copy, then fence.
//!
//! This module owns the instructions. On x86-64 bytes are copied with non-temporal stores, which
//! pass the caches by, and one `sfence` makes them durable (with ADR the memory controller's queue
//! is inside the power-fail domain). On aarch64 they are copied, cleaned to the point of
//! persistence line by line (`dc cvap`), and ordered by `dsb`. What the processor offers is
//! detected once at run time. See docs/pool-format.md, "What the processor must do".
//!
//! A store becomes durable at the next fence *of the thread that issued it*.
//!
//! Memory of a caller who may change it meanwhile is loaded once, and what is stored is what is
//! checksummed (`load_once`).

use crate::checksum::Checksum;
use std::{io::IoSlice, sync::OnceLock};

mod load_once;
use load_once::CopyBuffer;
pub(crate) use load_once::load_once;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("forebay-pool knows how to persist memory on x86-64 and aarch64 only");

/// Bytes in a cache line: the unit that is written, flushed and torn.
pub const LINE: usize = 64;

/// The instructions this machine persists memory with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persist {
    stores: arch::Stores,
    flushes: arch::Flushes,
    folds: arch::Folds,
}

impl Persist {
    /// The best that this processor offers (detected once, then cached).
    #[must_use]
    pub fn detect() -> Self {
        static DETECTED: OnceLock<Persist> = OnceLock::new();
        *DETECTED.get_or_init(|| Self {
            stores: arch::Stores::detect(),
            flushes: arch::Flushes::detect(),
            folds: arch::Folds::detect(),
        })
    }

    /// The instructions' names: for copying and for flushing lines written otherwise.
    #[must_use]
    pub fn names(&self) -> (&'static str, &'static str) {
        (self.stores.name(), self.flushes.name())
    }

    /// Copies the concatenation of `parts`, from its byte `skip` on, to `dst`, so that the next
    /// [`fence`](Self::fence) makes it durable. The rest of the last line is filled with zeros.
    ///
    /// # Safety
    /// `dst` is aligned to [`LINE`] and writable for the copied length rounded up to whole
    /// lines, and no other thread reads or writes that range meanwhile.
    #[expect(unsafe_code, reason = "raw stores to persistent memory")]
    pub unsafe fn stream(&self, dst: *mut u8, parts: &[IoSlice<'_>], skip: usize) {
        debug_assert_eq!(dst as usize % LINE, 0);
        let mut to = dst;
        let mut skip = skip;
        let mut line = CacheLine([0; LINE]);
        let mut filled = 0;
        for part in parts {
            let mut from: &[u8] = part;
            if skip >= from.len() {
                skip -= from.len();
                continue;
            }
            from = &from[skip..];
            skip = 0;
            if filled > 0 {
                let take = from.len().min(LINE - filled);
                line.0[filled..filled + take].copy_from_slice(&from[..take]);
                filled += take;
                from = &from[take..];
                if filled < LINE {
                    continue;
                }
                // SAFETY: `to` is a whole line inside the caller's range, see above.
                unsafe { self.stores.copy(to, line.0.as_ptr(), LINE) };
                to = to.wrapping_add(LINE);
            }
            let whole = from.len() / LINE * LINE;
            if whole > 0 {
                // SAFETY: as above, for `whole` bytes.
                unsafe { self.stores.copy(to, from.as_ptr(), whole) };
                to = to.wrapping_add(whole);
            }
            filled = from.len() - whole;
            line.0[..filled].copy_from_slice(&from[whole..]);
        }
        if filled > 0 {
            line.0[filled..].fill(0);
            // SAFETY: the last, zero-filled line of the caller's range.
            unsafe { self.stores.copy(to, line.0.as_ptr(), LINE) };
        }
    }

    /// Copies as [`stream`](Self::stream) does, memory that another thread may be changing: each
    /// byte is loaded once, and `sum` is continued over the stored bytes (without the zeros behind
    /// them).
    ///
    /// # Safety
    /// As [`stream`](Self::stream).
    #[expect(unsafe_code, reason = "raw stores to persistent memory")]
    #[inline]
    pub unsafe fn stream_once(
        &self,
        dst: *mut u8,
        parts: &[IoSlice<'_>],
        skip: usize,
        sum: &mut Checksum,
    ) {
        debug_assert_eq!(dst as usize % LINE, 0);
        let mut to = dst;
        let mut skip = skip;
        let step = self.folds.step();
        let mut block = CopyBuffer::new(step);
        for part in parts {
            let (_, mut from) = part.split_at(skip.min(part.len()));
            skip = skip.saturating_sub(part.len());
            while !from.is_empty() {
                if step > 0 && from.len() >= step && block.bytes().is_empty() {
                    let whole = from.len() / step * step;
                    // SAFETY: `whole` bytes of the caller's range, from a line on: all before were
                    // whole lines.
                    unsafe { self.folds.copy(to, from.as_ptr(), whole, sum) };
                    to = to.wrapping_add(whole);
                    from = &from[whole..];
                }
                from = block.take(from);
                if block.is_full() {
                    // SAFETY: as above, for a block.
                    to = unsafe { self.store(to, &mut block, sum) };
                }
            }
        }
        if !block.bytes().is_empty() {
            // SAFETY: the last lines of the caller's range.
            unsafe { self.store(to, &mut block, sum) };
        }
    }

    /// Stores `block`, the last line filled with zeros, and empties it. Where the next one goes.
    ///
    /// # Safety
    /// As [`stream`](Self::stream), of the block's lines at `to`.
    #[expect(unsafe_code, reason = "raw stores to persistent memory")]
    #[inline]
    unsafe fn store(&self, to: *mut u8, block: &mut CopyBuffer, sum: &mut Checksum) -> *mut u8 {
        sum.add(block.bytes());
        block.pad();
        let lines = block.bytes();
        // SAFETY: the caller's promise.
        unsafe { self.stores.copy(to, lines.as_ptr(), lines.len()) };
        let behind = to.wrapping_add(lines.len());
        block.clear();
        behind
    }

    /// Writes back the cache lines of `[at, at + bytes)`, which were written by ordinary stores, so
    /// that the next [`fence`](Self::fence) makes them durable.
    ///
    /// # Safety
    /// The range is mapped.
    #[expect(unsafe_code, reason = "cache-line flush instructions")]
    pub unsafe fn flush(&self, at: *const u8, bytes: usize) {
        let first = at as usize / LINE * LINE;
        let end = at as usize + bytes;
        for line in (first..end).step_by(LINE) {
            // SAFETY: the line holds at least one byte of the caller's mapped range.
            unsafe { self.flushes.line(line as *const u8) };
        }
    }

    /// Returns when everything this thread streamed or flushed before is durable.
    #[inline]
    pub fn fence(&self) {
        arch::fence();
    }
}

/// One cache line to gather unaligned pieces in.
#[repr(align(64))]
struct CacheLine([u8; LINE]);

#[cfg(test)]
mod tests {
    use super::*;

    /// `bytes` zeroed bytes, aligned to a line.
    fn lines(bytes: usize) -> Vec<u128> {
        vec![0; bytes.next_multiple_of(LINE) / 16 + 8]
    }

    fn aligned(memory: &mut [u128]) -> *mut u8 {
        let at = memory.as_mut_ptr().cast::<u8>();
        at.wrapping_add(at.align_offset(LINE))
    }

    #[test]
    #[expect(unsafe_code, reason = "exercises the raw copy")]
    fn a_stream_gathers_parts_of_any_length_skips_and_pads_zeros() {
        const SOURCE: usize = 10_000;
        let source: Vec<u8> = (0..SOURCE).map(|i| (i * 7 + i / 256) as u8).collect();
        for cuts in [
            vec![0, SOURCE],
            vec![0, 1, 2, 63, 64, 65, 128, 500, 1000, SOURCE],
            vec![0, 64, 128, 4096, SOURCE],
            vec![0, 0, 32, 32, 999, 9999, SOURCE],
        ] {
            for skip in [0, 1, 31, 32, 64, 999, SOURCE - 1] {
                let parts: Vec<IoSlice> = cuts
                    .windows(2)
                    .map(|w| IoSlice::new(&source[w[0]..w[1]]))
                    .collect();
                let mut memory = lines(SOURCE + LINE);
                let at = aligned(&mut memory);
                let persist = Persist::detect();
                let copied = SOURCE - skip;
                let written = || {
                    persist.fence();
                    // SAFETY: just written, within `memory`.
                    unsafe { std::slice::from_raw_parts(at, copied.next_multiple_of(LINE)) }
                };
                // SAFETY: `memory` is large enough for all of `source` in whole lines from `at`.
                unsafe { persist.stream(at, &parts, skip) };
                assert_eq!(&written()[..copied], &source[skip..]);
                assert!(written()[copied..].iter().all(|&b| b == 0));
                let mut sum = Checksum::new();
                // SAFETY: as above.
                unsafe {
                    at.write_bytes(0xEE, copied.next_multiple_of(LINE));
                    persist.stream_once(at, &parts, skip, &mut sum);
                }
                assert_eq!(&written()[..copied], &source[skip..]);
                assert!(written()[copied..].iter().all(|&b| b == 0));
                assert_eq!(sum.value(), crate::crc32c([&source[skip..]]));
            }
        }
    }

    #[test]
    #[expect(unsafe_code, reason = "exercises the raw flush")]
    fn a_flush_of_any_range_leaves_its_bytes_as_they_are() {
        let mut memory = lines(4096);
        let at = aligned(&mut memory);
        let persist = Persist::detect();
        // SAFETY: within `memory`.
        unsafe {
            at.add(100).write(9);
            persist.flush(at.add(100), 1);
            persist.flush(at, 4096);
            persist.flush(at, 0);
            persist.fence();
            assert_eq!(at.add(100).read(), 9);
        }
        assert!(!persist.names().0.is_empty() && !persist.names().1.is_empty());
    }
}
