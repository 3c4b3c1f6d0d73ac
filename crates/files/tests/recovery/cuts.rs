//! A recovery that is cut, in the same boot or with the power, or that took long, knows its own changes when it is repeated.

use crate::{
    APPEND, LATER, OTHER_BOOT, RDWR,
    common::{Lab, content},
    modified, same_time, set_modified,
};
use std::{fs, thread};

#[test]
fn a_recovery_in_the_same_boot_may_be_cut_anywhere_and_the_power_with_it() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, RDWR);
    for i in 0..4u64 {
        run.call(format!("pwrite a {} {i} 500", i * 400)).unwrap();
    }
    run.kill_both();
    let then = modified(&path);
    let expected = fs::read(&path).unwrap();
    let pool = lab.home.path().join("pool.before");
    fs::copy(lab.pool(), &pool).unwrap();
    // Later than any slack: only the mark tells whose changes these are.
    thread::sleep(LATER);
    for (boot, steps) in (0..2).flat_map(|boot| (1..30).map(move |steps| (boot, steps))) {
        fs::copy(&pool, lab.pool()).unwrap();
        fs::write(&path, &expected).unwrap();
        set_modified(&path, then);
        let is_cut = lab.cut(None, steps);
        if boot == 1 {
            // Its time is on the disk, its content is not.
            lab.power_cut();
        }
        if is_cut {
            let boot = (boot == 1).then_some(OTHER_BOOT);
            let reports = lab.recover(boot, &[]);
            assert_ne!(reports[0]["outcome"], "refused", "{steps}: {reports:?}");
            assert!(fs::read(&path).unwrap() == expected, "{steps}");
        }
        assert_eq!(lab.lanes(), 0);
        same_time(&path, then);
        if !is_cut {
            assert!(steps > 5, "only {steps} steps");
            break;
        }
    }
}

#[test]
fn a_replay_that_took_long_and_was_cut_knows_its_own_changes() {
    let lab = Lab::new();
    let mut run = lab.run();
    let paths = [lab.data("a.log"), lab.data("b.log")];
    for (name, path) in ["a", "b"].iter().zip(&paths) {
        run.open(name, path, APPEND);
        for i in 0..4 {
            run.call(format!("write {name} {i} 700")).unwrap();
        }
    }
    run.kill_both();
    lab.power_cut();
    thread::sleep(LATER);
    // It hangs for so long in the first file, and is cut in the second.
    let mut command = lab.recover_command(&[]);
    command
        .env("FOREBAY_TEST_BOOT_ID", OTHER_BOOT)
        .env("FOREBAY_TEST_POOL_SURVIVED", "1")
        .env("FOREBAY_TEST_CUT_REPLAY", "3:12000,12");
    assert!(!command.output().unwrap().status.success());
    assert!(!fs::read(&paths[1]).unwrap().is_empty(), "cut too early");
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    let expected: Vec<u8> = (0..4).flat_map(|i| content(i, 700)).collect();
    for path in &paths {
        assert!(fs::read(path).unwrap() == expected);
    }
}
