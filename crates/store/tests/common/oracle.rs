//! Writers whose every operation is known, and what their keys may be after a crash.

use super::Rng;
use forebay_store::{Batch, Scan, ScanRange, Store};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
};

/// Keys of a writer.
const KEYS: u64 = 25;

/// Keys and the numbers of their values.
pub type State = BTreeMap<Vec<u8>, u64>;
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

fn is_value(number: u64, found: &[u8]) -> bool {
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
            Some(value) => state.insert(key.clone(), *value),
            None => state.remove(key),
        };
    }
}

/// Does an operation of several changes as a transaction, which reads before it writes.
fn perform_as_transaction(store: &Store, operation: &[Change]) {
    let done = store.transaction(|tx| {
        for (key, change) in operation {
            tx.get(key)?;
            match change {
                Some(number) => {
                    let value = value(*number);
                    tx.put(key, &value[..value.len().min(BATCHED)])?;
                }
                None => tx.delete(key)?,
            }
            // Some of the writer's own keys: nobody else's change.
            for pair in tx.range(&key[..]..)?.take(3) {
                let (found, _) = pair?;
                if !found.starts_with(&key[.."writer 0 ".len()]) {
                    break;
                }
            }
        }
        Ok(())
    });
    done.unwrap();
}

/// Deletes the keys of the operation, which are all that there may be from the first to the last,
/// by one record.
fn delete_range(store: &Store, operation: &[Change]) {
    let (first, last) = (&operation[0].0, &operation[operation.len() - 1].0);
    let range = ScanRange::new::<&Vec<u8>>(first..=last);
    if operation.len().is_multiple_of(2) {
        return store.delete_range(range).unwrap();
    }
    let mut batch = Batch::new();
    // Of no consequence.
    batch.put(first, b"deleted as well").unwrap();
    batch.delete_range(range).unwrap();
    store.write(&batch).unwrap();
}

/// True if it has every key from its first to its last, and deletes them.
fn is_range(operation: &[Change]) -> bool {
    let number =
        |key: &[u8]| -> Option<u32> { str::from_utf8(&key[key.len() - 3..]).ok()?.parse().ok() };
    let mut pairs = operation.windows(2);
    operation.iter().all(|(_, value)| value.is_none())
        && pairs.all(|pair| number(&pair[0].0).map(|key| key + 1) == number(&pair[1].0))
}

/// Does an operation.
pub fn perform(store: &Store, operation: &[Change]) {
    if let [(key, change)] = operation {
        match change {
            Some(number) => store.put(key, &value(*number)).unwrap(),
            None => store.delete(key).unwrap(),
        }
        return;
    }
    if is_range(operation) {
        return delete_range(store, operation);
    }
    // Every other one.
    if operation[0].1.is_some_and(|number| number >> 8 & 1 == 0) {
        return perform_as_transaction(store, operation);
    }
    let mut batch = Batch::new();
    for (key, change) in operation {
        match change {
            // A batch must fit into a record; only values that go to files of their own may be
            // longer.
            Some(number) => batch
                .put(key, &value(*number)[..value(*number).len().min(BATCHED)])
                .unwrap(),
            None => batch.delete(key).unwrap(),
        }
    }
    store.write(&batch).unwrap();
}

/// What a writer's keys may be.
#[derive(Clone)]
pub struct Known {
    pub writers: Vec<Vec<State>>,
}

impl Known {
    /// No keys at all.
    pub fn nothing(writers: u64) -> Self {
        Self {
            writers: vec![vec![State::new()]; writers as usize],
        }
    }

    /// The one allowed state of each writer that the store is in.
    pub fn judge(&self, store: &Store, when: &str) -> Vec<State> {
        self.judge_pairs(store.scan(ScanRange::all()).unwrap(), when)
    }

    /// The same of a scan of all keys.
    pub fn judge_pairs(&self, pairs: Scan, when: &str) -> Vec<State> {
        let found: BTreeMap<Vec<u8>, Vec<u8>> = pairs
            .map(|pair| pair.map(|(key, value)| (key, value.into_vec())).unwrap())
            .collect();
        // Many states share most of their values.
        let compared = RefCell::new(HashMap::new());
        let is_value = |number: u64, found: &[u8]| {
            *compared
                .borrow_mut()
                .entry((number, found.as_ptr()))
                .or_insert_with(|| is_value(number, found))
        };
        let mut states = Vec::new();
        let mut keys = 0;
        for (writer, allowed) in (0..).zip(&self.writers) {
            let prefix = format!("writer {writer} ").into_bytes();
            let found: Vec<_> = found
                .iter()
                .filter(|(k, _)| k.starts_with(&prefix))
                .collect();
            keys += found.len();
            let is = |state: &&State| {
                state.len() == found.len()
                    && state
                        .iter()
                        .zip(&found)
                        .all(|((key, number), (k, v))| key == *k && is_value(*number, v))
            };
            let state = allowed.iter().find(is).unwrap_or_else(|| {
                let nearest = allowed.last().unwrap();
                let wrong: Vec<_> = nearest
                    .keys()
                    .filter(|key| {
                        found.iter().all(|(k, v)| k != key || !is_value(nearest[*key], v))
                    })
                    .map(|key| String::from_utf8_lossy(key).into_owned())
                    .collect();
                panic!(
                    "{when}: writer {writer}: none of {} allowed states; missing or other than in the last: {wrong:?}",
                    allowed.len()
                )
            });
            states.push(state.clone());
        }
        assert_eq!(keys, found.len(), "{when}: keys that no writer wrote");
        states
    }
}
