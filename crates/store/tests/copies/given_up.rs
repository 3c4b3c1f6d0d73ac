//! Files that a store gives up or cannot remove: each is named, and moved out of the way as it is.

use crate::{
    check,
    common::{
        Bench, copy_dir,
        hook_disk::{Doing, HookDisk},
        value_log_files,
    },
    manifest, put, quiet, refused, session, value_log,
};
use forebay_store::{Durability, StoreOptions};
use std::{
    fs, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// Promise (store): A salvage names its losses beforehand and afterwards, and moves files that it
/// gives up to `given-up/`.
#[test]
fn a_salvage_names_what_it_gives_up_and_moves_it_aside_as_it_is() {
    let bench = Bench::new();
    let options = quiet(Durability::Fsync);
    session(&bench, &options, 0..5);
    let older = fs::read(manifest(&bench)).unwrap();
    let store = bench.open(&options);
    put(&store, 5..200, 1);
    drop(store);
    let files = value_log(&bench);
    fs::write(manifest(&bench), older).unwrap();
    let error = refused(&bench, Durability::Fsync, &["salvage would give up"]);
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

/// A store that is not closed, with collected files that are out of the manifest and still on the
/// disk.
fn with_a_collected_file(options: &StoreOptions) -> Bench {
    let bench = Bench::new();
    let store = bench.open(options);
    put(&store, 0..100, 1);
    put(&store, 0..100, 2);
    // Kept for this.
    let snapshot = store.snapshot().unwrap();
    assert!(store.gc().unwrap().files > 0);
    drop(snapshot);
    drop(store);
    bench
}

/// Promise (store): A collected file that cannot be unlinked keeps no store from opening, and is
/// named.
#[test]
fn a_collected_file_that_stays_is_named_and_stops_no_opening() {
    let options = quiet(Durability::Fsync);
    let bench = with_a_collected_file(&options);
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
fn a_collected_file_unreadable_for_a_moment_stops_no_reopening() {
    let options = quiet(Durability::Fsync);
    let bench = with_a_collected_file(&options);
    // Opening it fails, reading its header, or reading what it holds.
    for fails in [None, Some(0), Some(4096)] {
        let copy = bench.dir.path().join(format!("copy {fails:?}"));
        copy_dir(&bench.path(), &copy);
        let collected = value_log_files(&copy)[0].clone();
        let failed = Arc::new(AtomicBool::new(false));
        let disk = HookDisk::new({
            let (collected, failed) = (collected.clone(), Arc::clone(&failed));
            move |doing| {
                let strikes = match doing {
                    Doing::Open(path) => path == collected && fails.is_none(),
                    Doing::Read(path, at, _) => path == collected && fails == Some(at),
                    _ => false,
                };
                failed.fetch_or(strikes, SeqCst);
                match strikes {
                    true => Err(io::Error::other("the disk is broken")),
                    false => Ok(()),
                }
            }
        });
        let store = options.open_on(disk, None, &copy, None).unwrap();
        check(&store, 0..100, 2);
        drop(store);
        check(&options.open(&copy, None).unwrap(), 0..100, 2);
        assert!(failed.load(SeqCst) || fails == Some(4096));
        assert!(!collected.exists(), "{fails:?}");
    }
}
