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
            let before = self.state.get(key);
            if before == value.as_ref() {
                continue;
            }
            let found = store.get(key)?;
            let is = |wanted: Option<&ValueId>| {
                found.as_deref() == wanted.map(ValueId::bytes).as_deref()
            };
            if is(value.as_ref()) {
                done += 1;
            } else if is(before) {
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
