//! A store with keyspaces and a clock does what a map does.

use crate::{
    TestClock,
    common::{Bench, Rng, VARIANTS, compression, tiny, within},
    ends::{Pair, move_about},
};
use forebay_store::{
    Durability, KeyspaceOptions, ScanRange, Snapshot, Store, StoreError, StoreOptions, Value,
};
use proptest::{prelude::*, test_runner::FileFailurePersistence};
use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow, RangeBounds},
    time::Duration,
};

/// Names of keyspaces, those with a time to live last; the first is the default one.
const NAMES: [&str; 5] = ["", "plain", "other", "short", "long"];
const TTLS: [Option<u64>; 5] = [None, None, None, Some(50), Some(500)];
const RESIDENT_SEGMENTS: u16 = 32;

#[derive(Clone, Debug)]
enum Change {
    Put(usize, u8, u16),
    Delete(usize, u8),
    /// From one key to another, or all.
    DeleteRange(usize, u8, u8),
}

impl Change {
    fn keyspace(&self) -> usize {
        let (Self::Put(number, ..) | Self::Delete(number, _) | Self::DeleteRange(number, ..)) =
            self;
        *number
    }
}

fn bounds_of(a: u8, b: u8) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let (from, to) = (key(a).min(key(b)), key(a).max(key(b)));
    match from == to {
        true => (Bound::Unbounded, Bound::Unbounded),
        false => (Bound::Included(from), Bound::Excluded(to)),
    }
}

fn range_of(a: u8, b: u8) -> ScanRange {
    ScanRange::new::<Vec<u8>>(bounds_of(a, b))
}

#[derive(Clone, Debug)]
enum Step {
    Change(Change),
    Batch(Vec<Change>),
    Transaction(Vec<Change>),
    Fill(usize, u16),
    Append(usize, u8),
    Pass(u16),
    Drop(usize),
    TakeSnapshot,
    Collect,
    Compact,
    Reopen(usize, bool),
}

pub fn key(number: u8) -> Vec<u8> {
    let starts: [&[u8]; 5] = [b"k", b"\xff", b"\xff\0", b"\xff\x01\0\0\0\x01", b"\xfe\xff"];
    [starts[usize::from(number) % starts.len()], &[number / 8]].concat()
}

fn value(length: u16) -> Vec<u8> {
    // Some lie in files of their own.
    let length = if length > 1160 {
        40_000
    } else {
        usize::from(length)
    };
    vec![length as u8; length]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..NAMES.len(), any::<u8>(), 0u16..1200).prop_map(|(n, k, v)| Change::Put(n, k, v)),
        1 => (0..NAMES.len(), any::<u8>()).prop_map(|(n, k)| Change::Delete(n, k)),
        1 => (0..NAMES.len(), any::<u8>(), any::<u8>())
            .prop_map(|(n, a, b)| Change::DeleteRange(n, a, b)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let changes = || proptest::collection::vec(change(), 1..8);
    prop_oneof![
        12 => change().prop_map(Step::Change),
        4 => changes().prop_map(Step::Batch),
        3 => changes().prop_map(Step::Transaction),
        4 => (0..NAMES.len(), 100u16..600).prop_map(|(n, count)| Step::Fill(n, count)),
        2 => (0..NAMES.len(), any::<u8>()).prop_map(|(n, k)| Step::Append(n, k)),
        6 => (1u16..200).prop_map(Step::Pass),
        2 => (1..NAMES.len()).prop_map(Step::Drop),
        2 => Just(Step::TakeSnapshot),
        3 => Just(Step::Collect),
        1 => Just(Step::Compact),
        2 => (0..VARIANTS.len() + 1, any::<bool>()).prop_map(|(v, closes)| Step::Reopen(v, closes)),
    ]
}

/// By number of the keyspace and key: the value, and when it expires.
type Model = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<u64>)>;

struct World {
    bench: Bench,
    clock: TestClock,
    store: Option<Store>,
    model: Model,
    /// Snapshots with what they see, when, and how often each keyspace had been dropped.
    snapshots: Vec<(Snapshot, Model, u64)>,
    drops: [u32; NAMES.len()],
    dropped_at: Vec<[u32; NAMES.len()]>,
    rng: Rng,
}

