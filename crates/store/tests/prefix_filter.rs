//! Scans within a prefix, of tables that have a filter of prefixes and of ones that have none.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Bench, small, within};
use forebay_store::{
    Durability, KeyspaceOptions, ScanRange,
    index::{Index, IndexOptions, RecordAddress, ValueForm},
};
use std::{ops::Bound, path::Path, time::Duration, time::Instant};

fn address(lsn: u64) -> RecordAddress {
    RecordAddress {
        lsn,
        len: 64,
        form: ValueForm::Record,
    }
}

fn number(random: u32) -> [u8; 4] {
    random.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

/// A key of eight bytes whose first four are one of many prefixes.
fn key(prefix: u32, rest: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&number(prefix));
    key[4..].copy_from_slice(&rest.to_be_bytes());
    key
}

fn index(dir: &Path, prefix_bytes: usize) -> Index {
    let options = IndexOptions {
        prefix_bytes,
        ..IndexOptions::default()
    };
    Index::open(dir, options).unwrap()
}

/// Has `runs` runs ingested, of `prefixes` prefixes each with two keys.
fn fill(index: &Index, runs: u32, prefixes: u32) {
    for run in 0..runs {
        let of_run = run * prefixes..(run + 1) * prefixes;
        let mut keys: Vec<_> = of_run.flat_map(|n| [key(n, 0), key(n, 1)]).collect();
        keys.sort_unstable();
        let lsn = u64::from(run) * 1000;
        let mut entries = keys.iter().map(|key| (&key[..], address(lsn)));
        index.ingest(&mut entries, lsn + 1000).unwrap();
    }
    assert_eq!(index.stats().runs, u64::from(runs));
}

fn count(index: &Index, prefix: u32) -> usize {
    let (from, mut to) = (key(prefix, 0), key(prefix, u32::MAX));
    to[7] = 255;
    let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
    let found = index.snapshot().range(bounds);
    found.map(Result::unwrap).count()
}

/// Promise (store): With a filter of prefixes a scan within one reads the tables alone that have
/// keys of it, but for one in fifty; without one it reads a block of each run.
#[test]
fn a_scan_within_a_prefix_reads_the_tables_that_have_it() {
    const RUNS: u32 = 6;
    const PREFIXES: u32 = 4000;
    let blocks_read = |prefix_bytes: usize| {
        let dir = tempfile::tempdir().unwrap();
        fill(&index(dir.path(), prefix_bytes), RUNS, PREFIXES);
        // With all filters in memory, and no block.
        let index = index(dir.path(), 0);
        let before = index.stats().memory_bytes;
        let absent = RUNS * PREFIXES + 77;
        let empty = (absent..absent + 3).map(|prefix| count(&index, prefix));
        assert_eq!(empty.sum::<usize>(), 0);
        let of_absent = index.stats().memory_bytes - before;
        assert_eq!(count(&index, 5), 2);
        (of_absent, index.stats().memory_bytes - before)
    };
    let (without, _) = blocks_read(0);
    assert!(without > u64::from(RUNS) * 3 * 2000, "{without}");
    let (absent, present) = blocks_read(4);
    // Shorter prefixes than those scanned deny as well, and longer ones nothing.
    assert!(absent < 10_000, "{absent}");
    assert!(present > absent && present < absent + 10_000, "{present}");
    let (longer, _) = blocks_read(5);
    assert!(longer > u64::from(RUNS) * 3 * 2000, "{longer}");
}

