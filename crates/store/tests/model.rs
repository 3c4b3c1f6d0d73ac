//! The store does what a `BTreeMap` does, whatever else happens to it in between.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, VARIANTS, tiny, within};
use forebay_store::{Batch, Scan, ScanRange, Snapshot, Store, StoreError, StoreOptions, Variant};
use proptest::{prelude::*, test_runner::FileFailurePersistence};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    time::Duration,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Ways to open a store: each variant, and resident.
const WAYS: u8 = 6;
/// Enough for what is live, and little enough that it is filled and collected.
const RESIDENT_SEGMENTS: u16 = 32;

/// Snapshots that are held at the same time, and scans.
const SNAPSHOTS: usize = 12;
const SCANS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    Put(Key, Size),
    /// So many puts at once, to fill chunks, segments and files.
    PutMany(u16, u16),
    Delete(Key),
    Batch(Vec<(Key, Option<Size>)>),
    Get(Key),
    Scan(Bound<Key>, Bound<Key>, bool),
    Prefix(Key, u8),
    TakeSnapshot,
    DropSnapshot(u8),
    /// Begins a scan, and has it give so many keys; it is finished later.
    BeginScan(bool, u8),
    /// Has a scan give all that it has left.
    FinishScan(u8),
    DeleteAll,
    /// So many times: a key behind all others is put, and the first of those is taken away.
    Queue(u16),
    Flush,
    Collect,
    Close(u8),
    Crash(u8),
}

/// A key's number and class.
#[derive(Clone, Copy, Debug)]
struct Key(u8, u16);

impl Key {
    fn bytes(self) -> Vec<u8> {
        let Self(class, number) = self;
        match class {
            0 => vec![(number % 250) as u8 + 1],
            1 => u64::from(number).to_be_bytes().to_vec(),
            2 => format!("a key of ordinary length {number:05}").into_bytes(),
            3 => vec![0; 1 + usize::from(number % 20)],
            _ => [&vec![b'k'; 2000][..], &number.to_be_bytes()].concat(),
        }
    }
}

/// A value's length and first byte.
#[derive(Clone, Copy, Debug)]
struct Size(u32, u8);

impl Size {
    fn bytes(self) -> Vec<u8> {
        (0..self.0)
            .map(|i| (i as u8).wrapping_add(self.1))
            .collect()
    }
}

fn key() -> impl Strategy<Value = Key> {
    (0u8..5, 0u16..60).prop_map(|(class, number)| Key(class, number))
}

fn size() -> impl Strategy<Value = Size> {
    let bytes = prop_oneof![
        2 => Just(0u32),
        6 => 1u32..100,
        6 => 100u32..5000,
        // Around half a segment, where values begin to lie in files of their own.
        2 => 30_000u32..33_000,
        1 => 33_000u32..200_000,
    ];
    (bytes, any::<u8>()).prop_map(|(bytes, first)| Size(bytes, first))
}

fn bound() -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (key(), size()).prop_map(|(key, size)| Step::Put(key, size)),
        4 => (any::<u16>(), 50u16..700).prop_map(|(from, count)| Step::PutMany(from, count)),
        8 => key().prop_map(Step::Delete),
        6 => proptest::collection::vec((key(), proptest::option::of(size())), 0..8).prop_map(Step::Batch),
        8 => key().prop_map(Step::Get),
        4 => (bound(), bound(), any::<bool>()).prop_map(|(from, to, back)| Step::Scan(from, to, back)),
        2 => (key(), 0u8..4).prop_map(|(key, bytes)| Step::Prefix(key, bytes)),
        3 => Just(Step::TakeSnapshot),
        2 => any::<u8>().prop_map(Step::DropSnapshot),
        3 => (any::<bool>(), any::<u8>()).prop_map(|(back, count)| Step::BeginScan(back, count)),
        2 => any::<u8>().prop_map(Step::FinishScan),
        1 => Just(Step::DeleteAll),
        2 => (1u16..400).prop_map(Step::Queue),
        2 => Just(Step::Flush),
        2 => Just(Step::Collect),
        1 => (0u8..WAYS).prop_map(Step::Close),
        2 => (0u8..WAYS).prop_map(Step::Crash),
    ]
}

fn options(variant: u8) -> StoreOptions {
    let resident = usize::from(variant) == VARIANTS.len();
    tiny(match resident {
        true => Variant::Buffered(RESIDENT_SEGMENTS),
        false => VARIANTS[usize::from(variant)],
    })
    .space_amplification_max(1.3)
    .resident(resident)
}

