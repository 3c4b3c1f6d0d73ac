//! Every mixture of the parts of two moments: it is refused unchanged, or has what the older moment
//! had.

use crate::{
    common::{Bench, contents, copy_dir},
    quiet, replace,
};
use forebay_store::{Durability, Store};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A store at two moments, in directories of their own, and what must be true at either.
struct Moments {
    bench: Bench,
    earlier: PathBuf,
    later: PathBuf,
}

const PARTS: [&str; 4] = ["MANIFEST", "vlog", "index", "large"];

fn key(kind: &str, i: u32) -> Vec<u8> {
    format!("{kind} {i}").into_bytes()
}

fn value(i: u32, moment: u8) -> Vec<u8> {
    vec![moment ^ i as u8; 3000]
}

/// Copies the directory of a store that is open and not written to, but may be merging tables
/// still.
fn copy_running(from: &Path, to: &Path) {
    let manifests =
        || ["MANIFEST", "index/MANIFEST"].map(|name| fs::read(from.join(name)).unwrap());
    loop {
        let before = manifests();
        let copied = std::panic::catch_unwind(|| copy_dir(from, to));
        if copied.is_ok() && manifests() == before {
            return;
        }
        let _ = fs::remove_dir_all(to);
    }
}

/// Two moments, with collection, deletes, large values between them; `closed` before each, or taken
/// while it runs.
fn moments(variant: Durability, closed: bool) -> Moments {
    let bench = Bench::new();
    let (earlier, later) = (
        bench.dir.path().join("earlier"),
        bench.dir.path().join("later"),
    );
    let mut store = bench.open(&quiet(variant));
    let write = |store: &Store, moment: u8| {
        for i in 0..400 {
            if moment == 1 {
                store.put(&key("kept", i), &value(i, 0)).unwrap();
                store.put(&key("dead", i), &value(i, 0)).unwrap();
                store.put(&key("goes", i), &value(i, 0)).unwrap();
            }
            store.put(&key("changes", i), &value(i, moment)).unwrap();
        }
        for i in 0..3 {
            store
                .put(&key("large", i), &vec![moment; 40_000 + i as usize])
                .unwrap();
        }
        for i in 0..400 {
            match moment {
                1 => store.delete(&key("dead", i)).unwrap(),
                _ => store.delete(&key("goes", i)).unwrap(),
            }
        }
    };
    let take = |store: Store, to: &Path| {
        if closed {
            store.close().unwrap();
            copy_dir(&bench.path(), to);
            bench.open(&quiet(variant))
        } else {
            store.flush().unwrap();
            copy_running(&bench.path(), to);
            store
        }
    };
    write(&store, 1);
    store.gc().unwrap();
    store = take(store, &earlier);
    write(&store, 2);
    store.gc().unwrap();
    write(&store, 2);
    drop(take(store, &later));
    Moments {
        bench,
        earlier,
        later,
    }
}

impl Moments {
    /// What an opened mixture may say of each key: its value by either moment, or that it is
    /// damaged; never that it is not there, nor that a deleted one is.
    fn check(&self, store: &Store, what: &str) {
        let one_of = |key: &[u8], allowed: &[Option<Vec<u8>>]| {
            if let Ok(found) = store.get(key) {
                let found = found.map(|value| value.to_vec());
                let name = key.escape_ascii();
                assert!(
                    allowed.contains(&found),
                    "{what}: {name}: {:?}",
                    found.map(|v| v[0])
                );
            }
        };
        for i in 0..400 {
            one_of(&key("kept", i), &[Some(value(i, 0))]);
            one_of(&key("dead", i), &[None]);
            one_of(&key("goes", i), &[None, Some(value(i, 0))]);
            one_of(&key("changes", i), &[Some(value(i, 1)), Some(value(i, 2))]);
        }
        for i in 0..3 {
            let of = |moment| Some(vec![moment; 40_000 + i as usize]);
            one_of(&key("large", i), &[of(1), of(2)]);
        }
    }
}

/// Promise: as `an_earlier_closes_manifest_is_refused_and_unlinks_nothing`.
#[test]
fn a_mixture_of_two_moments_is_refused_or_has_all_of_the_older() {
    for (variant, closed) in [
        (Durability::Fsync, true),
        (Durability::Fsync, false),
        (Durability::NoSync, true),
        (Durability::DOUBLE, true),
        (Durability::DOUBLE, false),
    ] {
        let moments = moments(variant, closed);
        let pool = matches!(variant, Durability::Buffered(_)).then_some(&moments.bench.pool);
        let mut refusals = 0;
        for mixture in 0..1 << PARTS.len() {
            let dir = moments.bench.dir.path().join("mixture");
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir(&dir).unwrap();
            let mut what = format!("{variant}, closed: {closed}");
            for (n, part) in PARTS.iter().enumerate() {
                let (from, name) = match mixture >> n & 1 {
                    0 => (&moments.earlier, "earlier"),
                    _ => (&moments.later, "later"),
                };
                replace(from, &dir, part);
                what.push_str(&format!(", {name} {part}"));
            }
            let before = contents(&dir);
            match quiet(variant).open(&dir, pool) {
                Ok(store) => {
                    // What knows of more, or of less, than the value log has is never gone on with.
                    assert!(mixture & 1 == mixture >> 1 & 1, "{what}: opened");
                    moments.check(&store, &what);
                }
                Err(error) => {
                    refusals += 1;
                    let mut after = contents(&dir);
                    after.retain(|(path, _)| !path.ends_with("LOCK"));
                    assert!(after == before, "{what}: changed, though: {error}");
                }
            }
        }
        // At least those whose value log misses what the manifest names, and the other way round.
        assert!(
            refusals >= 6,
            "{variant}, closed: {closed}: {refusals} refused"
        );
    }
}
