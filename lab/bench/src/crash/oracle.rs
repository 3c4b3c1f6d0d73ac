//! What must be in the store.

use super::ops::{Change, Mix, Ops, ValueId};
use crate::BenchError;
use forebay_store::{ScanRange, Store};
use std::collections::BTreeMap;

/// The state that all acknowledged operations so far make.
#[derive(Default)]
pub struct Oracle {
    state: BTreeMap<Vec<u8>, ValueId>,
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Operations that had been acknowledged since the last comparison.
    pub acknowledged: u64,
    /// Keys that must be there.
    pub keys: u64,
    /// Keys that are there with the value that they must have.
    pub found: u64,
    /// Operations that were in flight and are there.
    pub in_flight_done: u64,
    /// Everything that is wrong, at most a few of each kind.
    pub wrong: Vec<String>,
}

/// As many complaints as anybody reads.
const COMPLAINTS_MAX: usize = 20;

impl Verdict {
    fn complain(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.len() < COMPLAINTS_MAX {
            self.wrong.push(what());
        }
    }
}

impl Oracle {
    /// Compares `store` with everything acknowledged: before, and now by the writers of `seed`, of which thread `t` was
    /// heard `acknowledged[t]` times.
    ///
    /// # Errors
    /// Those of the store.
    pub fn compare(
        &mut self,
        store: &Store,
        mix: Mix,
        seed: u64,
        acknowledged: &[u64],
    ) -> Result<Verdict, BenchError> {
        let mut verdict = Verdict {
            acknowledged: acknowledged.iter().sum(),
            ..Verdict::default()
        };
        for (thread, &count) in acknowledged.iter().enumerate() {
            let mut ops = Ops::new(mix, seed, thread as u32);
            for changes in ops.by_ref().take(count as usize) {
                self.apply(changes);
            }
            if let Some(in_flight) = ops.next() {
                self.settle(store, in_flight, &mut verdict)?;
            }
        }
        self.compare_all(store, &mut verdict)?;
        Ok(verdict)
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for (key, value) in changes {
            match value {
                Some(value) => self.state.insert(key, value),
                None => self.state.remove(&key),
            };
        }
    }

    /// The operation that was in flight is done or not, as a whole. Whichever it is, it is the truth from now on.
    fn settle(
        &mut self,
        store: &Store,
        in_flight: Vec<Change>,
        verdict: &mut Verdict,
    ) -> Result<(), BenchError> {
        let after: BTreeMap<_, _> = in_flight.iter().cloned().collect();
        let (mut done, mut not_done) = (0, 0);
        for (key, value) in &after {
            let before = self.state.get(key).map(ValueId::bytes);
            let value = value.as_ref().map(ValueId::bytes);
            if before == value {
                // Short values can be equal by chance: nothing to be told from this key.
                continue;
            }
            let found = store.get(key)?;
            if found.as_deref() == value.as_deref() {
                done += 1;
            } else if found.as_deref() == before.as_deref() {
                not_done += 1;
            } else {
                verdict.complain(|| {
                    format!(
                        "{} is neither as before nor as after the operation in flight",
                        show(key)
                    )
                });
            }
        }
        if done > 0 && not_done > 0 {
            verdict.complain(|| {
                format!(
                    "a batch of {} was torn: {done} keys changed, {not_done} not",
                    after.len()
                )
            });
        }
        if done > 0 {
            verdict.in_flight_done += 1;
            self.apply(in_flight);
        }
        Ok(())
    }

    /// Every key, by a get and by a scan.
    fn compare_all(&self, store: &Store, verdict: &mut Verdict) -> Result<(), BenchError> {
        verdict.keys = self.state.len() as u64;
        for (key, value) in &self.state {
            match store.get(key)? {
                None => verdict.complain(|| format!("{} is lost", show(key))),
                Some(found) if *found == *value.bytes() => verdict.found += 1,
                Some(found) => verdict.complain(|| {
                    format!("{} has a wrong value of {} bytes", show(key), found.len())
                }),
            }
        }
        let mut expected = self.state.keys().peekable();
        for pair in store.scan(ScanRange::all().keys_only())? {
            let (key, _) = pair?;
            // Both are in order: what the scan skips is missing, what it has besides is foreign.
            while let Some(wanted) = expected.next_if(|wanted| **wanted < key) {
                verdict.complain(|| format!("the scan lacks {}", show(wanted)));
            }
            if expected.next_if(|wanted| **wanted == key).is_none() {
                verdict
                    .complain(|| format!("the scan has {}, which must not be there", show(&key)));
            }
        }
        for missing in expected {
            verdict.complain(|| format!("the scan lacks {}", show(missing)));
        }
        Ok(())
    }
}

