//! Keys and runs: the newest run wins, whatever the keys' lengths; what breaks the rules is
//! refused; tables are few, and not rewritten without need.

use crate::index_support::*;
use forebay_store::index::{Index, IndexCause, KEY_BYTES_MAX};
use std::fs;

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
    let (_dir, index, mut model) = made();
    ingest(&index, &mut model, &run(0, 1, 5000, 0), 1);
    ingest(&index, &mut model, &run(1000, 3, 1000, 100_000), 2);
    ingest(&index, &mut model, &run(4999, 1, 10, 200_000), 3);
    agree(&index.snapshot(), &model);
    assert_eq!(index.stats().runs, 3);
    assert_eq!(index.stats().entries, 6010);
    index.verify().unwrap();
}

#[test]
fn keys_of_every_length_are_held() {
    let (dir, index, mut model) = made();
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
    let (dir, index, mut model) = made();
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

/// Promise (store): The index has few tables, all of them open: a large run has larger tables and
/// not more of them.
#[test]
fn the_tables_of_a_large_run_are_larger_and_not_more() {
    let (dir, index, mut model) = made();
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
    let (dir, index, mut model) = made();
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
