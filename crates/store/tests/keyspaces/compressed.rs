//! Keyspaces whose values are compressed, also such that expire.

use crate::{
    TestClock,
    common::{Bench, Rng, compressions, tiny, value_log_files},
    keys, without_pool,
};
use forebay_store::{Compression, Durability, Keyspace, KeyspaceOptions, ScanRange, StoreError};
use std::{fs, os::unix::fs::FileExt, time::Duration};

const TTL: u64 = 1000;

fn compressed(by: Compression) -> KeyspaceOptions {
    KeyspaceOptions::new().compression(by)
}

fn expiring(by: Compression) -> KeyspaceOptions {
    compressed(by).ttl(Duration::from_millis(TTL))
}

fn text(number: u32, bytes: usize) -> Vec<u8> {
    let line = format!("the boat with number {number} is blue; ");
    line.bytes().cycle().take(bytes).collect()
}

/// Reads it in every way.
fn holds(keyspace: &Keyspace<'_>, key: &str, expected: Option<&[u8]>) {
    let mut buffer = Vec::new();
    // Again, since a cache may have it then.
    for _ in 0..2 {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), expected, "{key}");
        let read = keyspace.get_into(key, &mut buffer).unwrap();
        assert_eq!(read, expected, "{key}");
    }
    assert_eq!(keyspace.contains_key(key).unwrap(), expected.is_some());
    let found = keyspace.multi_get([key]).unwrap().remove(0);
    assert_eq!(found.as_deref(), expected);
    let mut scan = keyspace.scan(ScanRange::all()).unwrap();
    let scanned = scan.find(|pair| pair.as_ref().unwrap().0 == key.as_bytes());
    let scanned = scanned.map(|pair| pair.unwrap().1.into_vec());
    assert_eq!(scanned.as_deref(), expected);
}

/// Promise (store): A compressed value that expires is there for its time and no longer, small and
/// large, alone and in a batch or transaction, and never comes back once it was collected.
#[test]
fn a_compressed_value_expires_as_any_other_does() {
    for by in compressions() {
        let dir = tempfile::tempdir().unwrap();
        let clock = TestClock::new();
        let options = clock.options(without_pool());
        let store = options.open(dir.path().join("store"), None).unwrap();
        let pages = store.keyspace("pages", expiring(by)).unwrap();
        pages.put("alone", &text(1, 4000)).unwrap();
        pages.put("large", &text(2, 200_000)).unwrap();
        let mut batch = store.batch();
        let in_batch = [("in batch", 3000), ("large in batch", 200_000)];
        for (key, bytes) in in_batch {
            batch.put_in(&pages, key, &text(3, bytes)).unwrap();
        }
        batch.put("default", &text(5, 3000)).unwrap();
        store.write(&batch).unwrap();
        let mut tx = store.begin().unwrap();
        tx.put_in(&pages, "in transaction", &text(4, 3000)).unwrap();
        tx.commit().unwrap();
        let all = [
            ("alone", text(1, 4000)),
            ("large", text(2, 200_000)),
            ("in batch", text(3, 3000)),
            ("large in batch", text(3, 200_000)),
            ("in transaction", text(4, 3000)),
        ];
        let gained = pages.compression_stats();
        assert_eq!(gained.values, if by == Compression::None { 0 } else { 5 });
        assert!(gained.stored_bytes <= gained.raw_bytes / 10, "{gained:?}");
        // What the store has as an option of its own is the default keyspace's.
        assert_eq!(store.stats().compression.values, 0);
        clock.pass(TTL - 1);
        all.iter()
            .for_each(|(key, value)| holds(&pages, key, Some(value)));
        // As they are stored, with their time.
        store.gc().unwrap();
        assert_eq!(pages.compression_stats(), gained);
        all.iter()
            .for_each(|(key, value)| holds(&pages, key, Some(value)));
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        clock.pass(1);
        all.iter().for_each(|(key, _)| holds(&pages, key, None));
        store
            .compact(|_| std::ops::ControlFlow::Continue(()))
            .unwrap();
        store.gc().unwrap();
        assert_eq!(store.stats().large_value_files, 0);
        clock.set(clock.now() - TTL);
        for key in ["large", "large in batch"] {
            holds(&pages, key, None);
        }
        assert_eq!(store.get("default").unwrap().unwrap(), text(5, 3000));
    }
}

