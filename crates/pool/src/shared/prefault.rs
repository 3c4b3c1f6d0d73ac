//! The parts of a pool that have their pages mapped in this process.
//!
//! A process maps a pool as a whole, and its pages come when it touches them: a fault for each
//! costs more than the copy of a small record. So a part is mapped by one system call when the log
//! comes to it, once for each process.

use crate::media::Media;
use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Bytes of a part: large enough that the system call is small beside its pages, small enough that
/// no append waits long for it.
const PART: u64 = 128 << 10;

/// A bit for each part of the pool: 1 KiB for each GiB.
pub(super) struct PrefaultedParts {
    parts: Box<[AtomicU64]>,
    /// Held while a part is mapped: a devdax device's pages come only while the process allows huge
    /// pages, which is one flag for all threads. The standard library's, which is a word: of a
    /// table of waiting threads a forked child would have its parent's.
    mapping: Mutex<()>,
}

impl PrefaultedParts {
    /// Of a medium of `bytes` bytes, of which nothing is mapped.
    pub(super) fn new(bytes: u64) -> Self {
        let words = bytes.div_ceil(PART).div_ceil(64);
        Self {
            parts: (0..words).map(|_| AtomicU64::new(0)).collect(),
            mapping: Mutex::new(()),
        }
    }

    /// Maps the unmapped rest of `wanted`, by whole parts.
    #[inline]
    pub(super) fn get(&self, media: &dyn Media, wanted: Range<u64>) {
        for part in wanted.start / PART..wanted.end.div_ceil(PART) {
            let (word, bit) = (&self.parts[(part / 64) as usize], 1 << (part % 64));
            if word.load(Relaxed) & bit == 0 && self.map(media, part * PART) {
                word.fetch_or(bit, Relaxed);
            }
        }
    }

    /// For speed alone: what cannot be had here comes, or does not, when it is touched.
    #[cold]
    fn map(&self, media: &dyn Media, from: u64) -> bool {
        let bytes = PART.min(media.bytes() - from);
        let _one = self.mapping.lock();
        media.prepare(from, bytes, true).is_ok()
    }
}
