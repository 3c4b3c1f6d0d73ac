//! The trail that transactions of several changes leave in the store's own keyspace: each adds a
//! step, and every so many of them one also deletes the range of old steps. So after a power cut
//! the steps tell whether a transaction is there as a whole, and a deleted range with it.

use crate::Failure;
use forebay_store::{Batch, ScanRange, Store, StoreError, Transaction};

/// Transactions that were begun: incremented before each.
const BEGUN: &str = "begun";
/// The last that is there: a part of each.
const DONE: &str = "done";
/// Every so many steps the old ones are deleted …
const DELETE_EVERY: u64 = 8;
/// … but for so many.
const KEPT: u64 = 3;

fn step_key(step: u64) -> String {
    format!("step:{step:012}")
}

fn step_value(step: u64) -> Vec<u8> {
    format!("{step} ").repeat(20).into_bytes()
}

/// The first step that is left once `done` is there.
fn first_left(done: u64) -> u64 {
    let deleted_at = done / DELETE_EVERY * DELETE_EVERY;
    deleted_at.saturating_sub(KEPT).max(1)
}

/// A batch, or a transaction.
pub trait WriteSet {
    /// Adds a put.
    fn add_put(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError>;
    /// Adds a deleted range.
    fn add_deleted(&mut self, range: ScanRange) -> Result<(), StoreError>;
}

impl WriteSet for Batch {
    fn add_put(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.put(key, value)
    }

    fn add_deleted(&mut self, range: ScanRange) -> Result<(), StoreError> {
        self.delete_range(range)
    }
}

impl WriteSet for Transaction<'_> {
    fn add_put(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.put(key, value)
    }

    fn add_deleted(&mut self, range: ScanRange) -> Result<(), StoreError> {
        self.delete_range(range)
    }
}

/// The number of the step that is next, which has begun when this returns.
pub fn begin(store: &Store) -> Result<u64, Failure> {
    Ok(u64::try_from(store.increment(BEGUN, 1)?)?)
}

/// Adds the step to what is written.
pub fn leave(step: u64, writes: &mut impl WriteSet) -> Result<(), StoreError> {
    if step.is_multiple_of(DELETE_EVERY) {
        let old = step_key(0)..step_key(first_left(step));
        writes.add_deleted(ScanRange::new(old))?;
    }
    writes.add_put(&step_key(step), &step_value(step))?;
    writes.add_put(DONE, &step.to_le_bytes())
}

/// The counter of this name.
fn counter(store: &Store, name: &str) -> Result<u64, Failure> {
    let Some(value) = store.get(name)? else {
        return Ok(0);
    };
    Ok(u64::from_le_bytes(value[..].try_into()?))
}

/// Compares what is there with what the counters say.
pub fn check(store: &Store) -> Result<(), Failure> {
    let (begun, done) = (counter(store, BEGUN)?, counter(store, DONE)?);
    if begun != done && begun != done + 1 {
        return Err(format!("{begun} transactions were begun, and {done} are there").into());
    }
    let mut steps = first_left(done)..=done;
    for pair in store.prefix("step:")? {
        let (key, value) = pair?;
        let right = steps
            .next()
            .filter(|&step| *key == *step_key(step).as_bytes() && *value == *step_value(step));
        if right.is_none() {
            let key = key.escape_ascii();
            return Err(format!("after {done} transactions {key} is there, or is wrong").into());
        }
    }
    match steps.next() {
        None => Ok(()),
        Some(step) => Err(format!("after {done} transactions step {step} is missing").into()),
    }
}

/// Takes back what was begun and is not there.
pub fn mend(store: &Store) -> Result<(), Failure> {
    let (begun, done) = (counter(store, BEGUN)?, counter(store, DONE)?);
    if begun != done {
        store.increment(BEGUN, i64::try_from(done)? - i64::try_from(begun)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_store::{Durability, StoreOptions};

    fn with_steps(steps: u64) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().durability(Durability::NoSync);
        let store = options.open(dir.path().join("db"), None).unwrap();
        for _ in 0..steps {
            let (step, mut batch) = (begin(&store).unwrap(), Batch::new());
            leave(step, &mut batch).unwrap();
            store.write(&batch).unwrap();
            check(&store).unwrap();
        }
        (dir, store)
    }

    #[test]
    fn a_step_that_was_begun_and_is_not_there_is_taken_back() {
        let (_dir, store) = with_steps(9);
        begin(&store).unwrap();
        check(&store).unwrap();
        mend(&store).unwrap();
        assert_eq!(begin(&store).unwrap(), 10);
    }

    #[test]
    fn half_a_transaction_is_told_by_its_trail() {
        let told = |steps, damage: &dyn Fn(&Store)| {
            let (_dir, store) = with_steps(steps);
            damage(&store);
            check(&store).unwrap_err().to_string()
        };
        let missing = told(9, &|store| store.delete(&step_key(8)).unwrap());
        assert!(missing.contains("wrong"), "{missing}");
        let last = told(9, &|store| store.delete(&step_key(9)).unwrap());
        assert!(last.contains("missing"), "{last}");
        let deleted = told(9, &|store| store.put(&step_key(2), b"back").unwrap());
        assert!(deleted.contains("wrong"), "{deleted}");
        let lost = told(9, &|store| store.put(DONE, &7_u64.to_le_bytes()).unwrap());
        assert!(lost.contains("9 transactions were begun"), "{lost}");
    }
}