/// Promise (store): A keyspace has the compression that it was made with, also after a crash, in a
/// copy and for a reader, and is not opened with another one.
#[test]
fn a_keyspace_keeps_its_compression() {
    for by in compressions() {
        let bench = Bench::new();
        let options = tiny(Durability::DOUBLE);
        let store = bench.open(&options);
        let pages = store.keyspace("pages", compressed(by)).unwrap();
        for i in 0..300 {
            pages.put(&i.to_string(), &text(i, 2000)).unwrap();
        }
        pages.put("large", &text(7, 300_000)).unwrap();
        pages.delete_range(ScanRange::new("100"..="199")).unwrap();
        let left = keys(pages.scan(ScanRange::all()).unwrap());
        let copy = bench.dir.path().join("copy");
        store.checkpoint(&copy).unwrap();
        let reader = options.open_read_only(bench.path(), &bench.pool).unwrap();
        assert_eq!(reader.keyspaces()[0].compression, by);
        let snapshot = reader.snapshot().unwrap();
        let found = snapshot.keyspace("pages").unwrap();
        assert_eq!(*found.get("7").unwrap().unwrap(), text(7, 2000));
        drop((snapshot, reader));
        // As a crash leaves it.
        drop(store);
        let fsync = tiny(Durability::Fsync);
        for store in [bench.open(&options), fsync.open(&copy, None).unwrap()] {
            assert_eq!(store.keyspaces()[0].compression, by);
            let others = compressions().into_iter().filter(|other| *other != by);
            for other in others {
                let refused = store.keyspace("pages", compressed(other));
                let refused = refused.err().unwrap();
                assert!(matches!(refused, StoreError::BadKeyspace { .. }));
                assert!(refused.to_string().contains("compressed by"), "{refused}");
            }
            let pages = store.keyspace("pages", compressed(by)).unwrap();
            assert_eq!(pages.compression(), by);
            assert_eq!(keys(pages.scan(ScanRange::all()).unwrap()), left);
            holds(&pages, "7", Some(&text(7, 2000)));
            holds(&pages, "150", None);
            holds(&pages, "large", Some(&text(7, 300_000)));
            pages.put("new", &text(8, 2000)).unwrap();
            let gained = pages.compression_stats();
            assert_eq!(gained.values, u64::from(by != Compression::None));
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let store = without_pool().open(dir.path().join("store"), None).unwrap();
    let refused = store.keyspace("pages", compressed(Compression::Zstd(23)));
    assert!(matches!(refused, Err(StoreError::BadKeyspace { .. })));
    assert!(store.keyspaces().is_empty());
}

/// Promise (store): The collector writes a keyspace's compressed values again as they are stored.
#[test]
fn the_collector_copies_a_keyspaces_values_as_stored() {
    for by in compressions().into_iter().skip(1) {
        let dir = tempfile::tempdir().unwrap();
        let clock = TestClock::new();
        let options = clock.options(without_pool());
        let store = options.open(dir.path().join("store"), None).unwrap();
        let pages = store.keyspace("pages", expiring(by)).unwrap();
        // A third of it becomes no smaller.
        let value = |i: u32| {
            let mut random = Rng(u64::from(i));
            let noise = (0..1400).map(|_| random.next() as u8);
            text(i, 2600).into_iter().chain(noise).collect::<Vec<u8>>()
        };
        for round in 0..3 {
            for i in (0..1500u32).filter(|i| round == 0 || !i.is_multiple_of(3)) {
                pages.put(&i.to_be_bytes(), &value(i + round)).unwrap();
            }
        }
        let before = pages.compression_stats();
        assert_eq!((before.values, before.kept_raw), (3500, 0));
        let report = store.gc().unwrap();
        assert!(report.relocated > 100, "{report:?}");
        let each = report.relocated_bytes / report.relocated;
        assert!(each < 2000, "{by}: {each} bytes for a value of 4000");
        assert_eq!(pages.compression_stats(), before);
        for i in 0..1500u32 {
            let round = if i.is_multiple_of(3) { 0 } else { 2 };
            let found = pages.get(&i.to_be_bytes()).unwrap().unwrap();
            assert!(found == value(i + round));
        }
        // With the time at which they expire.
        clock.pass(TTL);
        assert_eq!(pages.scan(ScanRange::all()).unwrap().count(), 0);
    }
}

/// Promise (store): A damaged record of a compressed value that may expire is reported by every
/// read, by `verify` and by a backup, before it expires and after it, and is not collected.
#[test]
fn a_damaged_compressed_value_is_reported_not_missing() {
    for by in compressions().into_iter().skip(1) {
        let dir = tempfile::tempdir().unwrap();
        let clock = TestClock::new();
        let options = clock.options(without_pool());
        let path = dir.path().join("store");
        let store = options.open(&path, None).unwrap();
        let pages = store.keyspace("pages", expiring(by)).unwrap();
        pages.put("whole", &text(1, 4000)).unwrap();
        pages.put("damaged here", &text(2, 4000)).unwrap();
        store.put("last", "value").unwrap();
        store.close().unwrap();
        let log = &value_log_files(&path)[0];
        let bytes = fs::read(log).unwrap();
        let key = b"damaged here";
        let at = bytes.windows(key.len()).position(|w| w == key).unwrap();
        // Behind the key and the time: in the frame.
        let at = at + key.len() + 8 + 20;
        let file = fs::OpenOptions::new().write(true).open(log).unwrap();
        file.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
        let store = options.open(&path, None).unwrap();
        let pages = store.existing_keyspace("pages").unwrap();
        let is_damage = |error: Option<StoreError>| {
            let error = error.expect("no error");
            assert!(error.to_string().contains("checksum"), "{error}");
        };
        for is_over in [false, true] {
            is_damage(pages.get(key).err());
            is_damage(pages.contains_key(key).err());
            is_damage(pages.get_into(key, &mut Vec::new()).err());
            is_damage(pages.multi_get([key]).err());
            is_damage(pages.scan(ScanRange::all()).unwrap().find_map(Result::err));
            is_damage(pages.update(key, |_| None).err());
            let whole = pages.get("whole").unwrap();
            assert_eq!(whole.is_none(), is_over);
            assert!(!store.verify().unwrap().problems.is_empty());
            let backups = dir.path().join("backups");
            is_damage(store.backup(&backups, |_| ()).err());
            clock.pass(TTL);
        }
        store.gc().unwrap();
        is_damage(pages.get(key).err());
        assert_eq!(store.get("last").unwrap().unwrap(), "value");
    }
}
