//! Deleted keys: a tombstone hides its key, stays while anything older has the key, and is merged
//! away when there are many or scans meet it often.

use crate::index_support::*;
use forebay_store::index::ValueForm;
use std::ops::Bound::{Included, Unbounded};

#[test]
fn a_tombstone_hides_the_key_in_older_tables() {
    let (_dir, index, mut model) = made();
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
        ValueForm::Tombstone
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
    let (dir, index, mut model) = made();
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
    let (_dir, index, mut model) = made();
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

/// Promise: as `an_index_of_which_every_key_is_deleted_has_no_entries_left`.
#[test]
fn tombstones_are_merged_away_when_a_quarter_of_all_entries_are() {
    let (_dir, index, mut model) = made();
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

/// Promise: as `an_index_of_which_every_key_is_deleted_has_no_entries_left`.
#[test]
fn few_tombstones_that_scans_pass_over_often_are_merged_away() {
    let (_dir, index, mut model) = made();
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
