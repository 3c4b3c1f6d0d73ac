//! Random ingestions, merges, snapshots and reopenings against a map.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod index_support;
use forebay_store::index::{Index, IndexOptions, ValueForm};
use index_support::*;
use proptest::{collection::btree_map, prelude::*};
use std::ops::Bound;

#[derive(Clone, Debug)]
enum Step {
    Ingest(Model),
    Compact,
    MergeAll,
    Snapshot,
    Reopen,
    Range(Vec<u8>, Vec<u8>),
}

/// Few distinct keys that share prefixes, so that runs overlap and keys are replaced.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0u16..600).prop_map(|n| n.to_be_bytes().to_vec()),
        2 => (0u16..300).prop_map(|n| format!("user:{n:06}/profile").into_bytes()),
        1 => proptest::collection::vec(0u8..3, 1..12),
    ]
}

fn address() -> impl Strategy<Value = forebay_store::index::RecordAddress> {
    prop_oneof![3 => (any::<u64>(), any::<u32>(), any::<bool>()).prop_map(|(lsn, len, batch)| {
        let form = if batch { ValueForm::InBatch } else { ValueForm::Record };
        forebay_store::index::RecordAddress { lsn, len, form }
    }), 1 => Just(GONE)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => btree_map(key(), address(), 0..250).prop_map(Step::Ingest),
        3 => Just(Step::Compact),
        1 => Just(Step::MergeAll),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Reopen),
        2 => (key(), key()).prop_map(|(lo, hi)| Step::Range(lo, hi)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_agrees_with_a_map(steps in proptest::collection::vec(step(), 1..40), in_parts in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let options = IndexOptions {
            table_bytes: 2 << 10,
            pinned_bytes: if in_parts { 0 } else { 1 << 30 },
            ..small()
        };
        let mut index = Index::open(dir.path(), options).unwrap();
        let mut model = Model::new();
        let mut watermark = 0;
        let mut snapshots = Vec::new();
        for step in steps {
            match step {
                Step::Ingest(run) => {
                    watermark += 1;
                    ingest(&index, &mut model, &run, watermark);
                }
                Step::Compact => { index.compact().unwrap(); }
                Step::MergeAll => {
                    index.merge_all().unwrap();
                    prop_assert_eq!(index.stats().entries, live(&model).len() as u64);
                }
                Step::Snapshot => snapshots.push((index.snapshot(), model.clone())),
                Step::Reopen => {
                    drop(index);
                    index = Index::open(dir.path(), options).unwrap();
                }
                Step::Range(lo, hi) => {
                    let bounds = (Bound::Excluded(&lo[..]), Bound::Included(&hi[..]));
                    let expected: Vec<_> = live(&model)
                        .into_iter()
                        .filter(|(k, _)| *k > lo && *k <= hi)
                        .collect();
                    prop_assert_eq!(collect(&index.snapshot(), bounds.0, bounds.1), expected);
                }
            }
            prop_assert_eq!(index.watermark(), watermark);
        }
        agree(&index.snapshot(), &model);
        for (snapshot, model) in &snapshots {
            agree(snapshot, model);
        }
        index.verify().unwrap();
    }
}
