//! A store and the map that it is to agree with: each step is done to both and their answers
//! compared, those of open snapshots and scans too.

use crate::{
    common::{Bench, VARIANTS, compression, tiny},
    steps::{Key, Size, Step},
};
use forebay_store::{
    Batch, Durability, ReadOnlyStore, Scan, ScanRange, Snapshot, Store, StoreError, StoreOptions,
    Value,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    ops::{Bound, ControlFlow},
};

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Enough for what is live, and little enough that it is filled and collected.
const RESIDENT_SEGMENTS: u16 = 32;

/// Snapshots that are held at the same time, and scans.
const SNAPSHOTS: usize = 12;
const SCANS: usize = 4;

pub fn options(variant: u8) -> StoreOptions {
    let resident = usize::from(variant) == VARIANTS.len();
    tiny(match resident {
        true => Durability::Buffered(RESIDENT_SEGMENTS),
        false => VARIANTS[usize::from(variant)],
    })
    .space_amplification_max(1.3)
    .compression(compression(u64::from(variant)))
    .prefix_filter(usize::from(variant % 3))
    .resident(resident)
}

/// True if the key lies between the bounds.
fn within(key: &Vec<u8>, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    (match from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    }) && (match to {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    })
}

/// All pairs of a range, compared as they come.
fn check_range(
    pairs: impl Iterator<Item = Result<(Vec<u8>, Value), StoreError>>,
    model: &Model,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    reversed: bool,
) {
    let is_within = |key: &Vec<u8>| within(key, &from, &to);
    let mut expected: Vec<_> = model.iter().filter(|(key, _)| is_within(key)).collect();
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

/// Reads a store that another one has open: everything that is in the map.
fn check_look(reader: &ReadOnlyStore, model: &Model) {
    let pairs = reader.scan(ScanRange::all()).unwrap();
    check_range(pairs, model, Bound::Unbounded, Bound::Unbounded, false);
    for (key, value) in model.iter().step_by(7) {
        assert!(reader.get(key).unwrap().unwrap() == *value);
    }
}

/// What counting up makes of a value; none if it is no counter, or has no room.
fn counted(old: Option<&Vec<u8>>, by: i64) -> Option<i64> {
    let old = old.map_or(Some(0), |old| {
        Some(i64::from_le_bytes(old[..].try_into().ok()?))
    });
    old?.checked_add(by)
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

/// Sets a key of the map, or removes it.
fn set(model: &mut Model, key: Vec<u8>, value: Option<Vec<u8>>) {
    match value {
        Some(value) => model.insert(key, value),
        None => model.remove(&key),
    };
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

/// Does `write`. A resident store that is full because of open snapshots has room again without
/// them.
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
pub struct Open {
    snapshots: Vec<(Snapshot, Model)>,
    scans: Vec<Held>,
    /// Another process would have it.
    reader: Option<ReadOnlyStore>,
}

pub struct World {
    pub bench: Bench,
    /// None only while it is closed.
    pub store: Option<Store>,
    pub model: Model,
    pub open: Open,
    pub queued: u32,
}

impl World {
    pub fn reopen(&mut self, variant: u8, closes: bool) {
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

    /// A copy has what the store has, and is a store of its own.
    fn copy(&self) {
        let dir = self.bench.dir.path().join("copy");
        let store = self.store.as_ref().unwrap();
        store.checkpoint(&dir).unwrap();
        let copy = tiny(Durability::NoSync).create_if_missing(false);
        let copy = copy.open(&dir, None).unwrap();
        check_all(&copy, &self.model);
        copy.put("copy", "its own").unwrap();
        assert_eq!(copy.verify().unwrap().problems, Vec::<String>::new());
        drop(copy);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    fn look(&mut self) {
        let reader = match self.open.reader.take() {
            Some(reader) => {
                reader.refresh().unwrap();
                reader
            }
            None => {
                let options = options(0);
                options
                    .open_read_only(self.bench.path(), &self.bench.pool)
                    .unwrap()
            }
        };
        check_look(&reader, &self.model);
        self.open.reader = Some(reader);
    }

    /// A transaction, of values that fit into it.
    fn transact(&mut self, changes: &[(Key, Option<Size>)], commits: bool) {
        let (store, model) = (self.store.as_ref().unwrap(), &mut self.model);
        let fits = |size: Size| match size {
            Size(bytes, first) if bytes <= 33_000 => Size(bytes % 3000, first),
            large => large,
        };
        let after = RefCell::new(Model::new());
        let run = || -> Result<(), StoreError> {
            let mut tx = store.begin()?;
            let mut sees = model.clone();
            for (key, size) in changes {
                let (key, value) = (key.bytes(), size.map(|size| fits(size).bytes()));
                let found = tx.get(&key)?.map(|found| found.into_vec());
                assert!(found.as_ref() == sees.get(&key));
                match &value {
                    Some(value) => tx.put(&key, value)?,
                    None => tx.delete(&key)?,
                }
                set(&mut sees, key, value);
            }
            let pairs = tx.scan(ScanRange::all())?;
            check_range(pairs, &sees, Bound::Unbounded, Bound::Unbounded, false);
            after.replace(sees);
            if commits {
                return tx.commit();
            }
            Ok(())
        };
        retried(&mut self.open, run);
        if commits {
            *model = after.into_inner();
        }
    }

    pub fn take(&mut self, step: Step) {
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
                            batch
                                .put(&key.bytes(), &Size(bytes, *first).bytes())
                                .unwrap();
                            model.insert(key.bytes(), Size(bytes, *first).bytes());
                        }
                        None => {
                            batch.delete(&key.bytes()).unwrap();
                            model.remove(&key.bytes());
                        }
                    }
                }
                retried(&mut self.open, || store.write(&batch));
            }
            Step::Transaction(changes, commits) => self.transact(&changes, commits),
            Step::Append(key, size) => {
                let longer = |old: Option<&[u8]>| {
                    let longer = [old.unwrap_or_default(), &size.bytes()].concat();
                    (longer.len() < 250_000).then_some(longer)
                };
                let new = longer(model.get(&key.bytes()).map(Vec::as_slice));
                retried(&mut self.open, || {
                    let found = store.update(&key.bytes(), longer)?;
                    assert!(found == new);
                    Ok(())
                });
                set(model, key.bytes(), new);
            }
            Step::Swap(key, size, is) => {
                let (key, new) = (key.bytes(), size.bytes());
                let present = model.get(&key).cloned();
                let expected = if is {
                    present.clone()
                } else {
                    Some(vec![0; 77])
                };
                let swaps = expected == present;
                retried(&mut self.open, || {
                    let done = store.compare_and_swap(&key, expected.as_deref(), Some(&new))?;
                    assert_eq!(done, swaps);
                    Ok(())
                });
                if swaps {
                    model.insert(key, new);
                }
            }
            Step::Increment(key, by) => {
                let key = key.bytes();
                let expected = counted(model.get(&key), by);
                retried(&mut self.open, || match store.increment(&key, by) {
                    Err(StoreError::NotACounter { .. }) if expected.is_none() => Ok(()),
                    done => done.map(|found| assert_eq!(Some(found), expected)),
                });
                let counter = expected.map(|counter| counter.to_le_bytes().to_vec());
                model.extend(counter.map(|counter| (key, counter)));
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
                let range = ScanRange::new((from.clone(), to.clone()));
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
            Step::DeleteEach(from, to, reversed) => {
                let (from, to) = (from.map(Key::bytes), to.map(Key::bytes));
                let mut keys: Vec<_> = model.keys().cloned().collect();
                keys.retain(|key| within(key, &from, &to));
                if reversed {
                    keys.reverse();
                }
                for key in keys {
                    retried(&mut self.open, || store.delete(&key));
                    model.remove(&key);
                }
            }
            Step::DeleteRange(from, to, put) => {
                let (from, to) = (from.map(Key::bytes), to.map(Key::bytes));
                let range = ScanRange::new((from.clone(), to.clone()));
                let put = put.map(|(key, size, behind)| (key.bytes(), size.bytes(), behind));
                retried(&mut self.open, || match &put {
                    None => store.delete_range(range.clone()),
                    Some((key, value, behind)) => {
                        let mut batch = store.batch();
                        if !behind {
                            batch.put(key, value)?;
                        }
                        batch.delete_range(range.clone())?;
                        if *behind {
                            batch.put(key, value)?;
                        }
                        store.write(&batch)
                    }
                });
                let is_put = |behind: bool| put.clone().filter(|(.., is)| *is == behind);
                model.extend(is_put(false).map(|(key, value, _)| (key, value)));
                model.retain(|key, _| !within(key, &from, &to));
                model.extend(is_put(true).map(|(key, value, _)| (key, value)));
            }
            Step::Queue(count) => {
                for _ in 0..count {
                    let key = format!("queue {:08}", self.queued).into_bytes();
                    retried(&mut self.open, || store.put(&key, b"task"));
                    model.insert(key, b"task".to_vec());
                    self.queued += 1;
                    let first = store.prefix("queue ").unwrap().next();
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
            Step::Compact => drop(store.compact(|_| ControlFlow::Continue(())).unwrap()),
            Step::Checkpoint => self.copy(),
            Step::Look => self.look(),
            Step::Close(variant) => self.reopen(variant, true),
            Step::Crash(variant) => self.reopen(variant, false),
        }
    }
}
