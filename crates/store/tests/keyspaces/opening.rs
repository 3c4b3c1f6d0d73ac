//! Names, options and handles; keys of every kind.

use crate::{keys, without_pool};
use forebay_store::{
    Batch, KEY_BYTES_MAX, Keyspace, KeyspaceOptions, ScanRange, Store, StoreError,
};
use std::{ops::Bound, thread, time::Duration};

/// Keys that begin with bytes by which the store tells keyspaces, in order, and others.
fn awkward() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = [
        &b"\0"[..],
        b"a",
        b"\xfe",
        b"\xfe\xff",
        b"\xff",
        b"\xff\0",
        b"\xff\0\0",
        b"\xff\0\x01",
        b"\xff\x01",
        b"\xff\x01\0\0\0\x01",
        b"\xff\x01\0\0\0\x01key",
        b"\xff\x01\0\0\0\x02",
        b"\xff\x02",
        b"\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ]
    .map(<[u8]>::to_vec)
    .into();
    keys.push([&[0xff][..], &[b'k'; 500]].concat());
    keys.sort();
    keys
}

/// Promise (store): A key may begin with any bytes, in the default keyspace and in any other, and
/// is found in the order of its bytes and in its own keyspace alone.
#[test]
fn keys_of_any_bytes_stay_in_their_keyspace_and_order() {
    let dir = tempfile::tempdir().unwrap();
    let options = without_pool();
    let path = dir.path().join("store");
    let store = options.open(&path, None).unwrap();
    for name in ["one", "two"] {
        store.keyspace(name, KeyspaceOptions::new()).unwrap();
    }
    let keys_of = awkward();
    for key in &keys_of {
        store.put(key, b"default").unwrap();
        for name in ["one", "two"] {
            let keyspace = store.existing_keyspace(name).unwrap();
            keyspace.put(key, name).unwrap();
        }
    }
    // In memory, in tables, and in another session.
    check_awkward(&store, &keys_of);
    store.gc().unwrap();
    check_awkward(&store, &keys_of);
    store.close().unwrap();
    let store = options.open(&path, None).unwrap();
    check_awkward(&store, &keys_of);
    let two = store.existing_keyspace("two").unwrap();
    for key in &keys_of {
        two.delete(key).unwrap();
        assert!(!two.contains_key(key).unwrap());
    }
    assert_eq!(keys(two.scan(ScanRange::all()).unwrap()).len(), 0);
    let default = store.scan(ScanRange::all().reversed()).unwrap();
    assert!(keys(default).iter().eq(keys_of.iter().rev()));
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

fn check_awkward(store: &Store, all: &[Vec<u8>]) {
    let one = store.existing_keyspace("one").unwrap();
    let snapshot = store.snapshot().unwrap();
    let of_one = snapshot.keyspace("one").unwrap();
    for key in all {
        assert_eq!(store.get(key).unwrap().unwrap(), "default", "{key:x?}");
        assert_eq!(one.get(key).unwrap().unwrap(), "one", "{key:x?}");
        assert_eq!(of_one.get(key).unwrap().unwrap(), "one", "{key:x?}");
        assert_eq!(snapshot.get(key).unwrap().unwrap(), "default");
        let mut buffer = Vec::new();
        assert_eq!(one.get_into(key, &mut buffer).unwrap(), Some(&b"one"[..]));
        assert!(store.contains_key(key).unwrap() && one.contains_key(key).unwrap());
        let prefixed = |scan| keys(scan);
        let expected: Vec<_> = all
            .iter()
            .filter(|other| other.starts_with(key))
            .cloned()
            .collect();
        assert_eq!(prefixed(store.prefix(key).unwrap()), expected, "{key:x?}");
        assert_eq!(prefixed(one.prefix(key).unwrap()), expected, "{key:x?}");
        let behind: Vec<_> = all.iter().filter(|other| *other > key).cloned().collect();
        let range = (Bound::Excluded(key.clone()), Bound::Unbounded);
        assert_eq!(keys(store.range(range.clone()).unwrap()), behind);
        assert_eq!(keys(one.range(range).unwrap()), behind);
    }
    assert_eq!(keys(store.scan(ScanRange::all()).unwrap()), all);
    assert_eq!(keys(one.scan(ScanRange::all()).unwrap()), all);
    store
        .transaction(|tx| {
            let default = tx.scan(ScanRange::all())?;
            assert!(default.map(|pair| pair.unwrap().0).eq(all.iter().cloned()));
            let of_one = tx.scan_in(&one, ScanRange::all())?;
            assert!(of_one.map(|pair| pair.unwrap().0).eq(all.iter().cloned()));
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_longest_key_fits_into_every_keyspace() {
    let dir = tempfile::tempdir().unwrap();
    let options = without_pool().segment_size(1 << 20);
    let store = options.open(dir.path().join("store"), None).unwrap();
    let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
    let (longest, longer) = (vec![0xff; KEY_BYTES_MAX], vec![0xff; KEY_BYTES_MAX + 1]);
    let put = |keyspace: Option<&Keyspace<'_>>, key: &[u8]| match keyspace {
        Some(keyspace) => keyspace.put(key, "value"),
        None => store.put(key, "value"),
    };
    for keyspace in [None, Some(&one)] {
        put(keyspace, &longest).unwrap();
        for key in [&longer[..], b""] {
            let refused = put(keyspace, key).unwrap_err();
            let bytes = key.len();
            assert!(
                matches!(refused, StoreError::BadKey { bytes: b } if b == bytes),
                "{refused}"
            );
        }
    }
    let mut batch = Batch::new();
    assert!(batch.put_in(&one, &longer, "value").is_err() && batch.is_empty());
    store.gc().unwrap();
    assert!(store.contains_key(&longest).unwrap() && one.contains_key(&longest).unwrap());
    assert!(one.get(&longer).unwrap().is_none() && one.get(b"").unwrap().is_none());
    assert_eq!(keys(one.scan(ScanRange::all()).unwrap()), [longest]);
}

/// Promise (store): A keyspace is opened with the options that it was made with, and what is no
/// name, or none of a keyspace, is refused with the remedy.
#[test]
fn names_and_options_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = without_pool();
    let path = dir.path().join("store");
    let store = options.open(&path, None).unwrap();
    let plain = KeyspaceOptions::new();
    let hour = plain.ttl(Duration::from_secs(3600));
    for name in ["", "a\nb", &"n".repeat(256)] {
        let refused = store.keyspace(name, plain).err().unwrap().to_string();
        assert!(refused.contains("a name has"), "{refused}");
    }
    let never = plain.ttl(Duration::ZERO);
    assert!(store.keyspace("never", never).is_err());
    assert_eq!(store.keyspaces(), []);
    store.keyspace("sessions", hour).unwrap();
    store.keyspace("éà", plain).unwrap();
    let check = |store: &Store| {
        let names: Vec<_> = store
            .keyspaces()
            .into_iter()
            .map(|it| (it.name, it.ttl))
            .collect();
        assert_eq!(
            names,
            [("sessions".to_owned(), hour_of()), ("éà".to_owned(), None)]
        );
        assert_eq!(store.keyspace("sessions", hour).unwrap().ttl(), hour_of());
        assert_eq!(
            store.existing_keyspace("sessions").unwrap().ttl(),
            hour_of()
        );
        for (name, other) in [("sessions", plain), ("éà", hour)] {
            let refused = store.keyspace(name, other).err().unwrap();
            assert!(
                matches!(refused, StoreError::BadKeyspace { .. }),
                "{refused}"
            );
            assert!(refused.to_string().contains("3600s"), "{refused}");
        }
        for unknown in ["Sessions", ""] {
            let refused = store.existing_keyspace(unknown).err().unwrap();
            assert!(
                matches!(refused, StoreError::NoKeyspace { .. }),
                "{refused}"
            );
            let refused = store.drop_keyspace(unknown).unwrap_err();
            assert!(
                matches!(refused, StoreError::NoKeyspace { .. }),
                "{refused}"
            );
            assert!(store.snapshot().unwrap().keyspace(unknown).is_err());
        }
    };
    check(&store);
    store.close().unwrap();
    check(&options.open(&path, None).unwrap());
}

fn hour_of() -> Option<Duration> {
    Some(Duration::from_secs(3600))
}

#[test]
fn threads_that_open_one_keyspace_make_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = without_pool().open(dir.path().join("store"), None).unwrap();
    thread::scope(|scope| {
        for i in 0..8u8 {
            let store = &store;
            scope.spawn(move || {
                let same = store.keyspace("same", KeyspaceOptions::new()).unwrap();
                same.put(&[i], "value").unwrap();
            });
        }
    });
    let same = store.existing_keyspace("same").unwrap();
    assert_eq!(same.scan(ScanRange::all()).unwrap().count(), 8);
    assert_eq!(store.keyspaces().len(), 1);
}

#[test]
fn a_store_has_no_more_keyspaces_than_its_manifest_bears() {
    let dir = tempfile::tempdir().unwrap();
    let store = without_pool().open(dir.path().join("store"), None).unwrap();
    let make = |i: u32| {
        store
            .keyspace(&format!("keyspace {i}"), KeyspaceOptions::new())
            .map(drop)
    };
    (0..1024).for_each(|i| make(i).unwrap());
    let refused = make(1024).unwrap_err().to_string();
    assert!(
        refused.contains("1024") && refused.contains("drop one"),
        "{refused}"
    );
    store.drop_keyspace("keyspace 7").unwrap();
    make(1024).unwrap();
}

/// Promise (store): However long the names of keyspaces are, a new manifest has room in what is
/// kept for it on a full disk.
#[test]
fn keyspaces_names_leave_the_manifest_its_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = without_pool().open(&path, None).unwrap();
    // Each of these characters takes two bytes there.
    let name = |i: u32| format!("{i:04}{}", "\"".repeat(251));
    let make = |i: u32| store.keyspace(&name(i), KeyspaceOptions::new()).map(drop);
    let refused = (0..1025).find_map(|i| make(i).err());
    let refused = refused.unwrap().to_string();
    assert!(
        refused.contains("shorter names") && refused.contains("drop one"),
        "{refused}"
    );
    // The value-log files have as much.
    let bytes = std::fs::metadata(path.join("MANIFEST")).unwrap().len();
    assert!(bytes > 120 << 10 && bytes < 132 << 10, "{bytes}");
    store.drop_keyspace(&name(7)).unwrap();
    make(7).unwrap();
    store.close().unwrap();
    let store = without_pool().open(&path, None).unwrap();
    assert!(store.existing_keyspace(&name(7)).is_ok());
}

