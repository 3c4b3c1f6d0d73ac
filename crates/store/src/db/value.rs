//! [`Value`]: the result of a read, from the log or from the cache, without another copy.

use lsm_tree::Slice;
use std::{
    fmt,
    ops::{Deref, Range},
};

/// A value that was read.
///
/// Its `{:?}` shows its bytes as a byte string does.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
/// store.put("boat", b"blue\n")?;
/// assert_eq!(format!("{:?}", store.get("boat")?), r#"Some(b"blue\n")"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Value {
    bytes: Bytes,
    /// The milliseconds since the epoch at which it expires, if it does.
    expiry: Option<u64>,
}

/// The place of the value in the bytes that were read.
pub(super) struct ValuePlace {
    pub(super) range: Range<usize>,
    /// Time at which it expires, if it does.
    pub(super) expiry: Option<u64>,
}

#[derive(Clone)]
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
    /// The bytes there of what was read.
    #[inline]
    pub(super) const fn read(bytes: Vec<u8>, at: ValuePlace) -> Self {
        Self {
            bytes: Bytes::Read(bytes, at.range),
            expiry: at.expiry,
        }
    }

    /// These bytes.
    pub(super) const fn from_vec(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self {
            bytes: Bytes::Read(bytes, range),
            expiry: None,
        }
    }

    /// One that the cache keeps.
    #[inline]
    pub(super) const fn kept(slice: Slice) -> Self {
        Self {
            bytes: Bytes::Kept(slice),
            expiry: None,
        }
    }

    /// Time at which it expires, if it does.
    #[inline]
    pub(super) const fn expiry(&self) -> Option<u64> {
        self.expiry
    }

    /// The value's bytes alone.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let bytes: Option<Vec<u8>> = store.get("boat")?.map(|value| value.into_vec());
    /// assert_eq!(bytes, Some(b"blue".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.bytes {
            Bytes::Read(mut bytes, range) => {
                bytes.truncate(range.end);
                bytes.drain(..range.start);
                bytes
            }
            Bytes::Kept(slice) => slice.to_vec(),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
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

/// The value's bytes, without a copy of them: the memory is shared.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
/// # store.put("boat", "blue")?;
/// if let Some(value) = store.get("boat")? {
///     let colour = bytes::Bytes::from(value);
///     let answer = colour.clone(); // for a response, for another task
///     assert_eq!(answer, "blue");
/// }
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "bytes")]
impl From<Value> for bytes::Bytes {
    fn from(value: Value) -> Self {
        match value.bytes {
            Bytes::Read(bytes, range) => Self::from(bytes).slice(range),
            Bytes::Kept(slice) => Self::from_owner(slice),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "bytes")]
mod tests {
    use super::*;

    #[test]
    fn a_value_becomes_shared_bytes_without_a_copy() {
        let at = ValuePlace {
            range: 8..13,
            expiry: None,
        };
        let read = Value::read(b"key and value".to_vec(), at);
        let kept = Value::kept(Slice::from(
            &b"a value that is too long to lie within it"[..],
        ));
        for value in [read, kept, Value::from_vec(b"value".to_vec())] {
            let (place, copy) = (value.as_ptr(), value.to_vec());
            let bytes = bytes::Bytes::from(value);
            assert_eq!((bytes.as_ptr(), &bytes[..]), (place, &copy[..]));
        }
        assert!(bytes::Bytes::from(Value::default()).is_empty());
    }
}
