//! Shared by the index tests.
#![allow(dead_code, reason = "each test file uses some of it")]
use forebay_store::index::{
    Index, IndexCause, IndexError, IndexOptions, IndexView, RecordAddress, ValueForm,
};
use std::{collections::BTreeMap, ops::Bound, path::Path};
use tempfile::TempDir;

/// Key → address, tombstones as such: what an index is to agree with.
pub type Model = BTreeMap<Vec<u8>, RecordAddress>;

/// Small tables, so that a few thousand entries make many of them.
pub fn small() -> IndexOptions {
    IndexOptions {
        cache_bytes: 1 << 20,
        table_bytes: 8 << 10,
        ..IndexOptions::default()
    }
}

pub fn open(dir: &Path) -> Index {
    Index::open(dir, small()).unwrap()
}

/// An empty index in a directory of its own, and what it is to agree with.
pub fn made() -> (TempDir, Index, Model) {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    (dir, index, Model::new())
}

pub fn at(lsn: u64) -> RecordAddress {
    RecordAddress {
        lsn,
        len: (lsn % 4096) as u32,
        form: if lsn.is_multiple_of(2) {
            ValueForm::Record
        } else {
            ValueForm::InBatch
        },
    }
}

pub const GONE: RecordAddress = RecordAddress {
    lsn: 0,
    len: 0,
    form: ValueForm::Tombstone,
};

pub fn number(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// `count` keys, `step` apart, with addresses from `lsn` on.
pub fn run(first: u64, step: u64, count: u64, lsn: u64) -> Model {
    (0..count)
        .map(|n| (number(first + n * step), at(lsn + n)))
        .collect()
}

pub fn try_ingest(index: &Index, run: &Model, watermark: u64) -> Result<(), IndexError> {
    index.ingest(&mut run.iter().map(|(k, a)| (&k[..], *a)), watermark)
}

/// Ingests a run and adds it to the model.
pub fn ingest(index: &Index, model: &mut Model, run: &Model, watermark: u64) {
    try_ingest(index, run, watermark).unwrap();
    model.extend(run.iter().map(|(k, a)| (k.clone(), *a)));
}

pub fn compact(index: &Index) {
    while index.compact().unwrap() {}
}

/// All of a range, tombstones left out.
pub fn collect(
    snapshot: &IndexView,
    lo: Bound<&[u8]>,
    hi: Bound<&[u8]>,
) -> Vec<(Vec<u8>, RecordAddress)> {
    snapshot.range((lo, hi)).map(|item| item.unwrap()).collect()
}

/// Checks a snapshot against the model: every key, some absent ones, and the whole from both ends.
pub fn agree(snapshot: &IndexView, model: &Model) {
    for (key, address) in model {
        let found = snapshot.get(key).unwrap();
        // A merge may have dropped the tombstone.
        let dropped = address.form == ValueForm::Tombstone && found.is_none();
        assert!(
            dropped || found == Some(*address),
            "{key:02x?}: {found:?}, not {address:?}"
        );
        let mut absent = key.clone();
        absent.push(0);
        if !model.contains_key(&absent) && absent.len() <= 0xffff {
            assert_eq!(snapshot.get(&absent).unwrap(), None, "{absent:02x?}");
        }
    }
    let live: Vec<_> = live(model);
    assert_eq!(collect(snapshot, Bound::Unbounded, Bound::Unbounded), live);
    let mut back: Vec<_> = snapshot
        .range((Bound::Unbounded, Bound::Unbounded))
        .rev()
        .map(|item| item.unwrap())
        .collect();
    back.reverse();
    assert_eq!(back, live);
}

pub fn live(model: &Model) -> Vec<(Vec<u8>, RecordAddress)> {
    model
        .iter()
        .filter(|(_, a)| a.form != ValueForm::Tombstone)
        .map(|(k, a)| (k.clone(), *a))
        .collect()
}

/// Names of the table files in `dir`, sorted.
pub fn tables(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".table"))
        .collect();
    names.sort();
    names
}

pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[track_caller]
pub fn assert_corrupt(e: &IndexError, names: &str) {
    assert!(matches!(e.cause, IndexCause::Corrupt(_)), "{e}");
    assert!(e.to_string().contains(names), "{e} should name {names}");
}