/// Promise (store): Scans find the same with filters of prefixes, whichever tables have them, and
/// in every keyspace.
#[test]
fn scans_find_the_same_with_filters_of_prefixes_and_without() {
    within(Duration::from_secs(120), "scans within prefixes", || {
        let bench = Bench::new();
        let mut expected: Vec<Vec<u8>> = Vec::new();
        // Tables with none, with some of one length, and of another.
        for (turn, bytes) in [0usize, 4, 2].into_iter().enumerate() {
            let options = small(Durability::DOUBLE).prefix_filter(bytes);
            let store = bench.open(&options);
            let other = store.keyspace("other", KeyspaceOptions::new()).unwrap();
            for n in 0..600u32 {
                let short = vec![0xff, (n % 250) as u8];
                for key in [key(n * 3 + turn as u32, n).to_vec(), short] {
                    store.put(&key, b"value").unwrap();
                    other.put(&key, b"value").unwrap();
                    expected.push(key);
                }
            }
            for n in (0..600u32).step_by(5) {
                let key = key(n * 3 + turn as u32, n).to_vec();
                store.delete(&key).unwrap();
                other.delete(&key).unwrap();
                expected.retain(|other| *other != key);
            }
            expected.sort();
            expected.dedup();
            store.gc().unwrap();
            for n in 0..2500u32 {
                let len = 1 + n as usize % 6;
                let prefix = &key(n, n / 3)[..len];
                let range = ScanRange::prefix(prefix).keys_only();
                let range = if n % 2 == 0 { range.reversed() } else { range };
                let wanted = expected.iter().filter(|key| key.starts_with(prefix));
                let wanted: Vec<&Vec<u8>> = match n % 2 == 0 {
                    true => wanted.rev().collect(),
                    false => wanted.collect(),
                };
                for scan in [store.scan(range.clone()), other.scan(range.clone())] {
                    let found: Vec<_> = scan.unwrap().map(|pair| pair.unwrap().0).collect();
                    assert!(found.iter().eq(wanted.iter().copied()), "{prefix:02x?}");
                }
            }
            for first in [0xfe, 0xff] {
                let wanted = expected.iter().filter(|key| key[0] == first).count();
                assert_eq!(store.prefix([first]).unwrap().count(), wanted);
                assert_eq!(other.prefix([first]).unwrap().count(), wanted);
            }
            assert!(store.verify().unwrap().problems.is_empty());
        }
    });
}

fn drop_from_page_cache(dir: &Path) {
    for file in std::fs::read_dir(dir).unwrap() {
        let file = std::fs::File::open(file.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

/// Prints what scans within a prefix cost in an index of many runs:
///
/// ```text
/// cargo test --release -p forebay-store --test prefix_filter -- --ignored --nocapture
/// ```
///
/// `RUNS=4`, `KEYS=100000` for others than eight runs of a million keys.
#[test]
#[ignore = "prints figures"]
fn what_scans_within_a_prefix_cost() {
    const SCANS: u32 = 2000;
    let setting = |name: &str, default: u32| {
        let value = std::env::var(name).ok();
        value.map_or(default, |value| value.parse().unwrap())
    };
    let (runs, keys) = (setting("RUNS", 8), setting("KEYS", 1_000_000));
    for prefix_bytes in [0, 4] {
        let dir = tempfile::tempdir_in(".").unwrap();
        let begun = Instant::now();
        fill(&index(dir.path(), prefix_bytes), runs, keys / 2);
        println!(
            "{runs} runs of {keys} keys, filters of {prefix_bytes} bytes: made in {:?}",
            begun.elapsed()
        );
        for (what, first, expected) in [("absent", runs * keys / 2, 0), ("of two keys", 0, 2)] {
            drop_from_page_cache(dir.path());
            let index = index(dir.path(), 0);
            let before = index.stats().memory_bytes;
            for round in ["cold", "warm"] {
                let begun = Instant::now();
                for n in 0..SCANS {
                    assert_eq!(count(&index, first + n * 7 % (keys / 2)), expected);
                }
                println!(
                    "    {what}, {round}: {:?} a scan; {} KiB of blocks read by then, filters and \
                     block indexes {} KiB",
                    begun.elapsed() / SCANS,
                    (index.stats().memory_bytes - before) / 1024,
                    before / 1024
                );
            }
        }
    }
}