fn options_of(number: usize) -> KeyspaceOptions {
    // Some are compressed: of those that expire, and of the others.
    let options = match number % 2 {
        0 => KeyspaceOptions::new().compression(compression(number as u64 / 2)),
        _ => KeyspaceOptions::new(),
    };
    match TTLS[number] {
        None => options,
        Some(ttl) => options.ttl(Duration::from_millis(ttl)),
    }
}

impl World {
    fn options(&self, variant: usize) -> StoreOptions {
        let resident = variant == VARIANTS.len();
        let durability = match resident {
            true => Durability::Buffered(RESIDENT_SEGMENTS),
            false => VARIANTS[variant],
        };
        let options = tiny(durability).space_amplification_max(1.3);
        self.clock.options(options.resident(resident))
    }

    /// What the model has in a keyspace at a time.
    fn alive(model: &Model, number: usize, time: u64) -> Vec<Pair> {
        let of_it = model.iter().filter(|((of, _), (_, expiry))| {
            *of == number && expiry.is_none_or(|expiry| time < expiry)
        });
        of_it
            .map(|((_, key), (value, _))| (key.clone(), value.clone()))
            .collect()
    }

    fn scan(snapshot: &Snapshot) -> Vec<Pair> {
        let all = snapshot.scan(ScanRange::all()).unwrap();
        all.map(|pair| pair.map(|(key, value)| (key, value.into_vec())).unwrap())
            .collect()
    }

    /// A snapshot has these pairs in a keyspace: by scans in all ways, and by several keys at once.
    fn check_snapshot(snapshot: &Snapshot, number: usize, expected: &[Pair], rng: &mut Rng) {
        let of_it = match number {
            0 => snapshot.keyspace(None).unwrap(),
            _ => snapshot.keyspace(NAMES[number]).unwrap(),
        };
        assert!(Self::scan(&of_it) == expected, "{}", NAMES[number]);
        move_about(&of_it, expected, rng);
        Self::check_values(of_it.multi_get((0..=u8::MAX).map(key)), expected);
    }

    /// What `multi_get` gave of all keys.
    fn check_values(found: Result<Vec<Option<Value>>, StoreError>, expected: &[Pair]) {
        for (key, found) in (0..=u8::MAX).map(key).zip(found.unwrap()) {
            let expected = expected.iter().find(|(other, _)| *other == key);
            assert!(found.as_deref() == expected.map(|(_, value)| &value[..]));
        }
    }

    fn check(&mut self) {
        let (store, now) = (self.store.as_ref().unwrap(), self.clock.now());
        let snapshot = store.snapshot().unwrap();
        for (number, name) in NAMES.into_iter().enumerate() {
            let expected = Self::alive(&self.model, number, now);
            Self::check_snapshot(&snapshot, number, &expected, &mut self.rng);
            let of_it = (number > 0).then(|| store.existing_keyspace(name).unwrap());
            let all = (0..=u8::MAX).map(key);
            let values = match &of_it {
                None => store.multi_get(all),
                Some(it) => it.multi_get(all),
            };
            Self::check_values(values, &expected);
            for key in (0..=u8::MAX).map(key) {
                let expected = expected.iter().find(|(other, _)| *other == key);
                let (found, there) = match &of_it {
                    None => (store.get(&key).unwrap(), store.contains_key(&key).unwrap()),
                    Some(it) => (it.get(&key).unwrap(), it.contains_key(&key).unwrap()),
                };
                assert_eq!(there, found.is_some());
                assert!(found.map(|found| found.into_vec()).as_ref() == expected.map(|(_, v)| v));
            }
        }
        for ((snapshot, model, time), drops) in self.snapshots.iter().zip(&self.dropped_at) {
            for number in (0..NAMES.len()).filter(|&number| drops[number] == self.drops[number]) {
                let expected = Self::alive(model, number, *time);
                Self::check_snapshot(snapshot, number, &expected, &mut self.rng);
            }
        }
    }

