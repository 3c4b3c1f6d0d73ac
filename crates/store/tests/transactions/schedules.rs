//! Transactions that are open at the same time, step by step beside a map: each reads what the map
//! was at its beginning and what it has written, and is committed if, and only if, its reads would
//! give the same at that moment.

use crate::common::{Bench, tiny, within};
use forebay_store::{Durability, ScanRange, Store, StoreError, Transaction};
use proptest::{prelude::*, test_runner::FileFailurePersistence};
use std::{collections::BTreeMap, ops::Bound, time::Duration};

/// Transactions that are open at the same time.
const OPEN: usize = 4;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Get(u8),
    Contains(u8),
    Put(u8, u8),
    Delete(u8),
    /// Two bounds, the direction, and how many pairs are taken.
    Scan(Bound<u8>, Bound<u8>, bool, usize),
    Clear,
    Commit,
    Abort,
    /// Without a transaction.
    PutNow(u8, u8),
    DeleteNow(u8),
    Swap(u8, Option<u8>, Option<u8>),
    Append(u8, u8),
    Flush,
    Collect,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0u8..12;
    // Few values, so that some come back.
    let value = || 0u8..4;
    let bound = || {
        prop_oneof![
            Just(Bound::Unbounded),
            key().prop_map(Bound::Included),
            key().prop_map(Bound::Excluded),
        ]
    };
    let maybe = || proptest::option::of(value());
    prop_oneof![
        6 => key().prop_map(Step::Get),
        2 => key().prop_map(Step::Contains),
        6 => (key(), value()).prop_map(|(key, value)| Step::Put(key, value)),
        3 => key().prop_map(Step::Delete),
        5 => (bound(), bound(), any::<bool>(), 0usize..8)
            .prop_map(|(from, to, back, count)| Step::Scan(from, to, back, count)),
        1 => Just(Step::Clear),
        6 => Just(Step::Commit),
        1 => Just(Step::Abort),
        4 => (key(), value()).prop_map(|(key, value)| Step::PutNow(key, value)),
        2 => key().prop_map(Step::DeleteNow),
        2 => (key(), maybe(), maybe()).prop_map(|(key, old, new)| Step::Swap(key, old, new)),
        2 => (key(), value()).prop_map(|(key, value)| Step::Append(key, value)),
        1 => Just(Step::Flush),
        1 => Just(Step::Collect),
    ]
}

fn key(number: u8) -> Vec<u8> {
    format!("key {number:02}").into_bytes()
}

/// Some lie in the log, and some in files of their own.
fn value(number: u8) -> Vec<u8> {
    vec![number; [3, 40, 900, 40_000][usize::from(number % 4)]]
}

/// What a transaction has read, as the map has it.
struct Read {
    range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    found: Model,
}

