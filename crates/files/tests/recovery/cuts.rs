//! A recovery that is cut, in the same boot or with the power, or that took long, knows its own
//! changes when it is repeated.

use crate::{
    APPEND, LATER, OTHER_BOOT, RDWR,
    common::{Lab, content, put_back},
    modified, same_time, set_modified, succeed, why,
};
use forebay_pool::{ClaimOptions, PoolOptions};
use std::{
    fs,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Two files that were written to by a run that was killed.
fn two_files(lab: &Lab) -> [PathBuf; 2] {
    let mut run = lab.run();
    let paths = [lab.data("a.log"), lab.data("b.log")];
    for (name, path) in ["a", "b"].iter().zip(&paths) {
        run.open(name, path, APPEND);
        for i in 0..4 {
            run.call(format!("write {name} {i} 700")).unwrap();
        }
    }
    run.kill_both();
    paths
}

/// What both of them are to hold.
fn acknowledged() -> Vec<u8> {
    (0..4).flat_map(|i| content(i, 700)).collect()
}

/// Promise: as `a_replay_that_is_cut_anywhere_is_repeated_and_ends_the_same`.
#[test]
fn a_same_boot_recovery_may_be_cut_anywhere_with_the_power() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(RDWR);
    // After a second without a write it would drain what there is.
    run.stop_supervisor();
    for i in 0..4u64 {
        run.call(format!("pwrite a {} {i} 500", i * 400)).unwrap();
    }
    run.kill_both();
    let then = modified(&path);
    let expected = fs::read(&path).unwrap();
    let [pool, before] = ["pool.before", "a.before"].map(|name| lab.home.path().join(name));
    fs::copy(lab.pool(), &pool).unwrap();
    put_back(&path, &before);
    // Later than any slack: only the mark tells whose changes these are.
    thread::sleep(LATER);
    for boot in [None, Some(OTHER_BOOT)] {
        let is_cut_at = |steps: &usize| {
            fs::copy(&pool, lab.pool()).unwrap();
            put_back(&before, &path);
            let is_cut = lab.cut(None, *steps);
            if boot.is_some() {
                // Its time is on the disk, its content is not.
                lab.power_cut();
            }
            if is_cut {
                let reports = lab.recover(boot, &[]);
                assert_ne!(reports[0]["outcome"], "refused", "{steps}: {reports:?}");
                assert!(fs::read(&path).unwrap() == expected, "{boot:?} {steps}");
            }
            assert_eq!(lab.lanes(), 0);
            same_time(&path, then);
            is_cut
        };
        let steps = (1..30).take_while(is_cut_at).count();
        assert!(steps >= 5, "{boot:?}: only {steps} cuts");
    }
}

/// Promise: as `a_replay_that_is_cut_anywhere_is_repeated_and_ends_the_same`.
#[test]
fn a_replay_that_took_long_and_was_cut_knows_its_own_changes() {
    let lab = Lab::new();
    let paths = two_files(&lab);
    lab.power_cut();
    thread::sleep(LATER);
    // It hangs for so long in the first file, and is cut in the second.
    let mut command = lab.recover_command(&[]);
    command
        .env("FOREBAY_TEST_BOOT_ID", OTHER_BOOT)
        .env("FOREBAY_TEST_POOL_SURVIVED", "1")
        .env(
            "FOREBAY_FAILPOINT",
            "replay:step=3:12000ms,replay:step=12:die",
        );
    assert!(!command.output().unwrap().status.success());
    assert!(!fs::read(&paths[1]).unwrap().is_empty(), "cut too early");
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    for path in &paths {
        assert!(fs::read(path).unwrap() == acknowledged());
    }
}

/// The lane says that a recovery of it was cut an hour ago: when that began.
fn cut_an_hour_ago(lab: &Lab) -> SystemTime {
    let pool = PoolOptions::new().open(lab.pool()).unwrap();
    let owner = pool.lanes()[0].owner;
    let (lane, _) = pool.claim(owner, &ClaimOptions::new()).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let begun = now.as_secs() - 3600;
    let label = format!("replay: {begun:010}.00+{:010} lab 1", 500);
    lane.relabel(&label).unwrap();
    UNIX_EPOCH + Duration::from_secs(begun)
}

/// Promise (recovery): A recovery overwrites nothing that another program wrote between two
/// attempts, just before one or after a refused one, and keeps that file's time.
#[test]
fn writes_between_two_recoveries_are_not_taken_for_theirs() {
    for is_cut_again in [false, true] {
        let lab = Lab::new();
        let [a, b] = two_files(&lab);
        let then = modified(&a);
        thread::sleep(LATER);
        let begun = cut_an_hour_ago(&lab);
        set_modified(&a, begun + Duration::from_secs(2));
        fs::write(&b, "newer").unwrap();
        let written = modified(&b);
        if is_cut_again {
            assert!(lab.cut(None, 3));
            assert!(lab.label().starts_with("replay: "));
        }
        lab.recover_to("synced", None, &[]);
        assert_eq!(fs::read(&b).unwrap(), b"newer");
        assert_eq!(modified(&b), written);
        assert!(fs::read(&a).unwrap() == acknowledged());
        same_time(&a, then);
        assert_eq!(lab.lanes(), 0);
    }
}

/// Promise: as `writes_between_two_recoveries_are_not_taken_for_theirs`.
#[test]
fn writes_after_a_refused_recovery_are_not_taken_for_its_own() {
    let lab = Lab::new();
    let [a, b] = two_files(&lab);
    lab.power_cut();
    let then = modified(&a);
    let change = |how: &str| succeed(Command::new("chattr").arg(how).arg(&b));
    if let Err(e) = change("+i") {
        println!("skipped: no immutable files here: {e}");
        return;
    }
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    change("-i").unwrap();
    assert_eq!(reports[0]["outcome"], "refused", "{reports:?}");
    assert!(fs::read(&a).unwrap() == acknowledged());
    same_time(&a, then);
    thread::sleep(LATER);
    fs::write(&a, "newer").unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(why(&reports).contains("was changed"), "{reports:?}");
    assert_eq!(fs::read(&a).unwrap(), b"newer");
    assert_eq!(lab.lanes(), 1);
}

/// Promise: as `a_replay_that_is_cut_anywhere_is_repeated_and_ends_the_same`.
#[test]
fn a_recovery_after_two_cut_ones_knows_what_neither_finished() {
    let lab = Lab::new();
    let paths = two_files(&lab);
    let then = paths.each_ref().map(|path| modified(path));
    lab.power_cut();
    let pool = lab.home.path().join("pool.before");
    fs::copy(lab.pool(), &pool).unwrap();
    // Later than any slack: only the mark tells whose changes these are.
    thread::sleep(LATER);
    let boot = Some(OTHER_BOOT);
    let cuts = (1..20).flat_map(|first| [1, 2, 3, 4, 7].map(|second| (first, second)));
    for (first, second) in cuts {
        fs::copy(&pool, lab.pool()).unwrap();
        for (path, then) in paths.iter().zip(then) {
            fs::write(path, "").unwrap();
            set_modified(path, then);
        }
        if lab.cut(boot, first) && lab.cut(boot, second) {
            let reports = lab.recover(boot, &[]);
            assert_ne!(reports[0]["outcome"], "refused", "{reports:?}");
        }
        for (path, then) in paths.iter().zip(then) {
            let is_whole = fs::read(path).unwrap() == acknowledged();
            assert!(is_whole, "{first} {second}");
            same_time(path, then);
        }
        assert_eq!(lab.lanes(), 0);
    }
}
