//! [`Value`]: what a read gives, from the log or from the cache, without another copy.

use lsm_tree::Slice;
use std::ops::{Deref, Range};

/// A value that was read.
#[derive(Clone, Debug, Default)]
pub struct Value(Bytes);

#[derive(Clone, Debug)]
enum Bytes {
    /// Part of what was read.
    Read(Vec<u8>, Range<usize>),
    /// The cache's.
    Kept(Slice),
}

impl Default for Bytes {
    fn default() -> Self {
        Self::Read(Vec::new(), 0..0)
    }
}

impl Value {
    /// The bytes of `range`, which what was read has.
    #[inline]
    pub(super) const fn read(bytes: Vec<u8>, range: Range<usize>) -> Self {
        Self(Bytes::Read(bytes, range))
    }

    /// One that the cache keeps.
    #[inline]
    pub(super) const fn kept(slice: Slice) -> Self {
        Self(Bytes::Kept(slice))
    }

    /// The value's bytes alone.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Bytes::Read(mut bytes, range) => {
                bytes.truncate(range.end);
                bytes.drain(..range.start);
                bytes
            }
            Bytes::Kept(slice) => slice.to_vec(),
        }
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Read(bytes, range) => &bytes[range.clone()],
            Bytes::Kept(slice) => slice,
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}
