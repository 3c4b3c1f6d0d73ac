//! Whole lives of a store in which one operation on the disk fails, whichever: nothing acknowledged
//! is lost, and nothing hangs.

use crate::{
    common::{Bench, Rng, within},
    faulty, get, quiet,
};
use forebay_store::{
    Batch, Durability, ScanRange, Store, StoreError,
    disk::faulty::{Fault, FaultPlan},
};
use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc, thread, time::Duration};

/// What a key may hold: one value after an acknowledged write; more after writes that failed.
type Possible = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// One step of a workload.
enum Step {
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Flush,
    Collect,
    Compact,
    Scan,
}

/// Puts, deletes, also of ranges, batches and large values over few keys, enough for several files
/// and collections.
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
            12 => Step::Write(
                (0..10)
                    .map(|n| (format!("key {n:02}").into_bytes(), None))
                    .collect(),
            ),
            13 if i % 60 == 58 => Step::Collect,
            13 if i % 60 == 28 => Step::Compact,
            14 => Step::Scan,
            _ => Step::Write(vec![(key(rng), Some(vec![i as u8; 20_000]))]),
        })
        .collect()
}

fn write(store: &Store, changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<(), StoreError> {
    match changes {
        [(key, Some(value))] => store.put(key, value),
        [(key, None)] => store.delete(key),
        [(first, None), .., (last, None)] => {
            store.delete_range(ScanRange::new::<&Vec<u8>>(first..=last))
        }
        _ => {
            let mut batch = Batch::new();
            for (key, value) in changes {
                match value {
                    Some(value) => batch.put(key, value).unwrap(),
                    None => batch.delete(key).unwrap(),
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
        StoreError::NoRoomToOpen { .. } => "bytes of room",
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
                Step::Compact => store.compact(|_| ControlFlow::Continue(())).map(drop),
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

/// A whole life of a store in which the `at`-th operation on the disk meets `fault`. Operations of
/// the life.
fn life(variant: Durability, at: u64, fault: Fault, closes: bool) -> u64 {
    let when = format!("{variant}, {fault:?} at {at}, closed: {closes}");
    within(Duration::from_secs(60), &when.clone(), move || {
        let bench = Bench::new();
        let plan = Arc::new(FaultPlan::default());
        plan.strike(at, fault);
        let options = quiet(variant);
        let steps = workload(&mut Rng(7));
        // A pool's writers go on by themselves once the disk does; without one, a failed sync ends
        // the session.
        let pool = matches!(variant, Durability::Buffered(_));
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

/// Promise (store): A store's error for a failed disk names the remedy, and with a pool writes go
/// on by themselves when the disk does.
/// Promise (store): An operation on the disk that fails or is torn, once, for a while or for good,
/// loses nothing acknowledged and leaves no caller hanging.
#[test]
fn no_failing_operation_loses_what_was_acknowledged_or_hangs() {
    // Other operations each time; a failure says which one it was.
    let mut rng = Rng(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    const FAULTS: [Fault; 4] = [Fault::Error, Fault::Torn, Fault::Gone, Fault::FullFor(8)];
    const EACH: u64 = 8;
    for variant in [
        Durability::Fsync,
        Durability::NoSync,
        Durability::SINGLE,
        Durability::DOUBLE,
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