fn within_range(model: &Model, range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Model {
    use std::ops::RangeBounds;
    let pairs = model.iter().filter(|(key, _)| range.contains(*key));
    pairs
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

struct Open<'s> {
    tx: Transaction<'s>,
    began: Model,
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    reads: Vec<Read>,
}

impl<'s> Open<'s> {
    fn begin(store: &'s Store, model: &Model) -> Self {
        Self {
            tx: store.begin().unwrap(),
            began: model.clone(),
            writes: BTreeMap::new(),
            reads: Vec::new(),
        }
    }

    /// What it sees.
    fn sees(&self) -> Model {
        let mut sees = self.began.clone();
        for (key, value) in &self.writes {
            match value {
                Some(value) => sees.insert(key.clone(), value.clone()),
                None => sees.remove(key),
            };
        }
        sees
    }

    fn has_read(&mut self, range: (Bound<Vec<u8>>, Bound<Vec<u8>>)) {
        let found = within_range(&self.began, &range);
        self.reads.push(Read { range, found });
    }

    fn read_key(&mut self, key: &[u8]) {
        if !self.writes.contains_key(key) {
            let bound = || Bound::Included(key.to_vec());
            self.has_read((bound(), bound()));
        }
    }

    fn scan(&mut self, from: Bound<u8>, to: Bound<u8>, reversed: bool, count: usize) {
        let (from, to) = (from.map(key), to.map(key));
        let mut expected: Vec<_> = within_range(&self.sees(), &(from.clone(), to.clone()))
            .into_iter()
            .collect();
        let mut range = ScanRange::new((from.clone(), to.clone()));
        if reversed {
            expected.reverse();
            range = range.reversed();
        }
        let scan = self.tx.scan(range).unwrap();
        let found: Vec<_> = (scan.take(count))
            .map(|pair| pair.map(|(key, value)| (key, value.into_vec())).unwrap())
            .collect();
        // Who takes more than there are has seen the end.
        let ended = expected.len() < count;
        expected.truncate(count);
        assert_eq!(found, expected);
        match (ended, found.last()) {
            (true, _) => self.has_read((from, to)),
            (false, None) => {}
            (false, Some((last, _))) if reversed => {
                self.has_read((Bound::Included(last.clone()), to));
            }
            (false, Some((last, _))) => self.has_read((from, Bound::Included(last.clone()))),
        }
    }

    /// Its own steps.
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Get(number) => {
                let found = self.tx.get(&key(number)).unwrap().map(|it| it.into_vec());
                assert_eq!(found.as_ref(), self.sees().get(&key(number)));
                self.read_key(&key(number));
            }
            Step::Contains(number) => {
                let found = self.tx.contains_key(&key(number)).unwrap();
                assert_eq!(found, self.sees().contains_key(&key(number)));
                self.read_key(&key(number));
            }
            Step::Put(number, of) => {
                self.tx.put(&key(number), &value(of)).unwrap();
                self.writes.insert(key(number), Some(value(of)));
            }
            Step::Delete(number) => {
                self.tx.delete(&key(number)).unwrap();
                self.writes.insert(key(number), None);
            }
            Step::Scan(from, to, reversed, count) => self.scan(from, to, reversed, count),
            Step::Clear => {
                self.tx.clear();
                self.writes.clear();
            }
            _ => unreachable!("not a transaction's own"),
        }
    }

    fn commit(self, model: &mut Model) {
        let sees = self.sees();
        let changed = |read: &Read| within_range(model, &read.range) != read.found;
        let refused = !self.writes.is_empty() && self.reads.iter().any(changed);
        match self.tx.commit() {
            Ok(()) => {
                assert!(!refused, "what it read was changed");
                for (key, value) in self.writes {
                    match value {
                        Some(value) => model.insert(key, value),
                        None => model.remove(&key),
                    };
                }
            }
            Err(StoreError::Conflict { key }) => {
                assert!(refused, "nothing that it read was changed: {key:?}");
                assert_ne!(self.began.get(&key), model.get(&key), "{sees:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// What is done without a transaction.
fn do_now(store: &Store, model: &mut Model, step: &Step) {
    match *step {
        Step::PutNow(number, of) => {
            store.put(&key(number), &value(of)).unwrap();
            model.insert(key(number), value(of));
        }
        Step::DeleteNow(number) => {
            store.delete(&key(number)).unwrap();
            model.remove(&key(number));
        }
        Step::Swap(number, old, new) => {
            let (old, new) = (old.map(value), new.map(value));
            let swapped = store.compare_and_swap(&key(number), old.as_deref(), new.as_deref());
            let expected = model.get(&key(number)) == old.as_ref();
            assert_eq!(swapped.unwrap(), expected);
            match new {
                Some(new) if expected => drop(model.insert(key(number), new)),
                None if expected => drop(model.remove(&key(number))),
                _ => {}
            }
        }
        Step::Append(number, of) => {
            let longer = |old: Option<&[u8]>| {
                let mut longer = old.unwrap_or_default().to_vec();
                longer.push(of);
                // Now and then it is deleted.
                (!longer.len().is_multiple_of(5)).then_some(longer)
            };
            let new = longer(model.get(&key(number)).map(Vec::as_slice));
            assert_eq!(store.update(&key(number), longer).unwrap(), new);
            match new {
                Some(new) => model.insert(key(number), new),
                None => model.remove(&key(number)),
            };
        }
        Step::Flush => store.flush().unwrap(),
        Step::Collect => drop(store.gc().unwrap()),
        _ => unreachable!("a transaction's own"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 400,
        ..ProptestConfig::default()
    })]
    /// Promise (store): A transaction is committed if all that it read is so at that moment, and
    /// refused otherwise.
    #[test]
    fn commits_are_refused_where_reads_changed_and_nowhere_else(
        steps in proptest::collection::vec((0..OPEN, step()), 10..90),
    ) {
        within(Duration::from_secs(120), "transactions side by side", move || {
            let bench = Bench::new();
            let store = bench.open(&tiny(Durability::DOUBLE).space_amplification_max(1.2));
            let mut model = Model::new();
            let mut open: [Option<Open<'_>>; OPEN] = Default::default();
            for (which, step) in &steps {
                match step {
                    Step::Commit => if let Some(open) = open[*which].take() {
                        open.commit(&mut model);
                    },
                    Step::Abort => open[*which] = None,
                    Step::Get(_) | Step::Contains(_) | Step::Put(..) | Step::Delete(_)
                    | Step::Scan(..) | Step::Clear => {
                        let begin = || Open::begin(&store, &model);
                        open[*which].get_or_insert_with(begin).take(step);
                    }
                    _ => do_now(&store, &mut model, step),
                }
            }
            let found = store.scan(ScanRange::all()).unwrap().map(|pair| {
                let (key, value) = pair.unwrap();
                (key, value.into_vec())
            });
            assert!(found.eq(model));
        });
    }
}
