//! Changes that depend on a key's present value, without a transaction: a value is read, and its
//! successor is written if, under the key's lock, it is still the one that was read. Otherwise that
//! is done again: each time another writer has come first.

use super::{Store, StoreCore, read::live, write::stored_checked};
use crate::{
    error::StoreError,
    index::RecordAddress,
    keyspace::{KeyRoom, KeyspaceId, user_key},
};
use forebay_pool::Lsn;
use std::cell::RefCell;

/// What comes in the place of a value.
enum ValueReplacement {
    /// Nothing: it stays, and that is no write.
    Kept,
    /// It itself: a write that need not be done again.
    Same,
    Value(Vec<u8>),
    Deleted,
}

impl From<Option<Vec<u8>>> for ValueReplacement {
    fn from(value: Option<Vec<u8>>) -> Self {
        value.map_or(Self::Deleted, Self::Value)
    }
}

impl Store {
    /// Sets the key's value to `new` (`None` deletes it), if it is `expected` (`None`: if it has
    /// none). True if it was.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// assert!(store.compare_and_swap("lock", None, Some(b"mine"))?); // of many, one
    /// assert!(!store.compare_and_swap("lock", None, Some(b"mine, too"))?);
    /// assert!(store.compare_and_swap("lock", Some(b"mine"), None)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_and_swap(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(KeyspaceId::DEFAULT, key.as_ref(), &mut room)?;
        self.shared.compare_and_swap(key, expected, new)
    }

    /// Replaces the key's value by what `merge` makes of it, and returns that. `None` is a key
    /// without a value, or deletes it. `merge` may be called several times.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// for line in ["left", "came back"] {
    ///     store.update("log/boat", |lines| {
    ///         Some([lines.unwrap_or_default(), line.as_bytes(), b"\n"].concat())
    ///     })?;
    /// }
    /// assert_eq!(store.get("log/boat")?.as_deref(), Some(&b"left\ncame back\n"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(
        &self,
        key: &(impl AsRef<[u8]> + ?Sized),
        merge: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(KeyspaceId::DEFAULT, key.as_ref(), &mut room)?;
        self.shared.update(key, merge)
    }

    /// Adds `by` to the key's value, a number of 64 bits with the lowest byte first, and returns
    /// the sum. A key without a value counts as 0.
    ///
    /// # Errors
    /// [`StoreError::NotACounter`] if the value has not 8 bytes, or the sum no room in them; as
    /// [`get`](Self::get) and [`put`](Self::put).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// assert_eq!(store.increment("visits", 1)?, 1);
    /// assert_eq!(store.increment("visits", 41)?, 42);
    /// assert_eq!(store.get("visits")?.as_deref(), Some(&42i64.to_le_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn increment(&self, key: &(impl AsRef<[u8]> + ?Sized), by: i64) -> Result<i64, StoreError> {
        let mut room = KeyRoom::new();
        let key = stored_checked(KeyspaceId::DEFAULT, key.as_ref(), &mut room)?;
        self.shared.increment(key, by)
    }
}

