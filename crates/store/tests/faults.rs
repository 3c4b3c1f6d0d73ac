//! Failing disks: nothing acknowledged is lost, errors say what to do, and nothing hangs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Bench, Rng, files_in,
    hook_disk::{Doing, HookDisk},
    tiny, value_log_files, within,
};
use forebay_store::{
    Batch, ScanRange, Store, StoreError, StoreOptions, Variant,
    disk::{
        RealDisk,
        faulty::{Fault, FaultyDisk, Plan},
    },
};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

fn faulty(plan: &Arc<Plan>) -> Arc<FaultyDisk> {
    Arc::new(FaultyDisk::new(
        Arc::new(RealDisk::default()),
        Arc::clone(plan),
    ))
}

fn quiet(variant: Variant) -> StoreOptions {
    tiny(variant).gc(false)
}

/// Bytes of log that a segment of two [`half_a_segment`]s takes, with headers, seal, and up to the next page.
const SEGMENT_TAKES: u32 = 60 << 10;
/// So many of [`half_a_segment`] fill a file under [`quiet`] options.
const FILE_FULL: u32 = 34;

fn half_a_segment() -> Vec<u8> {
    vec![7; 30_000]
}

fn get(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|value| value.into_vec())
}

#[test]
fn a_write_after_one_that_could_not_begin_a_new_file_is_not_lost() {
    for variant in [Variant::Fsync, Variant::NoSync] {
        let bench = Bench::new();
        let plan = Arc::new(Plan::default());
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

#[test]
fn once_a_sync_failed_no_later_one_claims_that_all_is_durable() {
    let bench = Bench::new();
    let plan = Arc::new(Plan::default());
    let options = quiet(Variant::NoSync);
    let store = options
        .open_on(faulty(&plan), None, bench.path(), None)
        .unwrap();
    store.put(b"key", b"value").unwrap();
    plan.strike(1, Fault::Error);
    assert!(store.flush().is_err());
    plan.heal();
    // The kernel reports a failed sync once and has forgotten it the next time.
    for _ in 0..2 {
        let error = store.flush().unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
        assert!(error.to_string().contains("Reopen"), "{error}");
    }
    assert!(store.put(b"other", b"value").is_err());
    assert!(store.close().is_err());
}

#[test]
fn what_a_killed_session_wrote_last_is_written_again_and_synced_in_every_file() {
    let bench = Bench::new();
    let options = quiet(Variant::NoSync)
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

/// True for a value-log file.
fn is_value_log(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "vlog")
}

fn io_error() -> io::Error {
    io::Error::other("the disk is broken")
}

#[test]
fn a_segment_whose_write_failed_while_the_next_one_began_a_new_file_goes_where_it_belongs() {
    let bench = Bench::new();
    // The last segment of a file is sealed early; its first write fails, once the next one is placed.
    let failed = Arc::new(AtomicBool::new(false));
    let vlog = bench.path().join("vlog");
    let disk = HookDisk::new({
        let failed = Arc::clone(&failed);
        move |doing| match doing {
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
        }
    });
    let options = quiet(Variant::Buffered(4));
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
    let store = quiet(Variant::Fsync).open(bench.path(), None).unwrap();
    for i in 0..60u32 {
        assert_eq!(get(&store, &i.to_be_bytes()).unwrap(), large);
    }
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_segment_whose_file_could_not_be_made_is_still_placed_before_the_next_one() {
    let bench = Bench::new();
    let failed = Arc::new(AtomicBool::new(false));
    let disk = HookDisk::new({
        let failed = Arc::clone(&failed);
        move |doing| match doing {
            Doing::Create(path) if is_value_log(path) && !failed.load(SeqCst) => {
                // By now the other drain thread waits for its turn, and more than one segment for a drain.
                thread::sleep(Duration::from_millis(100));
                failed.store(true, SeqCst);
                Err(io_error())
            }
            _ => Ok(()),
        }
    });
    let options = quiet(Variant::Buffered(4));
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
    let store = quiet(Variant::Fsync).open(bench.path(), None).unwrap();
    for i in 0..7u32 {
        assert_eq!(get(&store, &i.to_be_bytes()).unwrap(), half_a_segment());
    }
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_file_whose_naming_failed_half_way_is_there_after_a_crash_in_the_next_attempt() {
    let bench = Bench::new();
    let options = quiet(Variant::Fsync);
    // The manifest that names the second file is renamed, but its directory's sync fails; then the power fails in the
    // second attempt, before the first operation that creates a file.
    let state = Arc::new(AtomicU32::new(0));
    let disk = HookDisk::new({
        let (state, dir) = (Arc::clone(&state), bench.path());
        move |doing| match (doing, state.load(SeqCst)) {
            (Doing::SyncDir(path), 1) if path == dir => {
                state.store(2, SeqCst);
                Err(io_error())
            }
            (Doing::Create(_), 2) => {
                state.store(3, SeqCst);
                Err(io_error())
            }
            (_, 3) => Err(io_error()),
            _ => Ok(()),
        }
    });
    let store = options.open_on(disk, None, bench.path(), None).unwrap();
    for i in 0..FILE_FULL {
        store.put(&i.to_be_bytes(), &half_a_segment()).unwrap();
    }
    state.store(1, SeqCst);
    for _ in 0..2 {
        assert!(store.put(b"the next file", &half_a_segment()).is_err());
    }
    assert_eq!(state.load(SeqCst), 3);
    drop(store);
    let store = bench.open(&options);
    for i in 0..FILE_FULL {
        assert_eq!(get(&store, &i.to_be_bytes()).unwrap(), half_a_segment());
    }
    store.put(b"the next file", &half_a_segment()).unwrap();
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_thread_that_panics_is_started_again_and_nothing_is_lost_or_hangs() {
    let bench = Bench::new();
    let panics = Arc::new(AtomicBool::new(true));
    let disk = HookDisk::new({
        let panics = Arc::clone(&panics);
        move |doing| match doing {
            Doing::Write(path, offset) if is_value_log(path) && offset > 0 => {
                assert!(!panics.load(SeqCst), "a panic that the test wants");
                Ok(())
            }
            _ => Ok(()),
        }
    });
    let options = quiet(Variant::DOUBLE);
    let store = options
        .open_on(disk, None, bench.path(), &bench.pool)
        .unwrap();
    within(Duration::from_secs(60), "writing", move || {
        let value = [7; 1000];
        let mut done = 0;
        let error = (0..1000u32)
            .find_map(|i| {
                done = i;
                store.put(&i.to_be_bytes(), &value).err()
            })
            .expect("the pool is full and nobody drains it");
        assert!(matches!(error, StoreError::Stalled { .. }), "{error}");
        assert!(error.to_string().contains("panicked"), "{error}");
        panics.store(false, SeqCst);
        while store.put(b"goes on", &value).is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        for i in 0..done {
            assert_eq!(get(&store, &i.to_be_bytes()).unwrap(), value);
        }
        store.close().unwrap();
    });
}

#[test]
fn a_large_value_whose_write_was_refused_leaves_no_file_behind() {
    let bench = Bench::new();
    let broken = Arc::new(AtomicBool::new(true));
    let disk = HookDisk::new({
        let broken = Arc::clone(&broken);
        move |doing| match doing {
            Doing::Write(path, _) if is_value_log(path) && broken.load(SeqCst) => Err(io_error()),
            _ => Ok(()),
        }
    });
    let options = quiet(Variant::DOUBLE);
    let store = options
        .open_on(disk, None, bench.path(), &bench.pool)
        .unwrap();
    while store.put(b"fills the pool", &half_a_segment()).is_ok() {}
    while store.put(b"fills the pool", b"to its last line").is_ok() {}
    let mut batch = Batch::new();
    batch.put(b"a", &[7; 100_000]);
    batch.put(b"b", &[7; 100_000]);
    for _ in 0..3 {
        let error = store.put(b"large", &[7; 100_000]).unwrap_err();
        assert!(matches!(error, StoreError::Stalled { .. }), "{error}");
        assert!(store.write(&batch).is_err());
    }
    assert_eq!(files_in(&bench.path().join("large")), [] as [PathBuf; 0]);
    assert_eq!(store.stats().large_value_bytes, 0);
    broken.store(false, SeqCst);
    while store.write(&batch).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(get(&store, b"b").unwrap(), [7; 100_000]);
}

/// What a key may hold: one value after an acknowledged write; more after writes that failed.
type Possible = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// One step of a workload.
enum Step {
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Flush,
    Collect,
    Scan,
}

/// Puts, deletes, batches and large values over few keys, enough for several files and collections.
fn workload(rng: &mut Rng) -> Vec<Step> {
    let key = |rng: &mut Rng| format!("key {:02}", rng.below(30)).into_bytes();
    (0..150)
        .map(|i| match i % 15 {
            4 => Step::Write(vec![(key(rng), None)]),
            7 => Step::Write(
                (0..4)
                    .map(|_| (key(rng), Some(vec![i as u8; rng.below(3000) as usize])))
                    .collect(),
            ),
            9 if i % 30 == 9 => Step::Write(vec![(key(rng), Some(vec![i as u8; 50_000]))]),
            11 => Step::Flush,
            13 if i % 60 == 58 => Step::Collect,
            14 => Step::Scan,
            _ => Step::Write(vec![(key(rng), Some(vec![i as u8; 20_000]))]),
        })
        .collect()
}

fn write(store: &Store, changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<(), StoreError> {
    match changes {
        [(key, Some(value))] => store.put(key, value),
        [(key, None)] => store.delete(key),
        _ => {
            let mut batch = Batch::new();
            for (key, value) in changes {
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                }
            }
            store.write(&batch)
        }
    }
}

/// Fails unless the error is one that a failing disk may give, and says what to do.
fn check_error(error: &StoreError) {
    let text = error.to_string();
    let says = match error {
        StoreError::Io { .. } | StoreError::Index(_) => "/",
        StoreError::Stalled { .. } | StoreError::IndexStalled { .. } => "make room or repair",
        StoreError::ReadOnly { .. } => "Reopen it",
        other => panic!("{other:?}"),
    };
    assert!(text.contains(says), "{text}");
}

/// Does the steps; what the keys may hold then. With `insist`, each is tried until it succeeds.
fn run(store: &Store, steps: &[Step], insist: bool) -> Possible {
    let mut possible = Possible::new();
    for step in steps {
        loop {
            let result = match step {
                Step::Write(changes) => write(store, changes),
                Step::Flush => store.flush(),
                Step::Collect => store.gc().map(drop),
                Step::Scan => store
                    .scan(ScanRange::all())
                    .and_then(|scan| scan.collect::<Result<Vec<_>, _>>())
                    .map(drop),
            };
            if let Err(error) = &result {
                check_error(error);
            }
            if let Step::Write(changes) = step {
                for (key, value) in changes {
                    let values = possible.entry(key.clone()).or_insert(vec![None]);
                    if result.is_ok() {
                        values.clear();
                    }
                    values.push(value.clone());
                }
                if result.is_ok() && changes.len() > 1 {
                    // Of several changes of a key in a batch the last one counts.
                    for (key, value) in changes {
                        possible.insert(key.clone(), vec![value.clone()]);
                    }
                }
            }
            if result.is_ok() || !insist {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    possible
}

fn check(store: &Store, possible: &Possible, when: &str) {
    for (key, values) in possible {
        let found = get(store, key);
        assert!(
            values.contains(&found),
            "{when}: {}: {:?} bytes of {:?}, expected one of {:?}",
            String::from_utf8_lossy(key),
            found.as_ref().map(Vec::len),
            found.as_ref().and_then(|value| value.first().copied()),
            values
                .iter()
                .map(|v| v.as_ref().map(|v| (v.len(), v.first().copied())))
                .collect::<Vec<_>>()
        );
    }
    let problems = store.verify().unwrap().problems;
    assert!(problems.is_empty(), "{when}: {problems:?}");
}

/// A whole life of a store in which the `at`-th operation on the disk meets `fault`. Operations of the life.
fn life(variant: Variant, at: u64, fault: Fault, closes: bool) -> u64 {
    let when = format!("{variant}, {fault:?} at {at}, closed: {closes}");
    within(Duration::from_secs(60), &when.clone(), move || {
        let bench = Bench::new();
        let plan = Arc::new(Plan::default());
        plan.strike(at, fault);
        let options = quiet(variant);
        let steps = workload(&mut Rng(7));
        // A pool's writers go on by themselves once the disk does; without one, a failed sync ends the session.
        let pool = matches!(variant, Variant::Buffered(_));
        let insist = pool && fault != Fault::Gone;
        let mut possible = Possible::new();
        match options.open_on(faulty(&plan), None, bench.path(), &bench.pool) {
            Ok(store) => {
                possible = run(&store, &steps, insist);
                if insist && plan.struck() > 0 {
                    plan.heal();
                    check(&store, &possible, &when);
                }
                if closes && let Err(error) = store.close() {
                    check_error(&error);
                }
            }
            Err(error) => check_error(&error),
        }
        let operations = plan.operations();
        let store = options
            .open(bench.path(), &bench.pool)
            .unwrap_or_else(|error| panic!("{when}: {error}"));
        check(&store, &possible, &when);
        store.put(b"goes on", b"value").unwrap();
        store.close().unwrap();
        operations
    })
}

#[test]
fn whichever_operation_on_the_disk_fails_nothing_acknowledged_is_lost_and_nothing_hangs() {
    // Other operations each time; a failure says which one it was.
    let mut rng = Rng(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    const FAULTS: [Fault; 4] = [Fault::Error, Fault::Torn, Fault::Gone, Fault::FullFor(8)];
    const EACH: u64 = 8;
    for variant in [
        Variant::Fsync,
        Variant::NoSync,
        Variant::SINGLE,
        Variant::DOUBLE,
    ] {
        let operations = life(variant, u64::MAX / 2, Fault::Error, true);
        assert!(operations > 100, "{variant}: {operations}");
        for fault in FAULTS {
            for part in 0..EACH {
                let step = operations / EACH;
                let at = 1 + part * step + rng.below(step);
                life(variant, at, fault, rng.chance(2));
            }
        }
        // Opening is short and does much.
        for at in 1..20 {
            life(variant, at, FAULTS[at as usize % 3], at % 2 == 0);
        }
    }
}
