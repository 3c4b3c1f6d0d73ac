//! Copies and restores of a store's directory that were not taken at one moment: each is refused with nothing changed, or
//! opens with everything that was acknowledged by the older moment; and nothing is ever unlinked or cut that the rest of
//! the copy would have needed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Bench, contents, copy_dir,
    hook_disk::{Doing, HookDisk},
    new_sim, tiny, value_log_files,
};
use forebay_pool::{Pool, PoolOptions, crc32c, media::Sim};
use forebay_store::{Store, StoreError, StoreOptions, Variant};
use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Nothing in the background but drains and the index.
fn quiet(variant: Variant) -> StoreOptions {
    tiny(variant).gc(false)
}

fn put(store: &Store, keys: std::ops::Range<u32>, fill: u8) {
    for i in keys {
        store
            .put(&i.to_be_bytes(), &vec![fill ^ i as u8; 20_000])
            .unwrap();
    }
}

fn check(store: &Store, keys: std::ops::Range<u32>, fill: u8) {
    for i in keys {
        let value = store.get(&i.to_be_bytes()).unwrap();
        assert!(value.unwrap() == vec![fill ^ i as u8; 20_000], "key {i}");
    }
}

/// A whole session that puts these keys.
fn session(bench: &Bench, options: &StoreOptions, keys: std::ops::Range<u32>) {
    let store = bench.open(options);
    put(&store, keys, 1);
    store.close().unwrap();
}

/// The value-log files with their bytes.
fn value_log(bench: &Bench) -> Vec<(PathBuf, Vec<u8>)> {
    contents(&bench.path().join("vlog"))
}

/// With the manifest of an earlier moment a store is refused, and unchanged: with today's it opens, and has `keys`.
fn refused_with_manifest(bench: &Bench, variant: Variant, older: &[u8], keys: u32) {
    let newer = fs::read(manifest(bench)).unwrap();
    assert!(value_log_files(&bench.path()).len() > 4);
    fs::write(manifest(bench), older).unwrap();
    refused(
        bench,
        variant,
        &["MANIFEST", "salvage", "Nothing was changed"],
    );
    fs::write(manifest(bench), newer).unwrap();
    check(&bench.open(&quiet(variant)), 0..keys, 1);
}

/// Opening is refused with words on each of `says`, and changes nothing.
fn refused(bench: &Bench, variant: Variant, says: &[&str]) -> StoreError {
    let before = contents(&bench.path());
    let pool = matches!(variant, Variant::Buffered(_)).then_some(&bench.pool);
    let error = quiet(variant)
        .open(bench.path(), pool)
        .err()
        .expect("it is opened");
    let text = error.to_string();
    for words in says {
        assert!(text.contains(words), "{words:?} is not in: {text}");
    }
    let after = contents(&bench.path());
    assert!(after == before, "something was changed: {text}");
    error
}

fn manifest(bench: &Bench) -> PathBuf {
    bench.path().join("MANIFEST")
}

#[test]
fn a_manifest_of_an_earlier_clean_close_unlinks_no_later_file_and_is_refused() {
    for variant in [Variant::Fsync, Variant::NoSync, Variant::DOUBLE] {
        let bench = Bench::new();
        session(&bench, &quiet(variant), 0..5);
        let older = fs::read(manifest(&bench)).unwrap();
        session(&bench, &quiet(variant), 5..300);
        refused_with_manifest(&bench, variant, &older, 300);
    }
}

#[test]
fn a_manifest_of_an_earlier_clean_close_is_refused_if_only_the_last_file_grew() {
    // With the index of the later moment, and with that of the earlier one.
    for index_too in [false, true] {
        for variant in [Variant::Fsync, Variant::DOUBLE] {
            let bench = Bench::new();
            session(&bench, &quiet(variant), 0..5);
            let earlier = bench.dir.path().join("earlier");
            copy_dir(&bench.path(), &earlier);
            session(&bench, &quiet(variant), 5..10);
            let later = bench.dir.path().join("later");
            copy_dir(&bench.path(), &later);
            assert_eq!(value_log_files(&bench.path()).len(), 1);
            fs::copy(earlier.join("MANIFEST"), manifest(&bench)).unwrap();
            if index_too {
                replace(&earlier, &bench.path(), "index");
            }
            refused(&bench, variant, &["MANIFEST", "salvage"]);
            fs::copy(later.join("MANIFEST"), manifest(&bench)).unwrap();
            replace(&later, &bench.path(), "index");
            check(&bench.open(&quiet(variant)), 0..10, 1);
        }
    }
}

