//! Failures where a segment ends and a value-log file begins: what was acknowledged goes where it
//! belongs, and is there afterwards.

use crate::{
    FILE_FULL, SEGMENT_TAKES,
    common::{
        Bench,
        hook_disk::{Doing, HookDisk},
        value_log_files,
    },
    faulty, get, half_a_segment, io_error, is_value_log, quiet,
};
use forebay_store::{
    Durability, StoreError,
    disk::faulty::{Fault, FaultPlan},
};
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

#[test]
fn a_write_after_one_that_failed_to_begin_a_file_is_not_lost() {
    for variant in [Durability::Fsync, Durability::NoSync] {
        let bench = Bench::new();
        let plan = Arc::new(FaultPlan::default());
        let store = quiet(variant)
            .open_on(faulty(&plan), None, bench.path(), None)
            .unwrap();
        let large = half_a_segment();
        for i in 0..40u32 {
            if i == FILE_FULL {
                // Whatever is done after the segment's end was written fails.
                plan.strike(2, Fault::Gone);
                let error = store.put(&i.to_be_bytes(), &large).unwrap_err();
                assert!(matches!(error, StoreError::Io { .. }), "{error}");
                plan.heal();
                // This one would still fit into the segment.
                store.put(b"small", b"kept").unwrap();
            }
            store.put(&i.to_be_bytes(), &large).unwrap();
        }
        drop(store);
        let store = bench.open(&quiet(variant));
        for i in 0..40u32 {
            assert_eq!(
                get(&store, &i.to_be_bytes()).unwrap(),
                large,
                "{variant} {i}"
            );
        }
        let problems = store.verify().unwrap().problems;
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(get(&store, b"small").unwrap(), b"kept", "{variant}");
    }
}

/// Promise: as `a_killed_sessions_writes_are_synced_before_the_log_goes_on`.
#[test]
fn a_killed_sessions_last_writes_are_rewritten_in_every_file() {
    let bench = Bench::new();
    let options = quiet(Durability::NoSync)
        .memtable_size(4 << 20)
        .chunk_log_size(64 << 20);
    let store = options.open(bench.path(), None).unwrap();
    let files = || value_log_files(&bench.path());
    let mut puts = 0u32;
    while files().len() < 2 {
        store.put(&puts.to_be_bytes(), &half_a_segment()).unwrap();
        puts += 1;
    }
    drop(store);
    // It was killed when it had just begun the second file, and before it had synced the first.
    let mut second = std::fs::read(&files()[1]).unwrap();
    second[4096..].fill(0);
    std::fs::write(&files()[1], second).unwrap();
    let done = Arc::new(Mutex::new(Vec::new()));
    let disk = HookDisk::new({
        let done = Arc::clone(&done);
        move |doing| {
            match doing {
                Doing::Write(path, _) => done.lock().unwrap().push((path.to_owned(), false)),
                Doing::Sync(path) => done.lock().unwrap().push((path.to_owned(), true)),
                _ => {}
            }
            Ok(())
        }
    });
    let store = options.open_on(disk, None, bench.path(), None).unwrap();
    let done = std::mem::take(&mut *done.lock().unwrap());
    let of_first: Vec<bool> = done
        .iter()
        .filter(|(path, _)| *path == files()[0])
        .map(|(_, synced)| *synced)
        .collect();
    assert!(of_first.contains(&false), "it is written again");
    assert_eq!(of_first.last(), Some(&true), "and synced");
    assert!(done.contains(&(files()[1].clone(), true)));
    for i in 0..puts - 1 {
        assert!(get(&store, &i.to_be_bytes()) == Some(half_a_segment()));
    }
}

