//! [`Compressor`]: the effect of an option on values written under it: the choice to try
//! compression at all, and the gain.

use super::{
    Compression,
    packed::{pack, raw_header},
    scratch::with_scratch,
};
use crate::stats::CompressionStats;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Shorter values are not tried: their records' headers take as much.
const BYTES_MIN: usize = 64;
/// So many values of a class in a row may be tried in vain before some are not tried.
const PATIENCE: u32 = 8;
/// The most that are not tried in a row, as a power of two.
const SKIPPED_MAX: u32 = 6;
/// Parts of the counts, so that threads do not wait for each other's.
const PARTS: usize = 16;

/// Compresses the values that are written under one option, and counts them.
pub(crate) struct Compressor {
    compression: Compression,
    /// By the number of bits of a value's length.
    classes: [SizeClass; 32],
    /// None without compression.
    counts: Box<[CompressionCounts]>,
}

/// How the last values of about one length went: the number of those in a row that did not pay in
/// the upper half, those that are not to be tried now in the lower. Threads that come at once may
/// count one less.
#[derive(Default)]
struct SizeClass(AtomicU32);

impl SizeClass {
    /// True if the next value is to be tried.
    fn takes_the_next(&self) -> bool {
        let state = self.0.load(Relaxed);
        let skipped = state & 0xFFFF;
        if skipped > 0 {
            self.0.store(state - 1, Relaxed);
        }
        skipped == 0
    }

    /// One was tried.
    fn note(&self, paid: bool) {
        let state = self.0.load(Relaxed);
        if paid {
            if state != 0 {
                self.0.store(0, Relaxed);
            }
            return;
        }
        let in_vain = (state >> 16) + 1;
        let skipped = match in_vain.checked_sub(PATIENCE) {
            None => 0,
            Some(beyond) => 1 << beyond.min(SKIPPED_MAX),
        };
        self.0
            .store(in_vain.min(PATIENCE + SKIPPED_MAX) << 16 | skipped, Relaxed);
    }
}

/// Of some threads.
#[derive(Default)]
#[repr(align(128))]
struct CompressionCounts {
    values: AtomicU64,
    raw_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    kept_raw: AtomicU64,
}

impl CompressionCounts {
    /// A value of which so many bytes are stored, if it is compressed.
    fn add(&self, raw_bytes: usize, compressed: Option<usize>) {
        let add = |count: &AtomicU64, by: usize| count.fetch_add(by as u64, Relaxed);
        add(&self.values, 1);
        add(&self.raw_bytes, raw_bytes);
        add(&self.stored_bytes, compressed.unwrap_or(raw_bytes));
        add(&self.kept_raw, usize::from(compressed.is_none()));
    }
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Self {
        Self {
            compression,
            classes: Default::default(),
            counts: match compression {
                Compression::None => Box::default(),
                _ => (0..PARTS).map(|_| CompressionCounts::default()).collect(),
            },
        }
    }

    /// Has `write` write the value: whether it is compressed, and what is stored.
    #[inline]
    pub(crate) fn packed<T>(&self, value: &[u8], write: impl FnOnce(bool, &[u8]) -> T) -> T {
        match self.compression {
            Compression::None => write(false, value),
            _ => self.packed_or_raw(value, write),
        }
    }

    fn packed_or_raw<T>(&self, value: &[u8], write: impl FnOnce(bool, &[u8]) -> T) -> T {
        with_scratch(|scratch| {
            let class = &self.classes[(usize::BITS - value.len().leading_zeros()) as usize % 32];
            let is_tried = value.len() >= BYTES_MIN && class.takes_the_next();
            let bytes = match is_tried {
                true => pack(scratch, self.compression, value),
                false => None,
            };
            if is_tried {
                class.note(bytes.is_some());
            }
            let counts = &self.counts[scratch.number % PARTS];
            counts.add(value.len(), bytes);
            match bytes {
                Some(bytes) => write(true, &scratch.packed[..bytes]),
                None => write(false, value),
            }
        })
    }

    /// Counts what is stored as it is, without a try; nothing, of no bytes.
    pub(crate) fn count_raw(&self, value: &[u8]) {
        if self.compression != Compression::None && !value.is_empty() {
            self.counts[0].add(value.len(), None);
        }
    }

    /// Has `write` write a block of a value of which some block is compressed: the two parts of
    /// what is stored.
    pub(crate) fn packed_block<T>(&self, block: &[u8], write: impl FnOnce(&[u8], &[u8]) -> T) -> T {
        self.packed(block, |compressed, body| match compressed {
            true => write(&[], body),
            false => write(&raw_header(body.len()), body),
        })
    }

    /// The gain so far.
    pub(crate) fn stats(&self) -> CompressionStats {
        let sum = |of: fn(&CompressionCounts) -> &AtomicU64| {
            self.counts.iter().map(|part| of(part).load(Relaxed)).sum()
        };
        CompressionStats {
            compression: self.compression.to_string(),
            values: sum(|part| &part.values),
            raw_bytes: sum(|part| &part.raw_bytes),
            stored_bytes: sum(|part| &part.stored_bytes),
            kept_raw: sum(|part| &part.kept_raw),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "lz4")]
mod tests {
    use super::*;
    use forebay_random::Rng;

    fn compressor() -> Compressor {
        Compressor::new(Compression::Lz4)
    }

    fn compresses(compressor: &Compressor, value: &[u8]) -> bool {
        compressor.packed(value, |compressed, body| {
            assert!(!compressed && body == value || body.len() < value.len());
            compressed
        })
    }

    fn noise(random: &mut Rng, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| random.next() as u8).collect()
    }

    #[test]
    fn values_that_are_short_or_do_not_become_smaller_stay_raw() {
        let (compressor, mut random) = (compressor(), Rng(1));
        assert!(!compresses(&compressor, &[7; BYTES_MIN - 1]));
        assert!(compresses(&compressor, &[7; BYTES_MIN]));
        assert!(!compresses(&compressor, &noise(&mut random, 1000)));
        let stats = compressor.stats();
        assert_eq!((stats.values, stats.kept_raw), (3, 2));
        assert_eq!(stats.raw_bytes, 63 + 64 + 1000);
        assert!(stats.stored_bytes < stats.raw_bytes);
    }

    #[test]
    fn what_does_not_pay_is_tried_less_and_less_and_then_again() {
        let (compressor, mut random) = (compressor(), Rng(2));
        let mut tried = 0;
        for _ in 0..10_000 {
            let value = noise(&mut random, 500);
            let class = &compressor.classes[9];
            tried += u32::from(class.0.load(Relaxed) & 0xFFFF == 0);
            assert!(!compresses(&compressor, &value));
        }
        assert!((100..400).contains(&tried), "{tried} of 10000 were tried");
        // Those of another length know nothing of it.
        assert!(compresses(&compressor, &[7; 2000]));
        let until = (0..).find(|_| compresses(&compressor, &[7; 500]));
        assert!(until <= Some(1 << SKIPPED_MAX), "{until:?}");
        assert!(compresses(&compressor, &[7; 500]));
    }
}