/// Promise (store): Compare-and-swap, update and increment work in each keyspace by themselves.
#[test]
fn updates_are_of_their_own_keyspace() {
    let dir = tempfile::tempdir().unwrap();
    let store = without_pool().open(dir.path().join("store"), None).unwrap();
    let one = store.keyspace("one", KeyspaceOptions::new()).unwrap();
    store.increment("n", 5).unwrap();
    assert_eq!(one.increment("n", 7).unwrap(), 7);
    assert_eq!(store.increment("n", 1).unwrap(), 6);
    assert!(one.compare_and_swap("lock", None, Some(b"mine")).unwrap());
    assert!(store.compare_and_swap("lock", None, Some(b"mine")).unwrap());
    assert!(!one.compare_and_swap("lock", None, Some(b"yours")).unwrap());
    one.update("lock", |_| None).unwrap();
    assert!(store.contains_key("lock").unwrap() && !one.contains_key("lock").unwrap());
    one.put("n", "no number").unwrap();
    match one.increment("n", 1) {
        Err(StoreError::NotACounter { key, .. }) => assert_eq!(key, b"n"),
        other => panic!("{other:?}"),
    }
    store.put(b"\xff\x01", "no number").unwrap();
    match store.increment(b"\xff\x01", 1) {
        Err(StoreError::NotACounter { key, .. }) => assert_eq!(key, b"\xff\x01"),
        other => panic!("{other:?}"),
    }
}
