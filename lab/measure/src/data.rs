//! Keys and values of the workloads, made off the hot path.

pub use forebay_random::mix;

/// A stream of random numbers: quick, seeded, the same on every machine. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream that `seed` gives.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// The next number below `limit` (0 if that is 0).
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.number().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// A seed that no other run has.
#[must_use]
pub fn fresh_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// The 8-byte key number `index` of the key set `seed`: keys of different indices differ and come
/// in random order.
#[inline]
#[must_use]
pub fn key(seed: u64, index: u64) -> [u8; 8] {
    mix(seed ^ mix(index)).to_be_bytes()
}

/// Values of one size that do not compress: windows of a random buffer at varying offsets.
pub struct Values {
    buffer: Vec<u8>,
    value_bytes: usize,
}

/// Distance between two windows.
const STRIDE: usize = 64;
/// Number of windows: with small values the buffer stays in the processor's second-level cache, as
/// values that an application has just made are.
const WINDOWS: usize = 4096;

impl Values {
    /// Values of `value_bytes` bytes.
    #[must_use]
    pub fn new(value_bytes: usize) -> Self {
        let mut buffer = vec![0; value_bytes + STRIDE * WINDOWS];
        Random::new(0x0F0E_BA11).fill(&mut buffer);
        Self {
            buffer,
            value_bytes,
        }
    }

    /// The value number `index`.
    #[inline]
    #[must_use]
    pub fn value(&self, index: u64) -> &[u8] {
        let offset = index as usize % WINDOWS * STRIDE;
        &self.buffer[offset..offset + self.value_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_of_different_indices_differ() {
        let keys: HashSet<_> = (0..100_000).map(|index| key(7, index)).collect();
        assert_eq!(keys.len(), 100_000);
    }

    #[test]
    fn random_numbers_stay_below_their_limit_and_reach_all_of_it() {
        let mut random = Random::new(1);
        let seen: HashSet<_> = (0..1000).map(|_| random.below(10)).collect();
        assert_eq!(seen, (0..10).collect());
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn values_have_their_size_and_vary() {
        for bytes in [0, 1, 100, 4096] {
            let values = Values::new(bytes);
            assert_eq!(values.value(5).len(), bytes);
            assert!(bytes < 100 || values.value(5) != values.value(6));
        }
    }
}
