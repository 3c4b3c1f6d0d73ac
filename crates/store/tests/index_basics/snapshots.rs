//! Snapshots, iterators and ranges: they see one moment, whatever is ingested and merged beside
//! them, and from both ends.

use crate::index_support::*;
use std::{
    ops::Bound::{Excluded, Included, Unbounded},
    sync::atomic::{AtomicBool, Ordering},
};

#[test]
fn a_snapshot_is_not_changed_by_ingestions_and_merges() {
    let (dir, index, mut model) = made();
    let mut snapshots = Vec::new();
    for round in 0..12 {
        ingest(
            &index,
            &mut model,
            &run(round * 100, 1 + round, 700, round * 10_000),
            round,
        );
        let gone: Model = (0..50).map(|n| (number(round * 90 + n), GONE)).collect();
        ingest(&index, &mut model, &gone, round);
        snapshots.push((index.snapshot(), model.clone()));
        if round % 3 == 2 {
            compact(&index);
        }
    }
    index.merge_all().unwrap();
    for (snapshot, model) in &snapshots {
        agree(snapshot, model);
    }
    let files = tables(dir.path()).len() as u64;
    assert!(files > index.stats().tables, "snapshots hold their tables");
    drop(snapshots);
    index.compact().unwrap();
    assert_eq!(
        tables(dir.path()).len() as u64,
        index.stats().tables,
        "and then let go of them"
    );
}

#[test]
fn an_iterator_outlives_its_snapshot_and_the_index() {
    let (_dir, index, mut model) = made();
    ingest(&index, &mut model, &run(0, 1, 5000, 0), 1);
    ingest(&index, &mut model, &run(2500, 1, 5000, 7000), 1);
    let mut iter = index.snapshot().range((Unbounded, Unbounded));
    let first = iter.next().unwrap().unwrap();
    index.merge_all().unwrap();
    drop(index);
    let rest: Vec<_> = iter.map(|item| item.unwrap()).collect();
    assert_eq!(first, (number(0), model[&number(0)]));
    assert_eq!(rest, live(&model)[1..]);
}

#[test]
fn a_range_is_bounded_on_both_sides_from_both_ends() {
    let (_dir, index, mut model) = made();
    ingest(&index, &mut model, &run(0, 4, 4000, 0), 1);
    ingest(&index, &mut model, &run(2, 4, 4000, 50_000), 2);
    ingest(&index, &mut model, &run(0, 40, 400, 90_000), 3);
    let snapshot = index.snapshot();
    let key = [
        number(0),
        number(1),
        number(4000),
        number(4001),
        number(15_998),
        number(99_999),
    ];
    for lo in &key {
        for hi in &key {
            for lo in [Included(&lo[..]), Excluded(&lo[..]), Unbounded] {
                for hi in [Included(&hi[..]), Excluded(&hi[..]), Unbounded] {
                    let inside = |k: &[u8]| std::ops::RangeBounds::<[u8]>::contains(&(lo, hi), k);
                    let expected: Vec<_> = live(&model)
                        .into_iter()
                        .filter(|(k, _)| inside(k))
                        .collect();
                    assert_eq!(collect(&snapshot, lo, hi), expected);
                    let back: Vec<_> = snapshot
                        .range((lo, hi))
                        .rev()
                        .map(|item| item.unwrap())
                        .collect();
                    assert!(back.iter().rev().eq(&expected));
                }
            }
        }
    }
}

#[test]
fn a_range_read_from_both_ends_meets_in_the_middle() {
    let (_dir, index, mut model) = made();
    ingest(&index, &mut model, &run(0, 2, 900, 0), 1);
    ingest(&index, &mut model, &run(300, 1, 900, 9000), 2);
    let expected = live(&model);
    for pattern in 1u32..64 {
        let mut iter = index.snapshot().range((Unbounded, Unbounded));
        let (mut front, mut back) = (Vec::new(), Vec::new());
        for turn in 0.. {
            let item = if pattern >> (turn % 6) & 1 == 1 {
                iter.next()
            } else {
                iter.next_back()
            };
            let Some(item) = item else { break };
            let side = if pattern >> (turn % 6) & 1 == 1 {
                &mut front
            } else {
                &mut back
            };
            side.push(item.unwrap());
        }
        assert!(iter.next().is_none() && iter.next_back().is_none());
        front.extend(back.into_iter().rev());
        assert_eq!(front, expected, "pattern {pattern:06b}");
    }
}

#[test]
fn readers_and_a_compactor_run_beside_ingestion() {
    let (_dir, index, mut model) = made();
    ingest(&index, &mut model, &run(0, 1, 2000, 0), 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                index.compact().unwrap();
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let snapshot = index.snapshot();
                let all = collect(&snapshot, Unbounded, Unbounded);
                assert!(all.len() >= 2000);
                for (key, address) in all.iter().step_by(97) {
                    assert_eq!(snapshot.get(key).unwrap(), Some(*address));
                }
            }
        });
        for round in 1..60 {
            ingest(
                &index,
                &mut model,
                &run(round * 7, 1 + round % 5, 1500, round * 5000),
                round,
            );
        }
        done.store(true, Ordering::Relaxed);
    });
    compact(&index);
    agree(&index.snapshot(), &model);
    index.verify().unwrap();
}
