//! Keys as the log and the index have them.
//!
//! ```text
//! the default keyspace's      key                        as it is, unless it begins with FF
//!                             FF 00 │ rest of the key    if it begins with FF
//! those of keyspace n ≥ 1     FF 01 │ n 4, highest byte first │ key
//! ```
//!
//! Their order is that of the keyspaces, and within one that of its keys. A key of the default
//! keyspace costs a look at its first byte.

use crate::limits::KEY_BYTES_MAX;
use smallvec::SmallVec;
use std::{borrow::Cow, ops::Bound};

/// With this byte begin stored keys that are not the key itself.
const MARK: u8 = 0xff;
/// And then: the rest of a default keyspace's key that begins with the mark.
const MARKED: u8 = 0;
/// Or: a keyspace's number, and its key.
const NUMBERED: u8 = 1;

/// Bytes before a key in a keyspace with a number.
const KEY_PREFIX: usize = 6;
/// Room for most keys that are not stored as they are.
const ROOM: usize = 64;

const _: () = assert!(KEY_BYTES_MAX + KEY_PREFIX == crate::limits::STORED_KEY_BYTES_MAX);

/// Room in which a key is made that is not stored as it is.
pub(crate) type KeyRoom = SmallVec<[u8; ROOM]>;

/// A keyspace's number; 0 is the default one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyspaceId(pub(crate) u32);

impl KeyspaceId {
    /// That of keys without a keyspace.
    pub(crate) const DEFAULT: Self = Self(0);

    /// The key as it is stored, made in `room` if that is not the key itself.
    #[inline]
    pub(crate) fn stored<'k>(self, key: &'k [u8], room: &'k mut KeyRoom) -> &'k [u8] {
        if self == Self::DEFAULT && key.first() != Some(&MARK) {
            return key;
        }
        self.copied(key, room)
    }

    #[cold]
    fn copied<'k>(self, key: &[u8], room: &'k mut KeyRoom) -> &'k [u8] {
        room.clear();
        if self == Self::DEFAULT {
            room.extend_from_slice(&[MARK, MARKED]);
            room.extend_from_slice(key.get(1..).unwrap_or_default());
        } else {
            room.extend_from_slice(&self.prefix());
            room.extend_from_slice(key);
        }
        room
    }

    /// The same for one of many keys, which have no room to share.
    pub(crate) fn as_stored(self, key: &[u8]) -> Cow<'_, [u8]> {
        match self == Self::DEFAULT && key.first() != Some(&MARK) {
            true => Cow::Borrowed(key),
            false => Cow::Owned(self.to_stored(key)),
        }
    }

    /// The key as it is stored.
    pub(crate) fn to_stored(self, key: &[u8]) -> Vec<u8> {
        self.stored(key, &mut KeyRoom::new()).to_vec()
    }

    fn prefix(self) -> [u8; KEY_PREFIX] {
        let [a, b, c, d] = self.0.to_be_bytes();
        [MARK, NUMBERED, a, b, c, d]
    }

    /// The first stored key that may be its.
    pub(crate) fn first(self) -> Vec<u8> {
        match self {
            Self::DEFAULT => Vec::new(),
            _ => self.prefix().to_vec(),
        }
    }

    /// The first stored key behind all of its.
    pub(crate) fn end(self) -> Vec<u8> {
        match self.0 {
            0 => vec![MARK, NUMBERED],
            u32::MAX => vec![MARK, NUMBERED + 1],
            number => Self(number + 1).prefix().to_vec(),
        }
    }

    /// The bounds of stored keys for these of its keys.
    pub(crate) fn stored_bounds(
        self,
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
    ) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let stored = |bound: Bound<Vec<u8>>| bound.map(|key| self.to_stored(&key));
        let from = match from {
            Bound::Unbounded if self != Self::DEFAULT => Bound::Included(self.first()),
            from => stored(from),
        };
        let to = match to {
            Bound::Unbounded => Bound::Excluded(self.end()),
            to => stored(to),
        };
        (from, to)
    }

    /// The keyspace of a stored key.
    #[inline]
    pub(crate) fn of(stored: &[u8]) -> Self {
        match stored {
            [MARK, NUMBERED, a, b, c, d, ..] => Self(u32::from_be_bytes([*a, *b, *c, *d])),
            _ => Self::DEFAULT,
        }
    }
}