fn show(key: &[u8]) -> String {
    format!("key {:?}", String::from_utf8_lossy(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_store::{StoreOptions, Variant};

    const MIX: Mix = Mix::All {
        value_bytes_max: 4096,
    };
    const SEED: u64 = 8;
    const ACKNOWLEDGED: u64 = 300;

    /// A store that did what its writer acknowledged, and then `more`; and what is found wrong with it.
    fn verdict(more: impl FnOnce(&Store, &Oracle)) -> Verdict {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new()
            .variant(Variant::NoSync)
            .file_size(16 << 20)
            .segment_size(1 << 20);
        let store = options.open(dir.path(), None).unwrap();
        let mut known = Oracle::default();
        for changes in Ops::new(MIX, SEED, 0).take(ACKNOWLEDGED as usize) {
            apply_all(&store, &changes);
            known.apply(changes);
        }
        more(&store, &known);
        Oracle::default()
            .compare(&store, MIX, SEED, &[ACKNOWLEDGED])
            .unwrap()
    }

    fn apply_all(store: &Store, changes: &[Change]) {
        for (key, value) in changes {
            match value {
                Some(value) => store.put(key, &value.bytes()).unwrap(),
                None => store.delete(key).unwrap(),
            }
        }
    }

    fn complains(verdict: &Verdict, about: &str) {
        assert!(
            verdict.wrong.iter().any(|what| what.contains(about)),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_store_that_kept_its_word_is_right() {
        let verdict = verdict(|_, _| ());
        assert_eq!(verdict.wrong, Vec::<String>::new());
        assert_eq!(
            (verdict.acknowledged, verdict.found),
            (ACKNOWLEDGED, verdict.keys)
        );
    }

    #[test]
    fn a_lost_key_a_wrong_value_and_a_foreign_key_are_noticed() {
        let first = |oracle: &Oracle| oracle.state.keys().next().cloned().unwrap();
        complains(
            &verdict(|store, known| store.delete(&first(known)).unwrap()),
            "is lost",
        );
        complains(
            &verdict(|store, known| store.delete(&first(known)).unwrap()),
            "the scan lacks",
        );
        complains(
            &verdict(|store, known| store.put(&first(known), b"other").unwrap()),
            "wrong value",
        );
        complains(
            &verdict(|store, _| store.put(b"foreign", b"").unwrap()),
            "must not be there",
        );
    }

    #[test]
    fn the_operation_in_flight_may_be_done_but_the_one_after_it_not() {
        let mut ops = Ops::new(MIX, SEED, 0).skip(ACKNOWLEDGED as usize);
        let (in_flight, next) = (ops.next().unwrap(), ops.next().unwrap());
        let done = verdict(|store, _| apply_all(store, &in_flight));
        assert_eq!((done.in_flight_done, done.wrong.len()), (1, 0), "{done:?}");
        let too_much = verdict(|store, _| {
            apply_all(store, &in_flight);
            apply_all(store, &next);
        });
        assert!(!too_much.wrong.is_empty());
    }

    #[test]
    fn a_torn_batch_is_noticed() {
        // A seed and a count at which a batch of new values is in flight.
        let (count, batch) = Ops::new(MIX, SEED, 0)
            .zip(0..)
            .find_map(|(op, at)| {
                (at > 20 && op.len() > 2 && op.iter().all(|c| c.1.is_some())).then_some((at, op))
            })
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().variant(Variant::NoSync);
        let store = options.open(dir.path(), None).unwrap();
        for changes in Ops::new(MIX, SEED, 0).take(count as usize) {
            apply_all(&store, &changes);
        }
        apply_all(&store, &batch[..1]);
        let verdict = Oracle::default()
            .compare(&store, MIX, SEED, &[count])
            .unwrap();
        complains(&verdict, "was torn");
    }
}
