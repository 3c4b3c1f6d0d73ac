//! Writers whose every operation is known, and what their keys may be after a crash.
//!
//! One writes to the default keyspace, all others to one of their own. Each has a counter, too.

use super::Rng;
use forebay_store::{
    Keyspace, KeyspaceOptions, ScanRange, Snapshot, Store, StoreError, Transaction, Value,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
};

/// Keys of a writer.
const KEYS: u64 = 25;

/// What the counter's key ends with.
const COUNTER: &[u8] = b"counter";

/// Keys and the numbers of their values; a counter's is what it has counted.
pub type State = BTreeMap<Vec<u8>, u64>;
/// A key, and its value's number or by how much it is counted up; none if it is deleted.
pub type Change = (Vec<u8>, Option<u64>);

/// The value of a number, which has its scale in its last byte.
fn value(number: u64) -> Vec<u8> {
    let mut rng = Rng(number);
    let longer = number & 0xFF;
    let bytes = match rng.below(40) {
        0 => (33_000 + rng.below(40_000)) * longer,
        1..10 => 0,
        10..25 => rng.below(100),
        _ => rng.below(6000) * longer,
    };
    let mut bytes = vec![0; bytes as usize];
    // Every other one of some length becomes smaller when it is compressed.
    let mask = match bytes.len() > 64 && rng.chance(2) {
        true => 0x0101_0101_0101_0101,
        false => u64::MAX,
    };
    for word in bytes.chunks_mut(8) {
        let random = (rng.next() & mask).to_le_bytes();
        word.copy_from_slice(&random[..word.len()]);
    }
    bytes
}

/// Bytes of a value in a batch at most.
const BATCHED: usize = 3000;

fn is_counter(key: &[u8]) -> bool {
    key.ends_with(COUNTER)
}

fn is_value(key: &[u8], number: u64, found: &[u8]) -> bool {
    if is_counter(key) {
        return number.to_le_bytes() == found;
    }
    let value = value(number);
    value == found || value.len() > BATCHED && value[..BATCHED] == *found
}

fn writers_key(writer: u64, number: u64) -> Vec<u8> {
    format!("writer {writer} key {number:03}").into_bytes()
}

/// What a writer does, over few keys of its own. Most values are shorter than `longer` times some
/// kilobytes.
pub fn operations(writer: u64, rng: &mut Rng, count: u64, longer: u64) -> Vec<Vec<Change>> {
    let change = |rng: &mut Rng| {
        let key = writers_key(writer, rng.below(KEYS));
        let value = (!rng.chance(6)).then(|| rng.next() << 8 | longer);
        (key, value)
    };
    (0..count)
        .map(|_| {
            if rng.chance(12) {
                let counter = format!("writer {writer} counter").into_bytes();
                return vec![(counter, (!rng.chance(8)).then(|| 1 + rng.below(1000)))];
            }
            if rng.chance(15) {
                let from = rng.below(KEYS - 2);
                let to = (from + 2 + rng.below(10)).min(KEYS);
                return (from..to)
                    .map(|key| (writers_key(writer, key), None))
                    .collect();
            }
            let changes = if rng.chance(6) { 1 + rng.below(6) } else { 1 };
            (0..changes).map(|_| change(rng)).collect()
        })
        .collect()
}

/// What an operation makes of a writer's keys.
pub fn apply(state: &mut State, operation: &[Change]) {
    for (key, value) in operation {
        match value {
            Some(by) if is_counter(key) => *state.entry(key.clone()).or_default() += by,
            Some(value) => drop(state.insert(key.clone(), *value)),
            None => drop(state.remove(key)),
        }
    }
}

/// True if it has every key from its first to its last, and deletes them.
fn is_range(operation: &[Change]) -> bool {
    let number =
        |key: &[u8]| -> Option<u32> { str::from_utf8(&key[key.len() - 3..]).ok()?.parse().ok() };
    let mut pairs = operation.windows(2);
    operation.iter().all(|(_, value)| value.is_none())
        && pairs.all(|pair| number(&pair[0].0).map(|key| key + 1) == number(&pair[1].0))
}