/// All pairs of a range, compared as they come.
fn check_range(
    pairs: impl Iterator<Item = Result<(Vec<u8>, forebay_store::Value), forebay_store::StoreError>>,
    model: &Model,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    reversed: bool,
) {
    let within = |key: &Vec<u8>| {
        (match &from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        }) && (match &to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        })
    };
    let mut expected: Vec<_> = model.iter().filter(|(key, _)| within(key)).collect();
    if reversed {
        expected.reverse();
    }
    let mut expected = expected.into_iter();
    for pair in pairs {
        let (key, value) = pair.unwrap();
        let (wanted, bytes) = expected.next().expect("no more keys");
        assert_eq!(&key, wanted);
        assert!(value == *bytes, "the value of {key:02x?}");
    }
    assert_eq!(expected.next(), None, "a key is missing");
}

fn check_all(store: &Store, model: &Model) {
    for reversed in [false, true] {
        let range = ScanRange::all();
        let range = if reversed { range.reversed() } else { range };
        let pairs = store.scan(range).unwrap();
        check_range(pairs, model, Bound::Unbounded, Bound::Unbounded, reversed);
    }
    for (key, value) in model {
        assert!(store.get(key).unwrap().unwrap() == *value);
    }
}

/// A scan, and what it is to give yet.
struct Held {
    scan: Scan,
    left: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl Held {
    fn begin(store: &Store, model: &Model, reversed: bool) -> Self {
        let range = ScanRange::all();
        let range = if reversed { range.reversed() } else { range };
        let mut left: Vec<_> = model.clone().into_iter().collect();
        if reversed {
            left.reverse();
        }
        Self {
            scan: store.scan(range).unwrap(),
            left: left.into(),
        }
    }

    fn give(&mut self, keys: usize) {
        for _ in 0..keys {
            let found = self.scan.next().map(Result::unwrap);
            let found = found.map(|(key, value)| (key, value.into_vec()));
            assert_eq!(found, self.left.pop_front());
        }
    }

    fn finish(mut self) {
        self.give(self.left.len() + 1);
    }
}

/// Does `write`. A resident store that is full because of open snapshots has room again without them.
fn retried(open: &mut Open, write: impl Fn() -> Result<(), StoreError>) {
    match write() {
        Err(StoreError::Full { .. }) if !open.snapshots.is_empty() || !open.scans.is_empty() => {
            *open = Open::default();
            write().unwrap();
        }
        done => done.unwrap(),
    }
}

#[derive(Default)]
struct Open {
    snapshots: Vec<(Snapshot, Model)>,
    scans: Vec<Held>,
}

struct World {
    bench: Bench,
    /// None only while it is closed.
    store: Option<Store>,
    model: Model,
    open: Open,
    queued: u32,
}

impl World {
    fn reopen(&mut self, variant: u8, closes: bool) {
        self.open.scans.drain(..).for_each(Held::finish);
        for (snapshot, model) in self.open.snapshots.drain(..) {
            let pairs = snapshot.scan(ScanRange::all()).unwrap();
            check_range(pairs, &model, Bound::Unbounded, Bound::Unbounded, false);
        }
        let old = self.store.take().unwrap();
        if closes {
            old.close().unwrap();
        } else {
            drop(old);
        }
        let store = self.store.insert(self.bench.open(&options(variant)));
        check_all(store, &self.model);
    }

