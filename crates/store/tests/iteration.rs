//! Scans from both ends, and seeks, beside an ordered map: over tables, frozen and active chunks,
//! while the store is written to, ingests and merges.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, tiny};
use forebay_store::{Durability, Scan, ScanRange, Snapshot, Store};
use proptest::prelude::*;
use std::{
    collections::BTreeMap,
    ops::{Bound, Range, RangeBounds},
    thread,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Pair = (Vec<u8>, Vec<u8>);

#[derive(Clone, Debug)]
struct Wanted {
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    reversed: bool,
    /// Of the store as it is, or of the snapshot.
    now: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, u16),
    Delete(u16),
    /// So many keys at once that chunks are frozen.
    Fill(u16),
    Collect,
    Snapshot,
    Scan(Wanted),
    Next(usize),
    NextBack(usize),
    Seek(Vec<u8>),
    SeekBack(Vec<u8>),
}

fn key(n: u16) -> Vec<u8> {
    format!("key {n:04}").into_bytes()
}

/// Keys that may be there, and some between and around them.
fn probe() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..400_u16).prop_map(key),
        2 => (0..400_u16).prop_map(|n| [key(n), vec![b'/']].concat()),
        1 => Just(Vec::new()),
        1 => Just(vec![0xff; 3]),
    ]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let bound = || {
        prop_oneof![
            2 => Just(Bound::Unbounded),
            1 => probe().prop_map(Bound::Included),
            1 => probe().prop_map(Bound::Excluded),
        ]
    };
    let all = (bound(), bound(), any::<bool>(), any::<bool>());
    all.prop_map(|(from, to, reversed, now)| Wanted {
        bounds: (from, to),
        reversed,
        now,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let count = || prop_oneof![4 => 1..6_usize, 1 => 1..300_usize];
    prop_oneof![
        4 => (0..400_u16, 0..1500_u16).prop_map(|(n, len)| Step::Put(n, len)),
        2 => (0..400_u16).prop_map(Step::Delete),
        2 => (0..400_u16).prop_map(Step::Fill),
        1 => Just(Step::Collect),
        1 => Just(Step::Snapshot),
        4 => wanted().prop_map(Step::Scan),
        8 => count().prop_map(Step::Next),
        8 => count().prop_map(Step::NextBack),
        5 => probe().prop_map(Step::Seek),
        5 => probe().prop_map(Step::SeekBack),
    ]
}

/// What a scan is to give: all pairs in its direction, and which of them are left.
struct ModelScan {
    pairs: Vec<Pair>,
    reversed: bool,
    left: Range<usize>,
}

impl ModelScan {
    fn new(map: &Map, wanted: &Wanted) -> Self {
        let within = |key: &Vec<u8>| wanted.bounds.contains(key);
        let all = map.iter().filter(|(key, _)| within(key));
        let mut pairs: Vec<Pair> = all.map(|(k, v)| (k.clone(), v.clone())).collect();
        if wanted.reversed {
            pairs.reverse();
        }
        let left = 0..pairs.len();
        Self {
            pairs,
            reversed: wanted.reversed,
            left,
        }
    }

    fn step(&mut self, back: bool) -> Option<Pair> {
        let at = match back {
            false => self.left.next(),
            true => self.left.next_back(),
        };
        at.map(|at| self.pairs[at].clone())
    }

    /// How many come before `key` in its direction, or with it.
    fn up_to(&self, key: &[u8], with: bool) -> usize {
        self.pairs
            .partition_point(|(other, _)| match self.reversed {
                false => &other[..] < key || (with && other == key),
                true => &other[..] > key || (with && other == key),
            })
    }
}

struct World<'a> {
    store: &'a Store,
    map: Map,
    snapshot: (Snapshot, Map),
    scan: Option<(Scan, ModelScan)>,
}

