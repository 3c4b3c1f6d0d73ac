//! What an index promises, one promise for each test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod index_support;
use forebay_store::index::{Form, Index, IndexCause, KEY_BYTES_MAX};
use index_support::*;
use std::{
    fs,
    ops::Bound::{Excluded, Included, Unbounded},
    sync::atomic::{AtomicBool, Ordering},
};

#[test]
fn a_new_index_is_empty_and_its_watermark_zero() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(&dir.path().join("new/index"));
    assert_eq!(index.watermark(), 0);
    assert_eq!(index.stats().tables, 0);
    agree(&index.snapshot(), &Model::new());
    assert!(!index.compact().unwrap());
    index.merge_all().unwrap();
    index.verify().unwrap();
}

#[test]
fn the_newest_run_wins() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
    ingest(&index, &mut model, &run(0, 1, 5000, 0), 1);
    ingest(&index, &mut model, &run(1000, 3, 1000, 100_000), 2);
    ingest(&index, &mut model, &run(4999, 1, 10, 200_000), 3);
    agree(&index.snapshot(), &model);
    assert_eq!(index.stats().runs, 3);
    assert_eq!(index.stats().entries, 6010);
    index.verify().unwrap();
}

#[test]
fn a_tombstone_hides_the_key_in_older_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
    ingest(&index, &mut model, &run(0, 1, 1000, 0), 1);
    ingest(
        &index,
        &mut model,
        &Model::from([(number(7), GONE), (number(5000), GONE)]),
        2,
    );
    let snapshot = index.snapshot();
    assert_eq!(
        snapshot.get(&number(7)).unwrap().unwrap().form,
        Form::Tombstone
    );
    // One that hides nothing is not kept.
    assert_eq!(snapshot.get(&number(5000)).unwrap(), None);
    assert_eq!(index.stats().tombstones, 1);
    assert_eq!(snapshot.get(&number(5001)).unwrap(), None);
    assert_eq!(
        collect(&snapshot, Included(&number(6)), Included(&number(8))).len(),
        2
    );
    agree(&snapshot, &model);
    ingest(&index, &mut model, &Model::from([(number(7), at(9))]), 3);
    agree(&index.snapshot(), &model);
}

#[test]
fn merging_all_drops_tombstones_and_what_they_hide() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
    ingest(&index, &mut model, &run(0, 1, 3000, 0), 1);
    let gone: Model = (0..3000).step_by(2).map(|n| (number(n), GONE)).collect();
    ingest(&index, &mut model, &gone, 2);
    index.merge_all().unwrap();
    agree(&index.snapshot(), &model);
    assert_eq!(index.snapshot().get(&number(2)).unwrap(), None);
    assert_eq!((index.stats().entries, index.stats().runs), (1500, 1));
    let all: Model = (0..3000).map(|n| (number(n), GONE)).collect();
    ingest(&index, &mut model, &all, 3);
    index.merge_all().unwrap();
    assert_eq!(
        (
            index.stats().entries,
            index.stats().tables,
            index.stats().runs
        ),
        (0, 0, 0)
    );
    assert_eq!(tables(dir.path()), Vec::<String>::new());
    assert_eq!(index.watermark(), 3);
    agree(&index.snapshot(), &model);
    drop(index);
    let index = open(dir.path());
    assert_eq!(index.watermark(), 3);
    agree(&index.snapshot(), &model);
}

#[test]
fn a_tombstone_stays_while_an_older_run_has_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
    ingest(&index, &mut model, &run(0, 1, 20_000, 0), 1);
    for round in 0..4 {
        let gone: Model = (0..100).map(|n| (number(n * 4 + round), GONE)).collect();
        ingest(&index, &mut model, &gone, 2 + round);
    }
    compact(&index);
    // The four small runs are one now, and the large one is as it was.
    assert_eq!(index.stats().runs, 2);
    assert_eq!(index.stats().entries, 20_400);
    agree(&index.snapshot(), &model);
}

#[test]
fn tombstones_are_merged_away_when_a_quarter_of_all_entries_are() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
    ingest(&index, &mut model, &run(0, 1, 20_000, 0), 1);
    let gone = |from: u64, to: u64| (from..to).map(|n| (number(n), GONE)).collect();
    ingest(&index, &mut model, &gone(0, 5000), 2);
    compact(&index);
    assert_eq!(index.stats().tombstones, 5000);
    ingest(&index, &mut model, &gone(5000, 7000), 3);
    compact(&index);
    assert_eq!(
        (index.stats().entries, index.stats().tombstones),
        (13_000, 0)
    );
    agree(&index.snapshot(), &model);
    ingest(&index, &mut model, &gone(0, 20_000), 4);
    compact(&index);
    assert_eq!((index.stats().entries, index.stats().tables), (0, 0));
    agree(&index.snapshot(), &model);
}

#[test]
fn a_few_tombstones_that_scans_pass_over_again_and_again_are_merged_away() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
    ingest(&index, &mut model, &run(0, 1, 20_000, 0), 1);
    let gone = (0..1000).map(|n| (number(n), GONE)).collect();
    ingest(&index, &mut model, &gone, 2);
    let pop = || {
        index
            .snapshot()
            .range((Unbounded, Unbounded))
            .next()
            .unwrap()
    };
    for _ in 0..20 {
        compact(&index);
        assert!(!index.is_passed_over());
        assert_eq!(index.stats().tombstones, 1000);
        assert_eq!(pop().unwrap().0, number(1000));
    }
    pop().unwrap();
    assert!(index.is_passed_over());
    compact(&index);
    assert_eq!(index.stats().tombstones, 0);
    agree(&index.snapshot(), &model);
}

