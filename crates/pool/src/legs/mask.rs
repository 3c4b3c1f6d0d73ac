//! [`LegMask`]: a set of a pool's legs.

/// Legs of one pool at most.
pub(crate) const LEGS_MAX: usize = 8;

/// A set of legs, by their numbers: a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LegMask(pub(crate) u8);

impl LegMask {
    pub(crate) const NONE: Self = Self(0);

    /// All of `count` legs.
    pub(crate) fn all(count: usize) -> Self {
        (0..count).collect()
    }

    pub(crate) fn of(leg: usize) -> Self {
        Self(1 << leg)
    }

    pub(crate) fn has(self, leg: usize) -> bool {
        leg < LEGS_MAX && self.0 & (1 << leg) != 0
    }

    pub(crate) fn with(self, leg: usize) -> Self {
        Self(self.0 | 1 << leg)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Their numbers, lowest first.
    pub(crate) fn legs(self) -> impl Iterator<Item = usize> {
        (0..LEGS_MAX).filter(move |leg| self.has(*leg))
    }
}

impl FromIterator<usize> for LegMask {
    fn from_iter<T: IntoIterator<Item = usize>>(legs: T) -> Self {
        (legs.into_iter()).fold(Self::NONE, |mask, leg| mask.with(leg))
    }
}