/// The stored key as far as the first `len` bytes of its user's key go; `None` if that is shorter.
/// Whose stored key begins so has those bytes there, and the keyspace.
pub(crate) fn stored_prefix(stored: &[u8], len: usize) -> Option<&[u8]> {
    let len = match stored {
        [MARK, NUMBERED, ..] => KEY_PREFIX + len,
        [MARK, MARKED, ..] => 1 + len,
        // The beginning of either.
        [MARK, ..] => return None,
        _ => len,
    };
    stored.get(..len)
}

/// True if it may be another keyspace's than the default one's.
#[inline]
pub(crate) fn is_marked(stored: &[u8]) -> bool {
    stored.first() == Some(&MARK)
}

/// The key of which it is the stored one.
#[inline]
pub(crate) fn user_key(mut stored: Vec<u8>) -> Vec<u8> {
    if is_marked(&stored) {
        match KeyspaceId::of(&stored) {
            KeyspaceId::DEFAULT => drop(stored.drain(1..stored.len().min(2))),
            _ => drop(stored.drain(..KEY_PREFIX)),
        }
    }
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some keys of every kind, in order.
    fn keys() -> Vec<Vec<u8>> {
        let bytes = [0, 1, 2, 0x7f, 0xfe, 0xff];
        let mut keys = vec![Vec::new()];
        for _ in 0..3 {
            let longer = keys
                .iter()
                .flat_map(|key: &Vec<u8>| bytes.map(|byte| [&key[..], &[byte]].concat()));
            let longer: Vec<_> = longer.collect();
            keys.extend(longer);
        }
        keys.sort();
        keys.dedup();
        keys
    }

    /// Promise (store): A keyspace has its keys in their order, also those that begin with the
    /// bytes FF, FF 00 or FF 01, and shows no other one's.
    #[test]
    fn stored_keys_are_in_the_order_of_keyspaces_and_keys() {
        let numbers = [0, 1, 2, 0xff, 0x100, u32::MAX - 1, u32::MAX];
        let mut stored = Vec::new();
        for id in numbers.map(KeyspaceId) {
            for key in keys().into_iter().filter(|key| !key.is_empty()) {
                let at = id.to_stored(&key);
                assert_eq!((KeyspaceId::of(&at), user_key(at.clone())), (id, key));
                assert!(at >= id.first() && at < id.end());
                stored.push(at);
            }
        }
        assert!(stored.windows(2).all(|two| two[0] < two[1]));
    }

    #[test]
    fn stored_bounds_hold_the_keys_that_bounds_hold() {
        use Bound::{Excluded, Included, Unbounded};
        use std::ops::RangeBounds;
        let keys = keys();
        let some = || keys.iter().step_by(5).cloned();
        let bounds = || {
            some()
                .map(Included)
                .chain(some().map(Excluded))
                .chain([Unbounded])
        };
        for id in [0, 1, u32::MAX].map(KeyspaceId) {
            for (from, to) in bounds().flat_map(|from| bounds().map(move |to| (from.clone(), to))) {
                let stored = id.stored_bounds(from.clone(), to.clone());
                let holds =
                    |key: &&Vec<u8>| !key.is_empty() && (from.clone(), to.clone()).contains(*key);
                let expected: Vec<_> = keys.iter().filter(holds).cloned().collect();
                let all = [0, 1, 2, u32::MAX].map(KeyspaceId).into_iter();
                let all = all.flat_map(|of| keys.iter().skip(1).map(move |key| of.to_stored(key)));
                let found: Vec<_> = all.filter(|at| stored.contains(at)).map(user_key).collect();
                assert_eq!(found, expected, "{id:?} {from:?} {to:?}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_stored_key_are_taken_apart_all_the_same() {
        for bytes in [
            &b""[..],
            b"\xff",
            b"\xff\x01",
            b"\xff\x01\0\0\0",
            b"\xff\x02x",
        ] {
            assert_eq!(KeyspaceId::of(bytes), KeyspaceId::DEFAULT);
            assert!(user_key(bytes.to_vec()).len() <= bytes.len());
        }
        assert_eq!(user_key(b"\xff\x01\0\0\0\x07".to_vec()), b"");
    }
}
