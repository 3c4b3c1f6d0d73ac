//! Reading several keys as of one moment.
//!
//! 1. Take a snapshot. Look the keys up in its view, in order, so that neighbours are found in the
//!    same blocks of the tables.
//! 2. In the order of the log: take the values that are at hand, and have the kernel read the
//!    others together (`prefetch`), so many at a time.
//! 3. Read these, and give all that have not expired, in the order in which they were asked for.

use super::{
    Keyspace, ReadOnlyStore, Snapshot, Store, StoreCore, Value, read::live,
    snapshot::SnapshotMoment,
};
use crate::{error::StoreError, index::RecordAddress, keyspace::user_key};
use std::borrow::Cow;

/// Values that are read together at most, and their bytes.
const TOGETHER: usize = 128;
const TOGETHER_BYTES: u64 = 4 << 20;

/// A key that was found, and the places at which it was asked for.
struct FoundKey<'a> {
    key: &'a [u8],
    address: RecordAddress,
    places: &'a [usize],
}

impl Store {
    /// The values of several keys, in their order, all as of one moment: no write that was done
    /// meanwhile is seen in a part. Values on a disk are read in parallel, so this is faster than
    /// one [`get`](Self::get) after another where they are; where all is in memory it costs a
    /// [snapshot](Self::snapshot) more.
    ///
    /// In memory are the keys and what is given, and no value twice.
    ///
    /// # Errors
    /// [`StoreError::OfKey`], which has the key and what [`get`](Self::get) would say of it;
    /// [`StoreError::TooManySnapshots`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// store.put("ark", "brown")?;
    /// let colours = store.multi_get(["boat", "canoe", "ark"])?;
    /// assert_eq!(colours[0].as_deref(), Some(&b"blue"[..]));
    /// assert!(colours[1].is_none() && colours[2].is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>, StoreError> {
        self.snapshot()?.multi_get(keys)
    }
}

impl Snapshot {
    /// As [`Store::multi_get`], as of the snapshot.
    ///
    /// # Errors
    /// [`StoreError::OfKey`]; [`StoreError::KeyspaceDropped`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let before = store.snapshot()?;
    /// store.delete("boat")?;
    /// assert!(before.multi_get(["boat", "ark"])?[0].is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>, StoreError> {
        let id = self.keyspace_id()?;
        let keys: Vec<K> = keys.into_iter().collect();
        let stored: Vec<Cow<'_, [u8]>> =
            keys.iter().map(|key| id.as_stored(key.as_ref())).collect();
        let values = self.shared().multi_get_in(self, &stored);
        // Of a keyspace that was dropped meanwhile some were missed.
        self.keyspace_id()?;
        values
    }
}

impl ReadOnlyStore {
    /// As [`Store::multi_get`], as of its last look.
    ///
    /// # Errors
    /// As [`Store::multi_get`], and [`StoreError::Outdated`].
    ///
    /// ```
    /// use forebay_store::{Durability, StoreOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(dir.path(), None)?;
    /// store.put("boat", "blue")?;
    /// let reader = options.open_read_only(dir.path(), None)?;
    /// assert!(reader.multi_get(["ark", "boat"])?[1].is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>, StoreError> {
        self.snapshot()?.multi_get(keys)
    }
}

impl Keyspace<'_> {
    /// As [`Store::multi_get`], of the keyspace's keys.
    ///
    /// # Errors
    /// As [`Store::multi_get`]; [`StoreError::KeyspaceDropped`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync).open(dir.path(), None)?;
    /// # use forebay_store::KeyspaceOptions;
    /// let owners = store.keyspace("owners", KeyspaceOptions::new())?;
    /// owners.put("boat", "alice")?;
    /// let of_each = owners.multi_get(["ark", "boat"])?;
    /// assert!(of_each[0].is_none());
    /// assert_eq!(of_each[1].as_deref(), Some(&b"alice"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>, StoreError> {
        self.snapshot()?.multi_get(keys)
    }
}

/// Keys are as they are stored, from here on.
impl StoreCore {
    fn multi_get_in(
        &self,
        snapshot: &Snapshot,
        keys: &[Cow<'_, [u8]>],
    ) -> Result<Vec<Option<Value>>, StoreError> {
        self.check_process()?;
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by(|&a, &b| keys[a].cmp(&keys[b]));
        let mut found = self.look_up(snapshot.view(), keys, &order)?;
        found.sort_unstable_by_key(|it| it.address.lsn);
        let mut values: Vec<Option<Value>> = vec![None; keys.len()];
        let mut rest = &found[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let more = |it: &&FoundKey<'_>| {
                let fits = bytes < TOGETHER_BYTES;
                bytes += u64::from(it.address.len);
                fits
            };
            let together = rest.iter().take(TOGETHER).take_while(more).count();
            let (now, later) = rest.split_at(together);
            self.read_together(now, |it, value| {
                if snapshot.is_alive(value.expiry()) {
                    give(it, value, &mut values);
                }
            })?;
            rest = later;
        }
        Ok(values)
    }

    /// Where the values of the keys are, which `order` has in order.
    fn look_up<'a>(
        &self,
        moment: &SnapshotMoment,
        keys: &'a [Cow<'_, [u8]>],
        order: &'a [usize],
    ) -> Result<Vec<FoundKey<'a>>, StoreError> {
        let view = moment.view();
        let mut found = Vec::new();
        for places in order.chunk_by(|&a, &b| keys[a] == keys[b]) {
            let key = &*keys[places[0]];
            let address = view.find_below(self.hash(key), key, moment.limit());
            let address = address.map_err(|e| of_key(e, key))?;
            found.extend(live(address).map(|address| FoundKey {
                key,
                address,
                places,
            }));
        }
        Ok(found)
    }

    /// Reads values that are asked for together.
    fn read_together(
        &self,
        found: &[FoundKey<'_>],
        mut give: impl FnMut(&FoundKey<'_>, Value),
    ) -> Result<(), StoreError> {
        let mut absent = Vec::new();
        for it in found {
            let at_hand = self.value_at_hand(it.key, it.address);
            match at_hand.map_err(|e| of_key(e, it.key))? {
                Some(value) => give(it, value),
                None => absent.push(it),
            }
        }
        if absent.len() > 1 {
            self.ask_for(absent.iter().map(|it| it.address));
        }
        for it in absent {
            let value = self.value_at(it.key, it.address);
            give(it, value.map_err(|e| of_key(e, it.key))?);
        }
        Ok(())
    }
}

/// The error of one of several keys, which the caller knows it by.
fn of_key(error: impl Into<StoreError>, stored: &[u8]) -> StoreError {
    error.into().of_key(user_key(stored.to_vec()))
}

/// Puts a value in the places at which it was asked for.
fn give(found: &FoundKey<'_>, value: Value, values: &mut [Option<Value>]) {
    let (last, others) = found.places.split_last().unwrap_or((&0, &[]));
    for &place in others {
        values[place] = Some(value.clone());
    }
    values[*last] = Some(value);
}
