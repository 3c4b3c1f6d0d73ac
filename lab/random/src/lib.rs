//! Numbers that look random and come again with the same seed, for tests and the laboratory: the
//! same on every machine, and not for secrets.

/// A bijection of the 64-bit numbers that leaves no pattern (splitmix64's finaliser).
#[inline]
#[must_use]
pub const fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(GAMMA);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// What splitmix64 adds from number to number.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// A sequence of numbers (splitmix64) that its seed gives.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub const fn next(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    /// The next one below `bound`, or 0 if that is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        let bound = if bound == 0 { 1 } else { bound };
        self.next() % bound
    }

    /// True once in so many times.
    pub const fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// One of these, of which there is at least one.
    ///
    /// # Panics
    /// If there is none.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_numbers_of_splitmix64() {
        let mut rng = Rng(0);
        let numbers = [rng.next(), rng.next()];
        assert_eq!(numbers, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
        assert!((0..100).all(|_| rng.below(3) < 3 && rng.below(0) == 0));
        assert_eq!(rng.one_of(&[7]), 7);
    }
}