#[test]
fn a_snapshot_is_not_changed_by_ingestions_and_merges() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
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
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
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
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
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
                    let inside = |k: &[u8]| std::ops::RangeBounds::contains(&(lo, hi), k);
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
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
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
fn keys_of_every_length_are_held() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
    let mut long = Model::new();
    for len in [1, 2, 7, 8, 9, 20, 21, 300, 4096, 65_534, KEY_BYTES_MAX] {
        for byte in [0, 1, 0x7f, 0xff] {
            long.insert(vec![byte; len], at(len as u64));
            let mut tail = vec![byte; len];
            tail[len - 1] = 0x55;
            long.insert(tail, at(len as u64 + 1));
        }
    }
    ingest(&index, &mut model, &long, 1);
    ingest(
        &index,
        &mut model,
        &Model::from([(vec![0; KEY_BYTES_MAX], GONE), (vec![0xff], at(3))]),
        2,
    );
    agree(&index.snapshot(), &model);
    index.merge_all().unwrap();
    agree(&index.snapshot(), &model);
    index.verify().unwrap();
    drop(index);
    agree(&open(dir.path()).snapshot(), &model);
}

#[test]
fn a_run_that_breaks_the_rules_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
    ingest(&index, &mut model, &run(0, 1, 10, 0), 5);
    let before = tables(dir.path());
    let (long, a, b) = (vec![1; KEY_BYTES_MAX + 1], b"a".to_vec(), b"b".to_vec());
    for bad in [
        vec![&b, &a],
        vec![&a, &a],
        vec![&a, &long],
        vec![&Vec::new()],
    ] {
        let e = index
            .ingest(&mut bad.iter().map(|k| (&k[..], at(1))), 6)
            .unwrap_err();
        assert!(matches!(e.cause, IndexCause::Invalid(_)), "{e}");
    }
    let e = try_ingest(&index, &run(0, 1, 10, 0), 4).unwrap_err();
    assert!(matches!(e.cause, IndexCause::Invalid(_)), "{e}");
    assert_eq!(tables(dir.path()), before);
    assert_eq!(index.watermark(), 5);
    agree(&index.snapshot(), &model);
}

#[test]
fn an_empty_run_moves_the_watermark() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    try_ingest(&index, &Model::new(), u64::MAX).unwrap();
    assert_eq!(index.watermark(), u64::MAX);
    assert_eq!(index.stats().runs, 0);
    drop(index);
    assert_eq!(open(dir.path()).watermark(), u64::MAX);
}

#[test]
fn the_tables_of_a_large_run_are_larger_and_not_more() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
    for round in 0..64 {
        // Each run has keys between those of all others.
        let run = run(round, 64, 4000, round * 4000);
        ingest(&index, &mut model, &run, round + 1);
        compact(&index);
    }
    index.merge_all().unwrap();
    let bytes: u64 = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    let tables = tables(dir.path()).len() as u64;
    assert!(bytes > 300 * small().table_bytes, "{bytes}");
    assert!(tables <= 100, "{tables} tables of {bytes} bytes");
    agree(&index.snapshot(), &model);
    drop(index);
    agree(&open(dir.path()).snapshot(), &model);
}

#[test]
fn keys_that_arrive_in_order_are_not_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
    for round in 0..12 {
        ingest(
            &index,
            &mut model,
            &run(round * 2000, 1, 2000, round * 2000),
            round,
        );
    }
    let before = tables(dir.path());
    compact(&index);
    index.merge_all().unwrap();
    assert_eq!(index.stats().runs, 1);
    let after = tables(dir.path());
    let kept = before.iter().filter(|name| after.contains(name)).count();
    assert!(
        kept * 2 > before.len(),
        "{kept} of {} tables kept",
        before.len()
    );
    agree(&index.snapshot(), &model);
    index.verify().unwrap();
}

#[test]
fn filters_and_indexes_in_parts_answer_as_whole_ones_do() {
    let dir = tempfile::tempdir().unwrap();
    let options = forebay_store::index::IndexOptions {
        pinned_bytes: 0,
        table_bytes: 1 << 20,
        ..small()
    };
    let (index, mut model) = (Index::open(dir.path(), options).unwrap(), Model::new());
    ingest(&index, &mut model, &run(0, 3, 60_000, 0), 1);
    ingest(&index, &mut model, &run(1, 3, 60_000, 0), 1);
    let whole = index.stats().memory_bytes;
    index.merge_all().unwrap();
    assert!(index.stats().memory_bytes < whole / 4);
    agree(&index.snapshot(), &model);
    index.verify().unwrap();
    drop(index);
    agree(
        &Index::open(dir.path(), options).unwrap().snapshot(),
        &model,
    );
}

#[test]
fn readers_and_a_compactor_run_beside_ingestion() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mut model) = (open(dir.path()), Model::new());
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