#[test]
fn a_failed_segment_goes_to_its_old_file_after_a_new_one_began() {
    let bench = Bench::new();
    // The last segment of a file is sealed early; its first write fails, once the next one is
    // placed.
    let failed = Arc::new(AtomicBool::new(false));
    let vlog = bench.path().join("vlog");
    let disk = HookDisk::by(&failed, move |doing, failed| match doing {
        Doing::Write(path, offset)
            if is_value_log(path) && offset == 4096 + 16 * u64::from(SEGMENT_TAKES) =>
        {
            let two = || value_log_files(vlog.parent().unwrap()).len() == 2;
            while !failed.load(SeqCst) && !two() {
                thread::sleep(Duration::from_millis(1));
            }
            if failed.swap(true, SeqCst) {
                Ok(())
            } else {
                Err(io_error())
            }
        }
        _ => Ok(()),
    });
    let options = quiet(Durability::Buffered(4));
    let store = options
        .open_on(disk, None, bench.path(), &bench.pool)
        .unwrap();
    let begun = Instant::now();
    let large = half_a_segment();
    for i in 0..FILE_FULL - 2 {
        store.put(&i.to_be_bytes(), &large).unwrap();
    }
    store.put(b"in the last segment", b"value").unwrap();
    thread::scope(|scope| {
        // Seals it.
        scope.spawn(|| store.flush());
        for i in FILE_FULL - 2..60 {
            while let Err(error) = store.put(&i.to_be_bytes(), &large) {
                assert!(matches!(error, StoreError::Stalled { .. }), "{error}");
                assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
            }
        }
    });
    assert!(failed.load(SeqCst));
    for closed in [false, true] {
        for i in 0..60u32 {
            assert_eq!(get(&store, &i.to_be_bytes()).unwrap(), large);
        }
        assert_eq!(get(&store, b"in the last segment").unwrap(), b"value");
        if closed {
            break;
        }
        while let Err(error) = store.flush() {
            assert!(matches!(error, StoreError::Stalled { .. }), "{error}");
            assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
        }
    }
    store.close().unwrap();
    let store = quiet(Durability::Fsync).open(bench.path(), None).unwrap();
    for i in 0..60u32 {
        assert_eq!(get(&store, &i.to_be_bytes()).unwrap(), large);
    }
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_segment_whose_file_could_not_be_made_precedes_the_next_one() {
    let bench = Bench::new();
    let failed = Arc::new(AtomicBool::new(false));
    let disk = HookDisk::by(&failed, move |doing, failed| match doing {
        Doing::Create(path) if is_value_log(path) && !failed.load(SeqCst) => {
            // By now the other drain thread waits for its turn, and more than one segment for a
            // drain.
            thread::sleep(Duration::from_millis(100));
            failed.store(true, SeqCst);
            Err(io_error())
        }
        _ => Ok(()),
    });
    let options = quiet(Durability::Buffered(4));
    let store = options
        .open_on(disk, None, bench.path(), &bench.pool)
        .unwrap();
    for i in 0..7u32 {
        store.put(&i.to_be_bytes(), &half_a_segment()).unwrap();
    }
    while !failed.load(SeqCst) || store.flush().is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    store.close().unwrap();
    let store = quiet(Durability::Fsync).open(bench.path(), None).unwrap();
    for i in 0..7u32 {
        assert_eq!(get(&store, &i.to_be_bytes()).unwrap(), half_a_segment());
    }
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// Fills the first value-log file on `disk`; then `state` is 1, and two attempts to begin the next
/// one fail, which leave it `reached`. After a crash all is there, and a next file is begun.
fn crash_before_the_second_file(
    bench: &Bench,
    disk: Arc<HookDisk>,
    state: &AtomicU32,
    reached: u32,
) {
    let options = quiet(Durability::Fsync);
    let store = options.open_on(disk, None, bench.path(), None).unwrap();
    for i in 0..FILE_FULL {
        store.put(&i.to_be_bytes(), &half_a_segment()).unwrap();
    }
    state.store(1, SeqCst);
    for _ in 0..2 {
        assert!(store.put(b"the next file", &half_a_segment()).is_err());
    }
    assert_eq!(state.load(SeqCst), reached);
    drop(store);
    let store = bench.open(&options);
    for i in 0..FILE_FULL {
        assert_eq!(get(&store, &i.to_be_bytes()).unwrap(), half_a_segment());
    }
    store.put(b"the next file", &half_a_segment()).unwrap();
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

/// As [`crash_before_the_second_file`]: in state 1 the sync of the directory that has the manifest
/// fails, which makes it 2, and what is done otherwise is decided by `then`.
fn crash_half_way_to_the_second_file(
    bench: &Bench,
    reached: u32,
    then: impl Fn(Doing<'_>, &AtomicU32) -> io::Result<()> + Send + Sync + 'static,
) {
    let state = Arc::new(AtomicU32::new(0));
    let disk = HookDisk::new({
        let (state, dir) = (Arc::clone(&state), bench.path());
        move |doing| match doing {
            Doing::SyncDir(path) if path == dir && state.load(SeqCst) == 1 => {
                state.store(2, SeqCst);
                Err(io_error())
            }
            doing => then(doing, &state),
        }
    });
    crash_before_the_second_file(bench, disk, &state, reached);
}

#[test]
fn a_half_named_file_is_there_after_a_crash_in_the_next_attempt() {
    let bench = Bench::new();
    // The manifest that names the second file is renamed, but its directory's sync fails; then the
    // power fails in the second attempt, before the first operation that creates a file.
    crash_half_way_to_the_second_file(&bench, 3, |doing, state| {
        match (doing, state.load(SeqCst)) {
            (Doing::Create(_), 2) => {
                state.store(3, SeqCst);
                Err(io_error())
            }
            (_, 3) => Err(io_error()),
            _ => Ok(()),
        }
    });
}

#[test]
fn a_file_a_manifest_may_name_is_kept_though_it_does_not_open() {
    let bench = Bench::new();
    // The process is at its limit of open files: the manifest that names the second file is
    // renamed, but its directory cannot be opened to be synced; and in the second attempt that file
    // cannot be.
    crash_half_way_to_the_second_file(&bench, 2, |doing, state| {
        match (doing, state.load(SeqCst)) {
            (Doing::Open(path) | Doing::Create(path), 2) if is_value_log(path) => Err(io_error()),
            _ => Ok(()),
        }
    });
}