/// The keyspace of a writer's own, if it has one.
fn keyspace_of(writer: u64) -> Option<String> {
    (writer > 0).then(|| format!("writer {writer}"))
}

/// A writer to a store.
pub struct OracleWriter<'s> {
    store: &'s Store,
    /// That of its own; none: the default keyspace.
    own: Option<Keyspace<'s>>,
}

impl<'s> OracleWriter<'s> {
    /// Opens or makes the writer's keyspace.
    pub fn begin(store: &'s Store, writer: u64, options: KeyspaceOptions) -> Self {
        let own = keyspace_of(writer).map(|name| store.keyspace(&name, options).unwrap());
        Self { store, own }
    }

    /// Does an operation.
    pub fn perform(&self, operation: &[Change]) {
        if let [(key, change)] = operation {
            return self.change(key, *change).unwrap();
        }
        if is_range(operation) {
            return self.delete_range(operation).unwrap();
        }
        // Every other one.
        let done = match operation[0].1.is_some_and(|number| number >> 8 & 1 == 0) {
            true => (self.store).transaction(|tx| self.fill_transaction(tx, operation)),
            false => self.write_batch(operation),
        };
        done.unwrap();
    }

    fn change(&self, key: &[u8], change: Option<u64>) -> Result<(), StoreError> {
        let (store, own) = (self.store, self.own.as_ref());
        match change {
            Some(by) if is_counter(key) => {
                let by = by as i64;
                own.map_or_else(|| store.increment(key, by), |own| own.increment(key, by))
                    .map(drop)
            }
            Some(number) if number >> 9 & 3 == 0 => {
                let value = value(number);
                let present = own.map_or_else(|| store.get(key), |own| own.get(key))?;
                let (present, new) = (present.as_deref(), Some(&value[..]));
                let swapped = match own {
                    Some(own) => own.compare_and_swap(key, present, new)?,
                    None => store.compare_and_swap(key, present, new)?,
                };
                assert!(swapped, "nobody else writes it");
                Ok(())
            }
            Some(number) => {
                let value = value(number);
                own.map_or_else(|| store.put(key, &value), |own| own.put(key, &value))
            }
            None => own.map_or_else(|| store.delete(key), |own| own.delete(key)),
        }
    }

    /// Deletes the keys of the operation, which are all that there may be from the first to the
    /// last, by one record.
    fn delete_range(&self, operation: &[Change]) -> Result<(), StoreError> {
        let (first, last) = (&operation[0].0, &operation[operation.len() - 1].0);
        let range = ScanRange::new::<&Vec<u8>>(first..=last);
        if operation.len().is_multiple_of(2) {
            return match &self.own {
                None => self.store.delete_range(range),
                Some(own) => own.delete_range(range),
            };
        }
        let mut batch = self.store.batch();
        // The put is of no consequence.
        match &self.own {
            None => {
                batch.put(first, b"deleted as well")?;
                batch.delete_range(range)?;
            }
            Some(own) => {
                batch.put_in(own, first, b"deleted as well")?;
                batch.delete_range_in(own, range)?;
            }
        }
        self.store.write(&batch)
    }

    /// Reads before it writes.
    fn fill_transaction(
        &self,
        tx: &mut Transaction<'_>,
        operation: &[Change],
    ) -> Result<(), StoreError> {
        for (key, change) in operation {
            let value = change.map(value);
            let value = value
                .as_ref()
                .map(|value| &value[..value.len().min(BATCHED)]);
            // Nobody else changes what is read.
            let range = ScanRange::new(&key[..]..);
            match &self.own {
                None => tx.get(key)?,
                Some(own) => tx.get_in(own, key)?,
            };
            match (&self.own, value) {
                (None, Some(value)) => tx.put(key, value)?,
                (None, None) => tx.delete(key)?,
                (Some(own), Some(value)) => tx.put_in(own, key, value)?,
                (Some(own), None) => tx.delete_in(own, key)?,
            }
            let pairs = match &self.own {
                None => tx.scan(range)?,
                Some(own) => tx.scan_in(own, range)?,
            };
            for pair in pairs.take(3) {
                pair?;
            }
        }
        Ok(())
    }