/// Keys are as they are stored, from here on.
impl StoreCore {
    /// As [`Store::compare_and_swap`].
    pub(super) fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        self.replace(key, |present| {
            let as_expected = present == expected;
            let new = match as_expected {
                true if new == present => ValueReplacement::Same,
                true => new.map(<[u8]>::to_vec).into(),
                false => ValueReplacement::Kept,
            };
            Ok((new, as_expected))
        })
    }

    /// As [`Store::update`].
    pub(super) fn update(
        &self,
        key: &[u8],
        mut merge: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.replace(key, |present| {
            let merged = merge(present);
            let new = match merged.as_deref() == present {
                true => ValueReplacement::Same,
                false => merged.clone().into(),
            };
            Ok((new, merged))
        })
    }

    /// As [`Store::increment`].
    pub(super) fn increment(&self, key: &[u8], by: i64) -> Result<i64, StoreError> {
        self.replace(key, |present| {
            let not = |found: String| StoreError::NotACounter {
                key: user_key(key.to_vec()),
                found,
            };
            let before = match present {
                None => 0,
                Some(bytes) => i64::from_le_bytes(
                    bytes
                        .try_into()
                        .map_err(|_| not(format!("a value of {} bytes", bytes.len())))?,
                ),
            };
            let sum = before.checked_add(by);
            let sum = sum.ok_or_else(|| not(format!("{before}, to which {by} is to be added")))?;
            Ok((ValueReplacement::Value(sum.to_le_bytes().to_vec()), sum))
        })
    }

    /// Puts in the place of the key's value what `change` makes of it; what it returns beside.
    fn replace<T>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> Result<(ValueReplacement, T), StoreError>,
    ) -> Result<T, StoreError> {
        let hash = self.hash(key);
        loop {
            let read = |at| Ok(self.value_if_there(key, at)?.map(|value| (at, value)));
            let (address, present) = self.find(key, read)?.unzip();
            let alive = present.filter(|value| self.is_alive(value.expiry()));
            let (new, done) = change(alive.as_deref())?;
            let unknown = RefCell::new(None);
            // Under the key's lock. An address is of one value, so there is no other in between.
            let still = || {
                let found = self.view.load().find(hash, key);
                match found {
                    Ok(found) => live(found) == address,
                    Err(error) => {
                        unknown.replace(Some(error));
                        false
                    }
                }
            };
            let written = match new {
                ValueReplacement::Kept => true,
                // Written again it expires later.
                ValueReplacement::Same if self.keyspaces().expires(key) && alive.is_some() => {
                    self.put_if(key, alive.as_deref().unwrap_or_default(), &still)?
                }
                ValueReplacement::Same => self.commit_present(address).map(|()| true)?,
                ValueReplacement::Value(value) => self.put_if(key, &value, &still)?,
                ValueReplacement::Deleted => self.delete_if(key, &still)?,
            };
            if let Some(error) = unknown.take() {
                return Err(error.into());
            }
            if written {
                return Ok(done);
            }
        }
    }

    /// Makes what was read as durable as a write of it: another's may be seen before it is
    /// committed. Without an address, as a delete that was seen: all that was written.
    fn commit_present(&self, address: Option<RecordAddress>) -> Result<(), StoreError> {
        self.commit_put(match address {
            Some(address) => address.lsn + u64::from(address.len.max(1)) - 1,
            None => Lsn::MAX - 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Durability, StoreOptions,
        index::ValueForm,
        log::RoomClaim,
        op::{KIND_DELETE, KIND_PUT},
    };
    use forebay_pool::PoolOptions;

    /// Promise (store): A swap or update that leaves a value as it is has made it durable, although
    /// another thread wrote it and has not committed it yet.
    #[test]
    fn what_is_left_as_it_is_is_durable() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let pool = PoolOptions::new().on_disk(true).size(4 << 20);
        let pool = pool.segment_size(64 << 10).lanes(4);
        let pool = pool.create(dir.path().join("pool")).unwrap();
        let options = StoreOptions::new().durability(Durability::DOUBLE);
        let path = dir.path().join("store");
        let store = options.open(&path, &pool).unwrap();
        let on_disk = |key: &str| {
            let reader = options.open_read_only(&path, None).unwrap();
            reader.get(key).unwrap().map(|value| value.into_vec())
        };
        // As a writer that was not there yet to commit.
        let write = |kind, key: &str, value: &[u8], form| {
            let shared = &store.shared;
            let written =
                shared.write_one(RoomClaim::Put, kind, key.as_bytes(), value, form, || true);
            assert!(written.unwrap().is_some());
        };
        write(KIND_PUT, "key", b"value", ValueForm::Record);
        assert_eq!(on_disk("key"), None);
        assert!(!store.compare_and_swap("key", Some(b"other"), None).unwrap());
        let same = Some(&b"value"[..]);
        assert!(store.compare_and_swap("key", same, same).unwrap());
        assert_eq!(on_disk("key").as_deref(), same);
        write(KIND_PUT, "other", b"value", ValueForm::Record);
        store
            .update("other", |value| value.map(<[u8]>::to_vec))
            .unwrap();
        assert_eq!(on_disk("other").as_deref(), same);
        write(KIND_DELETE, "key", &[], ValueForm::Tombstone);
        assert_eq!(on_disk("key").as_deref(), same);
        assert!(store.compare_and_swap("key", None, None).unwrap());
        assert_eq!(on_disk("key"), None);
    }
}