    fn take(&mut self, step: Step) {
        let (store, model) = (self.store.as_ref().unwrap(), &mut self.model);
        match step {
            Step::Put(key, size) => {
                let (key, value) = (&key.bytes(), &size.bytes());
                retried(&mut self.open, || store.put(key, value));
                model.insert(key.clone(), value.clone());
            }
            Step::PutMany(from, count) => {
                for i in 0..count {
                    let key = Key(2, from.wrapping_add(i) % 1000).bytes();
                    let value = Size(u32::from(i % 7) * 150, i as u8).bytes();
                    retried(&mut self.open, || store.put(&key, &value));
                    model.insert(key, value);
                }
            }
            Step::Delete(key) => {
                retried(&mut self.open, || store.delete(&key.bytes()));
                model.remove(&key.bytes());
            }
            Step::Batch(changes) => {
                let mut batch = Batch::new();
                for (key, size) in &changes {
                    match size {
                        // Such values lie in the batch's record, which has a limit.
                        Some(Size(bytes, first)) => {
                            let bytes = if *bytes > 33_000 {
                                *bytes
                            } else {
                                bytes % 3000
                            };
                            batch.put(&key.bytes(), &Size(bytes, *first).bytes());
                            model.insert(key.bytes(), Size(bytes, *first).bytes());
                        }
                        None => {
                            batch.delete(&key.bytes());
                            model.remove(&key.bytes());
                        }
                    }
                }
                retried(&mut self.open, || store.write(&batch));
            }
            Step::Get(key) => {
                let found = store.get(&key.bytes()).unwrap().map(|v| v.into_vec());
                assert_eq!(found.as_ref(), model.get(&key.bytes()));
                for (snapshot, model) in &self.open.snapshots {
                    let found = snapshot.get(&key.bytes()).unwrap().map(|v| v.into_vec());
                    assert_eq!(found.as_ref(), model.get(&key.bytes()));
                }
            }
            Step::Scan(from, to, reversed) => {
                let (from, to) = (from.map(Key::bytes), to.map(Key::bytes));
                let range = ScanRange::new(from.clone(), to.clone());
                let range = if reversed { range.reversed() } else { range };
                let pairs = store.scan(range.clone()).unwrap();
                check_range(pairs, model, from.clone(), to.clone(), reversed);
                for (snapshot, model) in &self.open.snapshots {
                    let pairs = snapshot.scan(range.clone()).unwrap();
                    check_range(pairs, model, from.clone(), to.clone(), reversed);
                }
            }
            Step::Prefix(key, bytes) => {
                let prefix = &key.bytes()[..usize::from(bytes).min(key.bytes().len())];
                let found: Vec<_> = store
                    .scan(ScanRange::prefix(prefix).keys_only())
                    .unwrap()
                    .map(|pair| pair.unwrap().0)
                    .collect();
                let expected = model.keys().filter(|key| key.starts_with(prefix));
                assert!(found.iter().eq(expected));
            }
            Step::TakeSnapshot => {
                if self.open.snapshots.len() == SNAPSHOTS {
                    self.open.snapshots.remove(0);
                }
                let snapshot = store.snapshot().unwrap();
                self.open.snapshots.push((snapshot, model.clone()));
            }
            Step::DropSnapshot(which) => {
                if !self.open.snapshots.is_empty() {
                    let at = usize::from(which) % self.open.snapshots.len();
                    self.open.snapshots.remove(at);
                }
            }
            Step::BeginScan(reversed, keys) => {
                if self.open.scans.len() == SCANS {
                    self.open.scans.remove(0).finish();
                }
                let mut held = Held::begin(store, model, reversed);
                held.give(usize::from(keys));
                self.open.scans.push(held);
            }
            Step::FinishScan(which) => {
                if !self.open.scans.is_empty() {
                    let at = usize::from(which) % self.open.scans.len();
                    self.open.scans.remove(at).finish();
                }
            }
            Step::DeleteAll => {
                for key in std::mem::take(model).into_keys() {
                    retried(&mut self.open, || store.delete(&key));
                }
                assert!(store.scan(ScanRange::all()).unwrap().next().is_none());
            }
            Step::Queue(count) => {
                for _ in 0..count {
                    let key = format!("queue {:08}", self.queued).into_bytes();
                    retried(&mut self.open, || store.put(&key, b"task"));
                    model.insert(key, b"task".to_vec());
                    self.queued += 1;
                    let first = store.scan(ScanRange::prefix(b"queue ")).unwrap().next();
                    let (first, _) = first.unwrap().unwrap();
                    let expected = model.range(b"queue ".to_vec()..).next().unwrap().0;
                    assert_eq!(&first, expected);
                    // Some stay, and are met again.
                    if !self.queued.is_multiple_of(7) {
                        retried(&mut self.open, || store.delete(&first));
                        model.remove(&first);
                    }
                }
            }
            Step::Flush => store.flush().unwrap(),
            // Everything goes to the index first, and its tables are merged.
            Step::Collect => drop(store.gc().unwrap()),
            Step::Close(variant) => self.reopen(variant, true),
            Step::Crash(variant) => self.reopen(variant, false),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]
    #[test]
    fn a_store_does_what_a_map_does(
        variant in 0u8..WAYS,
        steps in proptest::collection::vec(step(), 20..120),
    ) {
        within(Duration::from_secs(120), "a sequence of operations", move || {
            let bench = Bench::with_room(48, 64 << 10);
            let mut world = World {
                store: Some(bench.open(&options(variant))),
                bench,
                model: Model::new(),
                open: Open::default(),
                queued: 0,
            };
            for step in steps {
                world.take(step);
            }
            world.reopen(variant, variant % 2 == 0);
            let report = world.store.unwrap().verify().unwrap();
            prop_assert_eq!(report.problems, Vec::<String>::new());
            Ok(())
        })?;
    }
}