impl World<'_> {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.store.put(&key, &value).unwrap();
        self.map.insert(key, value);
    }

    fn begin(&mut self, wanted: &Wanted) {
        let range = ScanRange::new::<Vec<u8>>(wanted.bounds.clone());
        let range = match wanted.reversed {
            true => range.reversed(),
            false => range,
        };
        let (scan, map) = match wanted.now {
            true => (self.store.scan(range), &self.map),
            false => (self.snapshot.0.scan(range), &self.snapshot.1),
        };
        self.scan = Some((scan.unwrap(), ModelScan::new(map, wanted)));
    }

    fn walk(&mut self, count: usize, back: bool) {
        let Some((scan, model)) = &mut self.scan else {
            return;
        };
        for _ in 0..count {
            let found = match back {
                false => scan.next(),
                true => scan.next_back(),
            };
            let found = found.map(|pair| {
                let (key, value) = pair.unwrap();
                (key, value.into_vec())
            });
            assert_eq!(found, model.step(back));
        }
    }

    fn seek(&mut self, key: &[u8], back: bool) {
        let Some((scan, model)) = &mut self.scan else {
            return;
        };
        if back {
            scan.seek_back(key);
            model.left = 0..model.up_to(key, true);
        } else {
            scan.seek(key);
            model.left = model.up_to(key, false)..model.pairs.len();
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(n, len) => self.put(key(*n), vec![*n as u8; usize::from(*len)]),
            Step::Delete(n) => {
                self.store.delete(&key(*n)).unwrap();
                self.map.remove(&key(*n));
            }
            Step::Fill(first) => {
                for n in 0..600 {
                    let key = [key((first + n) % 400), n.to_be_bytes().to_vec()].concat();
                    self.put(key, vec![1; usize::from(n % 100)]);
                }
            }
            Step::Collect => drop(self.store.gc().unwrap()),
            Step::Snapshot => self.snapshot = (self.store.snapshot().unwrap(), self.map.clone()),
            Step::Scan(wanted) => self.begin(wanted),
            Step::Next(count) => self.walk(*count, false),
            Step::NextBack(count) => self.walk(*count, true),
            Step::Seek(key) => self.seek(key, false),
            Step::SeekBack(key) => self.seek(key, true),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Promise (store): A scan gives each pair of its range once, in order from either end and from
    /// any key that it seeks, as of its moment, whatever is written and ingested meanwhile.
    #[test]
    fn a_scan_moves_from_both_ends_as_over_a_map(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let bench = Bench::new();
        let store = bench.open(&tiny(Durability::DOUBLE));
        let snapshot = (store.snapshot().unwrap(), Map::new());
        let mut world = World { store: &store, map: Map::new(), snapshot, scan: None };
        for n in 0..100 {
            world.put(key(n * 4), vec![7; 100]);
        }
        for step in &steps {
            world.step(step);
        }
    }
}

/// Promise: as `a_scan_moves_from_both_ends_as_over_a_map`.
#[test]
fn scans_from_both_ends_meet_beside_writers() {
    let bench = Bench::new();
    let store = bench.open(&tiny(Durability::DOUBLE));
    let number = |n: u32| n.to_be_bytes();
    for n in 0..3000 {
        store.put(&number(n), &number(n)).unwrap();
    }
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..30_000_u32 {
                // Between the others, and over them.
                let key = [&number(n % 3000)[..], &[0; 1]].concat();
                store.put(&key, &number(n)).unwrap();
                store.put(&number(n % 3000), &number(n % 3000)).unwrap();
            }
        });
        let mut round = 0_usize;
        while !writer.is_finished() || round == 0 {
            let snapshot = store.snapshot().unwrap();
            let all: Vec<_> = snapshot
                .range::<&[u8]>(..)
                .unwrap()
                .map(Result::unwrap)
                .collect();
            let mut scan = snapshot.range::<&[u8]>(..).unwrap();
            let (mut front, mut back) = (Vec::new(), Vec::new());
            loop {
                let steps = 1 + (front.len() + round) % 150;
                let before = front.len() + back.len();
                front.extend(scan.by_ref().take(steps).map(Result::unwrap));
                back.extend(scan.by_ref().rev().take(steps / 2).map(Result::unwrap));
                if front.len() + back.len() == before {
                    break;
                }
            }
            front.extend(back.into_iter().rev());
            assert_eq!(front.len(), all.len());
            assert!(
                front
                    .iter()
                    .map(|(key, _)| key)
                    .eq(all.iter().map(|(key, _)| key))
            );
            assert!(front.iter().zip(&all).all(|(a, b)| a.1 == b.1));
            round += 1;
        }
    });
}