    fn write_batch(&self, operation: &[Change]) -> Result<(), StoreError> {
        let mut batch = self.store.batch();
        for (key, change) in operation {
            // A batch must fit into a record; only values that go to files of their own may be
            // longer.
            let value = change.map(value);
            let value = value
                .as_ref()
                .map(|value| &value[..value.len().min(BATCHED)]);
            match (&self.own, value) {
                (None, Some(value)) => batch.put(key, value)?,
                (None, None) => batch.delete(key)?,
                (Some(own), Some(value)) => batch.put_in(own, key, value)?,
                (Some(own), None) => batch.delete_in(own, key)?,
            }
        }
        self.store.write(&batch)
    }
}

/// What a writer's keys may be.
#[derive(Clone)]
pub struct Known {
    pub writers: Vec<Vec<State>>,
    /// How the writers' keyspaces are made.
    pub keyspaces: KeyspaceOptions,
}

impl Known {
    /// No keys at all.
    pub fn nothing(writers: u64, keyspaces: KeyspaceOptions) -> Self {
        Self {
            writers: vec![vec![State::new()]; writers as usize],
            keyspaces,
        }
    }

    /// The one allowed state of each writer that the store is in.
    pub fn judge(&self, store: &Store, when: &str) -> Vec<State> {
        self.judge_snapshot(&store.snapshot().unwrap(), when)
    }

    /// The same of one moment.
    pub fn judge_snapshot(&self, snapshot: &Snapshot, when: &str) -> Vec<State> {
        let judged = self.writers.iter().zip(0..).map(|(allowed, writer)| {
            let name = keyspace_of(writer);
            let found: Result<Vec<_>, StoreError> = match snapshot.keyspace(name.as_deref()) {
                Ok(keyspace) => keyspace.scan(ScanRange::all()).unwrap().collect(),
                // It is made when the writer begins.
                Err(StoreError::NoKeyspace { .. }) => Ok(Vec::new()),
                Err(error) => panic!("{when}: writer {writer}: {error}"),
            };
            let found = found.unwrap_or_else(|e| panic!("{when}: writer {writer}: {e}"));
            judge_pairs(allowed, &found, &format!("{when}: writer {writer}"))
        });
        judged.collect()
    }
}

/// The state that a writer's pairs are in.
fn judge_pairs(allowed: &[State], found: &[(Vec<u8>, Value)], when: &str) -> State {
    // Many states share most of their values.
    let compared = RefCell::new(HashMap::new());
    let is_value = |key: &[u8], number: u64, found: &[u8]| {
        *compared
            .borrow_mut()
            .entry((number, found.as_ptr()))
            .or_insert_with(|| is_value(key, number, found))
    };
    let is = |state: &&State| {
        state.len() == found.len()
            && (state.iter().zip(found))
                .all(|((key, number), (k, v))| key == k && is_value(key, *number, v))
    };
    let state = allowed.iter().find(is).unwrap_or_else(|| {
        let nearest = allowed.last().unwrap();
        let lacks = |key: &&Vec<u8>| {
            let number = nearest[*key];
            (found.iter()).all(|(k, v)| k != *key || !is_value(key, number, v))
        };
        let wrong = nearest.keys().filter(lacks);
        let wrong: Vec<_> = wrong.map(|key| String::from_utf8_lossy(key)).collect();
        let others = found.iter().filter(|(key, _)| !nearest.contains_key(key));
        panic!(
            "{when}: none of {} allowed states; missing or other than in the last: {wrong:?}; and {} more",
            allowed.len(),
            others.count()
        )
    });
    state.clone()
}
