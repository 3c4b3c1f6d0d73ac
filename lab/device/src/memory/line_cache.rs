//! [`LineCache`]: which lines a processor's cache would hold. It knows addresses, not bytes: those are where they always are.
//!
//! Direct-mapped, shared by all threads without a lock. Two threads that meet at an entry may cost
//! one of them a miss.

use forebay_pool::persist::LINE;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The lines that were read last.
pub(super) struct LineCache {
    /// For each place, the number of the line in it, plus one; zero is nothing.
    places: Box<[AtomicU64]>,
}

impl LineCache {
    /// A cache of `bytes` bytes, empty.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            places: (0..bytes / LINE).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Reads `bytes` bytes at `offset`; how many of them have to come from the memory, in whole
    /// lines.
    pub(super) fn read(&self, offset: u64, bytes: usize) -> usize {
        let first = offset / LINE as u64;
        let end = (offset + bytes as u64).div_ceil(LINE as u64);
        (first..end)
            .filter(|line| {
                let Some(place) = self.places.get(self.place(*line)) else {
                    return true;
                };
                place.swap(line + 1, Relaxed) != line + 1
            })
            .count()
            * LINE
    }

    fn place(&self, line: u64) -> usize {
        usize::try_from(line % (self.places.len() as u64).max(1)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_from_memory_once_until_another_replaces_it() {
        let cache = LineCache::new(4 * LINE);
        assert_eq!(cache.read(0, 1), LINE);
        assert_eq!(cache.read(10, 54), 0);
        assert_eq!(cache.read(60, 8), LINE);
        assert_eq!(cache.read(0, 4 * LINE), 2 * LINE);
        assert_eq!(cache.read(4 * LINE as u64, LINE), LINE);
        assert_eq!(cache.read(0, 2 * LINE), LINE);
        assert_eq!(cache.read(0, 0), 0);
    }

    #[test]
    fn without_room_every_read_goes_to_the_memory() {
        let cache = LineCache::new(0);
        assert_eq!(cache.read(0, LINE) + cache.read(0, LINE), 2 * LINE);
    }
}