#[test]
fn a_manifest_taken_earlier_from_a_running_store_unlinks_nothing_and_is_refused() {
    for variant in [Variant::Fsync, Variant::NoSync, Variant::DOUBLE] {
        let bench = Bench::new();
        let store = bench.open(&quiet(variant));
        put(&store, 0..5, 1);
        let older = fs::read(manifest(&bench)).unwrap();
        put(&store, 5..300, 1);
        drop(store);
        refused_with_manifest(&bench, variant, &older, 300);
    }
}

/// Puts `part` of the directory `from` in the place of `to`'s.
fn replace(from: &Path, to: &Path, part: &str) {
    let (from, to) = (from.join(part), to.join(part));
    if from.is_dir() {
        let _ = fs::remove_dir_all(&to);
        copy_dir(&from, &to);
    } else {
        fs::copy(&from, &to).unwrap();
    }
}

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

/// Copies the directory of a store that is open and not written to, but may be merging tables still.
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

/// Two moments, with collection, deletes, large values between them; `closed` before each, or taken while it runs.
fn moments(variant: Variant, closed: bool) -> Moments {
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
    /// What an opened mixture may say of each key: its value by either moment, or that it is damaged; never that it is not
    /// there, nor that a deleted one is.
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

#[test]
fn a_mixture_of_two_moments_is_refused_unchanged_or_has_what_the_older_one_had() {
    for (variant, closed) in [
        (Variant::Fsync, true),
        (Variant::Fsync, false),
        (Variant::NoSync, true),
        (Variant::DOUBLE, true),
        (Variant::DOUBLE, false),
    ] {
        let moments = moments(variant, closed);
        let pool = matches!(variant, Variant::Buffered(_)).then_some(&moments.bench.pool);
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

/// A pool with these contents.
fn pool_of(image: Vec<u8>) -> Pool {
    let media = Sim::from_image(image);
    media.stop_recording();
    PoolOptions::new()
        .open_on("test pool", Arc::new(media))
        .unwrap()
}

#[test]
fn a_pool_of_an_earlier_moment_is_refused_and_nothing_is_written_over_the_files() {
    // Taken from the running session, and from the session before; with an index that knows more, and with one that knows nothing.
    for (sessions, memtable_bytes) in [(1, 64 << 10), (1, 16 << 20), (2, 64 << 10), (2, 16 << 20)] {
        let media = new_sim(64 << 10);
        media.stop_recording();
        let pool = common::format(Arc::clone(&media), 64 << 10);
        let bench = Bench {
            dir: tempfile::tempdir().unwrap(),
            pool,
        };
        let options = quiet(Variant::DOUBLE)
            .memtable_size(memtable_bytes)
            .chunk_log_size(64 << 20);
        let mut store = bench.open(&options);
        put(&store, 0..3, 1);
        let earlier = media.image();
        if sessions == 2 {
            drop(store);
            store = bench.open(&options);
        }
        put(&store, 3..40, 1);
        store.flush().unwrap();
        put(&store, 40..42, 1);
        drop(store);
        let later = media.image();
        let before = contents(&bench.path());
        // However often it is tried.
        for _ in 0..4 {
            let error = options
                .open(bench.path(), &pool_of(earlier.clone()))
                .err()
                .expect("it is opened");
            assert!(contents(&bench.path()) == before, "{error}");
        }
        let earlier = pool_of(earlier);
        for _ in 0..4 {
            let error = options.open(bench.path(), &earlier).err();
            let error = error.expect("it is opened at last");
            assert!(error.to_string().contains("older"), "{error}");
            assert!(contents(&bench.path()) == before, "{error}");
        }
        let aside = bench.dir.path().join("aside");
        copy_dir(&bench.path(), &aside);
        // Given up, it costs what is in no file, and nothing else.
        let salvage = options.clone().salvage(true);
        let store = salvage.open(&aside, &earlier).unwrap();
        check(&store, 0..40, 1);
        assert!(!store.stats().given_up.is_empty());
        drop(store);
        check(
            &options.open(bench.path(), &pool_of(later)).unwrap(),
            0..42,
            1,
        );
    }
}

#[test]
fn an_index_of_an_earlier_moment_brings_no_deleted_key_back() {
    let bench = Bench::new();
    let options = quiet(Variant::Fsync);
    let store = bench.open(&options);
    put(&store, 0..100, 1);
    store.gc().unwrap();
    let earlier = bench.dir.path().join("earlier");
    copy_dir(&bench.path().join("index"), &earlier.join("index"));
    // The deletes lie in a file that is collected, and only the index knows of them then.
    for i in 0..20u32 {
        store.delete(&i.to_be_bytes()).unwrap();
    }
    put(&store, 1000..1100, 1);
    put(&store, 1000..1100, 2);
    let report = store.gc().unwrap();
    assert!(report.files > 0);
    drop(store);
    let later = bench.dir.path().join("later");
    copy_dir(&bench.path().join("index"), &later.join("index"));
    replace(&earlier, &bench.path(), "index");
    refused(&bench, Variant::Fsync, &["index", "older", "deleted"]);
    replace(&later, &bench.path(), "index");
    let store = bench.open(&options);
    assert!(store.get(&7u32.to_be_bytes()).unwrap().is_none());
    check(&store, 20..100, 1);
    check(&store, 1000..1100, 2);
}

#[test]
fn a_salvage_says_what_it_gives_up_and_moves_it_out_of_the_way_as_it_is() {
    let bench = Bench::new();
    let options = quiet(Variant::Fsync);
    session(&bench, &options, 0..5);
    let older = fs::read(manifest(&bench)).unwrap();
    let store = bench.open(&options);
    put(&store, 5..200, 1);
    drop(store);
    let files = value_log(&bench);
    fs::write(manifest(&bench), older).unwrap();
    let error = refused(&bench, Variant::Fsync, &["salvage would give up"]);
    let later = files.len() - 1;
    assert!(
        error
            .to_string()
            .contains(&format!("{later} value-log files")),
        "{error}"
    );
    let salvage = options.clone().salvage(true);
    let store = bench.open(&salvage);
    let said = store.stats().given_up.join("\n");
    check(&store, 0..5, 1);
    for (path, bytes) in &files[1..] {
        let kept = bench
            .path()
            .join("given-up")
            .join(path.file_name().unwrap());
        assert!(said.contains(&kept.display().to_string()), "{said}");
        assert!(fs::read(kept).unwrap() == *bytes);
    }
    put(&store, 1000..1200, 3);
    store.close().unwrap();
    let store = bench.open(&options);
    assert!(store.stats().given_up.is_empty());
    check(&store, 0..5, 1);
    check(&store, 1000..1200, 3);
}

#[test]
fn a_copy_whose_last_file_was_copied_before_it_was_written_is_refused() {
    for (variant, closed) in [
        (Variant::Fsync, true),
        (Variant::Fsync, false),
        (Variant::NoSync, true),
        (Variant::DOUBLE, true),
    ] {
        let bench = Bench::new();
        let store = bench.open(&quiet(variant));
        put(&store, 0..5, 1);
        store.flush().unwrap();
        let earlier = value_log(&bench);
        put(&store, 5..20, 1);
        // All of it is in the index, which knows what the file should have.
        store.gc().unwrap();
        match closed {
            true => store.close().unwrap(),
            false => drop(store),
        }
        let later = value_log(&bench);
        assert_eq!(earlier.len(), later.len());
        for (path, bytes) in &earlier {
            fs::write(path, bytes).unwrap();
        }
        refused(
            &bench,
            variant,
            &["has nothing from log address", "copied while"],
        );
        for (path, bytes) in &later {
            fs::write(path, bytes).unwrap();
        }
        check(&bench.open(&quiet(variant)), 0..20, 1);
    }
}

#[test]
fn a_collected_file_that_cannot_be_unlinked_is_named_and_keeps_no_store_from_opening() {
    let bench = Bench::new();
    let options = quiet(Variant::Fsync);
    let store = bench.open(&options);
    put(&store, 0..100, 1);
    put(&store, 0..100, 2);
    // Taken out of the manifest, and kept on the disk for this.
    let snapshot = store.snapshot().unwrap();
    assert!(store.gc().unwrap().files > 0);
    drop(snapshot);
    drop(store);
    let there = value_log_files(&bench.path());
    let disk = HookDisk::new(|doing| match doing {
        Doing::Remove(path) if path.extension().is_some_and(|e| e == "vlog") && path.exists() => {
            Err(io::ErrorKind::PermissionDenied.into())
        }
        _ => Ok(()),
    });
    let store = options.open_on(disk, None, bench.path(), None).unwrap();
    check(&store, 0..100, 2);
    let leftovers = store.stats().leftovers;
    assert!(!leftovers.is_empty());
    let named = |path: &&PathBuf| {
        leftovers
            .iter()
            .any(|l| l.contains(&path.display().to_string()))
    };
    let dead: Vec<_> = there.iter().filter(named).collect();
    assert_eq!(dead.len(), leftovers.len(), "{leftovers:?}");
    put(&store, 200..300, 1);
    store.close().unwrap();
    let store = bench.open(&options);
    assert_eq!(store.stats().leftovers, Vec::<String>::new());
    assert!(dead.iter().all(|path| !path.exists()));
    check(&store, 0..100, 2);
    check(&store, 200..300, 1);
}

#[test]
fn crafted_lengths_in_a_manifest_or_a_files_header_are_refused_without_overflow() {
    let bench = Bench::new();
    let options = quiet(Variant::Fsync);
    session(&bench, &options, 0..100);
    let text = fs::read_to_string(manifest(&bench)).unwrap();
    let json = text.trim_end().rsplit_once('\n').unwrap().0;
    let state: serde_json::Value = serde_json::from_str(json).unwrap();
    for (pointer, number) in [
        ("/files/1/end", 1),
        ("/files/1/end", u64::MAX),
        ("/files/1/end", u64::MAX - 1),
        ("/files/1/start", !4095),
        ("/log_end", u64::MAX),
        ("/log_end", u64::MAX - 5000),
    ] {
        let mut crafted = state.clone();
        *crafted.pointer_mut(pointer).unwrap() = number.into();
        let json = serde_json::to_string_pretty(&crafted).unwrap();
        let text = format!("{json}\ncrc32c {:08x}\n", crc32c([json.as_bytes()]));
        fs::write(manifest(&bench), text).unwrap();
        refused(&bench, Variant::Fsync, &["othing was changed"]);
    }
    fs::write(manifest(&bench), &text).unwrap();
    let last = value_log_files(&bench.path()).pop().unwrap();
    let whole = fs::read(&last).unwrap();
    for (start, bytes) in [(None, u64::MAX), (None, u64::MAX - 4095), (Some(1), 1)] {
        let mut crafted = whole.clone();
        if let Some(start) = start {
            crafted[16..24].copy_from_slice(&u64::to_le_bytes(start));
        }
        crafted[24..32].copy_from_slice(&bytes.to_le_bytes());
        let crc = crc32c([&crafted[8..48]]);
        crafted[4..8].copy_from_slice(&crc.to_le_bytes());
        fs::write(&last, &crafted).unwrap();
        refused(&bench, Variant::Fsync, &["nothing was changed"]);
    }
    fs::write(&last, whole).unwrap();
    check(&bench.open(&options), 0..100, 1);
}

#[test]
fn a_crafted_watermark_of_an_index_is_refused_without_overflow() {
    for (variant, closed) in [(Variant::Fsync, false), (Variant::NoSync, true)] {
        let bench = Bench::new();
        let store = bench.open(&quiet(variant));
        put(&store, 0..5, 1);
        match closed {
            true => store.close().unwrap(),
            false => drop(store),
        }
        let path = bench.path().join("index").join("MANIFEST");
        let text = fs::read_to_string(&path).unwrap();
        let (_, body) = text.split_once('\n').unwrap();
        let (_, rest) = body.split_once('\n').unwrap();
        for watermark in [u64::MAX, u64::MAX - 5000] {
            let body = format!("watermark {watermark}\n{rest}");
            let mut sum = lsm_tree::checksum::ChecksummedWriter::new(io::sink());
            sum.write_all(body.as_bytes()).unwrap();
            let sum = sum.checksum().into_u128();
            fs::write(&path, format!("forebay-index 1 {sum:032x}\n{body}")).unwrap();
            refused(
                &bench,
                variant,
                &["which no log reaches", "othing was changed"],
            );
        }
        fs::write(&path, &text).unwrap();
        check(&bench.open(&quiet(variant)), 0..5, 1);
    }
}