    fn note(&mut self, change: &Change) {
        match change {
            Change::Put(number, k, v) => {
                let expiry = TTLS[*number].map(|ttl| self.clock.now() + ttl);
                self.model.insert((*number, key(*k)), (value(*v), expiry));
            }
            Change::Delete(number, k) => drop(self.model.remove(&(*number, key(*k)))),
            Change::DeleteRange(number, a, b) => {
                let bounds = bounds_of(*a, *b);
                (self.model).retain(|(of, key), _| of != number || !bounds.contains(key));
            }
        }
    }

    /// Does `write`; a resident store that is full because of snapshots has room without them.
    fn retried(&mut self, write: impl Fn(&Store) -> Result<(), StoreError>) {
        match write(self.store.as_ref().unwrap()) {
            Err(StoreError::Full { .. }) if !self.snapshots.is_empty() => {
                self.snapshots.clear();
                self.dropped_at.clear();
                write(self.store.as_ref().unwrap()).unwrap();
            }
            done => done.unwrap(),
        }
    }

    fn write(store: &Store, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::Put(0, k, v) => store.put(&key(*k), &value(*v)),
            Change::Delete(0, k) => store.delete(&key(*k)),
            Change::Put(n, k, v) => store
                .existing_keyspace(NAMES[*n])?
                .put(&key(*k), &value(*v)),
            Change::Delete(n, k) => store.existing_keyspace(NAMES[*n])?.delete(&key(*k)),
            Change::DeleteRange(0, a, b) => store.delete_range(range_of(*a, *b)),
            Change::DeleteRange(n, a, b) => store
                .existing_keyspace(NAMES[*n])?
                .delete_range(range_of(*a, *b)),
        }
    }

    fn batch(store: &Store, changes: &[Change]) -> Result<(), StoreError> {
        let mut batch = store.batch();
        for change in changes {
            match change {
                Change::Put(0, k, v) => batch.put(&key(*k), &value(*v))?,
                Change::Delete(0, k) => batch.delete(&key(*k))?,
                Change::Put(n, k, v) => {
                    batch.put_in(&store.existing_keyspace(NAMES[*n])?, &key(*k), &value(*v))?;
                }
                Change::Delete(n, k) => {
                    batch.delete_in(&store.existing_keyspace(NAMES[*n])?, &key(*k))?;
                }
                Change::DeleteRange(0, a, b) => batch.delete_range(range_of(*a, *b))?,
                Change::DeleteRange(n, a, b) => {
                    let of_it = store.existing_keyspace(NAMES[*n])?;
                    batch.delete_range_in(&of_it, range_of(*a, *b))?;
                }
            }
        }
        store.write(&batch)
    }

    fn transaction(store: &Store, changes: &[Change]) -> Result<(), StoreError> {
        store.transaction(|tx| {
            for change in changes {
                let n = change.keyspace();
                let of_it = (n > 0).then(|| store.existing_keyspace(NAMES[n]).unwrap());
                match (change, &of_it) {
                    (Change::Put(_, k, v), None) => tx.put(&key(*k), &value(*v))?,
                    (Change::Delete(_, k), None) => tx.delete(&key(*k))?,
                    (Change::Put(_, k, v), Some(it)) => {
                        tx.put_in(it, &key(*k), &value(*v))?;
                        assert!(tx.contains_key_in(it, &key(*k))?);
                    }
                    (Change::Delete(_, k), Some(it)) => tx.delete_in(it, &key(*k))?,
                    (Change::DeleteRange(_, a, b), None) => tx.delete_range(range_of(*a, *b))?,
                    (Change::DeleteRange(_, a, b), Some(it)) => {
                        tx.delete_range_in(it, range_of(*a, *b))?;
                    }
                }
                if let Some(it) = &of_it {
                    tx.scan_in(it, ScanRange::all())?
                        .try_for_each(|pair| pair.map(drop))?;
                }
            }
            Ok(())
        })
    }

    fn open_keyspaces(&self) {
        let store = self.store.as_ref().unwrap();
        for (number, name) in NAMES.into_iter().enumerate().skip(1) {
            store.keyspace(name, options_of(number)).unwrap();
        }
    }

    fn reopen(&mut self, variant: usize, closes: bool) {
        self.snapshots.clear();
        self.dropped_at.clear();
        let old = self.store.take().unwrap();
        match closes {
            true => old.close().unwrap(),
            false => drop(old),
        }
        self.store = Some(self.bench.open(&self.options(variant)));
        self.open_keyspaces();
    }

    /// Replaces a value by a longer one.
    fn append(&mut self, number: usize, k: u8) {
        let now = self.clock.now();
        let model = &self.model;
        let alive = |(value, expiry): &(Vec<u8>, Option<u64>)| {
            expiry
                .is_none_or(|expiry| now < expiry)
                .then(|| value.clone())
        };
        let old = model.get(&(number, key(k))).and_then(alive);
        let new = [&old.clone().unwrap_or_default()[..], b"more"].concat();
        self.retried(|store| {
            let longer = |found: Option<&[u8]>| {
                assert_eq!(found, old.as_deref());
                Some(new.clone())
            };
            match number {
                0 => store.update(&key(k), longer).map(drop),
                _ => store
                    .existing_keyspace(NAMES[number])?
                    .update(&key(k), longer)
                    .map(drop),
            }
        });
        let expiry = TTLS[number].map(|ttl| now + ttl);
        self.model.insert((number, key(k)), (new, expiry));
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Change(change) => {
                self.retried(|store| Self::write(store, &change));
                self.note(&change);
            }
            Step::Batch(changes) => {
                self.retried(|store| Self::batch(store, &changes));
                changes.iter().for_each(|change| self.note(change));
            }
            Step::Transaction(changes) => {
                self.retried(|store| Self::transaction(store, &changes));
                changes.iter().for_each(|change| self.note(change));
            }
            Step::Fill(number, count) => {
                for i in 0..count {
                    let change = Change::Put(number, i as u8, i % 900);
                    self.retried(|store| Self::write(store, &change));
                    self.note(&change);
                }
            }
            Step::Append(number, k) => self.append(number, k),
            Step::Pass(milliseconds) => self.clock.pass(u64::from(milliseconds)),
            Step::Drop(number) => {
                let store = self.store.as_ref().unwrap();
                store.drop_keyspace(NAMES[number]).unwrap();
                store.keyspace(NAMES[number], options_of(number)).unwrap();
                self.model.retain(|(of, _), _| *of != number);
                self.drops[number] += 1;
            }
            Step::TakeSnapshot => {
                if self.snapshots.len() == 6 {
                    self.snapshots.remove(0);
                    self.dropped_at.remove(0);
                }
                let snapshot = self.store.as_ref().unwrap().snapshot().unwrap();
                self.snapshots
                    .push((snapshot, self.model.clone(), self.clock.now()));
                self.dropped_at.push(self.drops);
            }
            Step::Collect => drop(self.store.as_ref().unwrap().gc().unwrap()),
            Step::Compact => {
                let compacted =
                    (self.store.as_ref().unwrap()).compact(|_| ControlFlow::Continue(()));
                drop(compacted.unwrap());
            }
            Step::Reopen(variant, closes) => self.reopen(variant, closes),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]
    /// Promise (store): Keyspaces, values that expire, drops and deleted ranges do what a map does,
    /// by single keys, several, and scans from both ends, whatever the collector, crashes and
    /// snapshots do.
    #[test]
    fn keyspaces_do_what_maps_with_a_clock_do(
        variant in 0..=VARIANTS.len(),
        seed in any::<u64>(),
        steps in proptest::collection::vec(step(), 15..60),
    ) {
        within(Duration::from_secs(120), "a sequence of operations", move || {
            let mut world = World {
                bench: Bench::with_room(48, 64 << 10),
                clock: TestClock::new(),
                store: None,
                model: Model::new(),
                snapshots: Vec::new(),
                drops: [0; NAMES.len()],
                dropped_at: Vec::new(),
                rng: Rng(seed),
            };
            world.store = Some(world.bench.open(&world.options(variant)));
            world.open_keyspaces();
            for step in steps {
                world.take(step);
                world.check();
            }
            world.reopen(variant, variant % 2 == 0);
            world.check();
            let report = world.store.as_ref().unwrap().verify().unwrap();
            prop_assert_eq!(report.problems, Vec::<String>::new());
            Ok(())
        })?;
    }
}
