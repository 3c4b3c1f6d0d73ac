//! Files by their numbers, a bit each: those to be looked at are found without looking at all. It
//! is a hint: a process may write over it, so what is said of a file is what its place says.

use crate::FILES_MAX;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Relaxed, Release},
};

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// See the module's head.
#[repr(transparent)]
pub(crate) struct NumberSet([AtomicU64; FILES_MAX / BITS]);

impl NumberSet {
    /// Puts a number in, after its place has its state.
    pub(crate) fn insert(&self, number: usize) {
        if let Some(word) = self.0.get(number / BITS) {
            word.fetch_or(1 << (number % BITS), Release);
        }
    }

    /// Takes out the first of those below `end`, so many at most, before their places are looked
    /// at.
    pub(crate) fn take(&self, end: usize, most: usize) -> Vec<usize> {
        let mut taken = Vec::new();
        for (at, word) in self.0.iter().take(end.div_ceil(BITS)).enumerate() {
            let there = word.load(Relaxed);
            let set = (0..BITS).filter(|bit| there >> bit & 1 != 0);
            let set = set.filter(|bit| at * BITS + bit < end);
            let some: Vec<usize> = set.take(most - taken.len()).collect();
            let mask = some.iter().fold(0, |mask, bit| mask | 1 << bit);
            if mask != 0 {
                word.fetch_and(!mask, AcqRel);
                taken.extend(some.into_iter().map(|bit| at * BITS + bit));
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_out_once_and_none_beyond_the_end() {
        let set = NumberSet([const { AtomicU64::new(0) }; FILES_MAX / BITS]);
        assert!(set.take(FILES_MAX, 9).is_empty());
        for number in [FILES_MAX - 1, 0, 64, 63, 64, usize::MAX] {
            set.insert(number);
        }
        assert_eq!(set.take(64, 9), [0, 63]);
        assert_eq!(set.take(FILES_MAX, 1), [64]);
        assert_eq!(set.take(FILES_MAX, 9), [FILES_MAX - 1]);
        assert!(set.take(FILES_MAX, 9).is_empty());
        (60..70).for_each(|number| set.insert(number));
        assert_eq!(set.take(66, 3), [60, 61, 62]);
        assert_eq!(set.take(66, 9), [63, 64, 65]);
        assert_eq!(set.take(FILES_MAX, 9), [66, 67, 68, 69]);
    }
}
