//! Syncs that fail: no acknowledged byte is lost, a refused write has changed nothing, and nothing
//! older is written over what is newer.

use crate::{
    APPEND, LATER, OTHER_BOOT, RDWR,
    common::{Lab, Running, content, eventually, holds},
};
use std::{fs, path::Path, thread, time::Duration};

/// Promise (disks): A program's `fsync` fails as long as the sync behind it does.
/// Promise: as `what_is_acknowledged_while_syncs_fail_survives_a_power_cut`.
/// Promise: as `older_records_overwrite_nothing_the_pool_had_no_room_for`.
#[test]
fn a_failed_sync_costs_no_byte_and_all_goes_on_once_it_succeeds() {
    let begin: [fn(&Lab) -> Running; 2] = [Lab::run, Lab::run_unheard];
    for (errno, begin) in [libc::EIO, libc::ENOSPC].into_iter().zip(begin) {
        let lab = Lab::new();
        let mut run = begin(&lab);
        let path = lab.data("a.log");
        run.open("a", &path, APPEND);
        run.open("b", &lab.data("b.log"), APPEND);
        lab.inject(errno, 1);
        let mut expected = Vec::new();
        for i in 0..100 {
            run.call(format!("write a {i} 5000")).unwrap();
            run.call("write b 1 10").unwrap();
            expected.extend(content(i, 5000));
            assert_eq!(run.call("sync a"), Ok(0));
        }
        run.end();
        assert!(fs::read(&path).unwrap() == expected);
        assert_eq!(lab.lanes(), 0);
    }
}

/// Promise (disks): A write that is refused because syncs fail has changed nothing.
#[test]
fn a_write_refused_because_syncs_fail_has_changed_nothing() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    lab.inject(libc::EIO, u64::MAX);
    let mut expected = Vec::new();
    let mut refused = 0;
    for i in 0.. {
        assert!(
            i < 2000,
            "more than the pool holds, and only {refused} refused"
        );
        match run.call(format!("write a {i} 5000")) {
            Ok(_) => expected.extend(content(i, 5000)),
            Err(errno) => {
                assert_eq!(errno, libc::EIO);
                refused += 1;
            }
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), expected.len() as u64);
        if refused == 3 {
            break;
        }
    }
    lab.inject(libc::EIO, 0);
    run.call("write a 1 5000").unwrap();
    expected.extend(content(1, 5000));
    assert_eq!(run.call("sync a"), Ok(0));
    assert!(fs::read(&path).unwrap() == expected);
    run.kill_both();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert!(fs::read(&path).unwrap() == expected);
}

/// Promise: as `a_write_refused_because_syncs_fail_has_changed_nothing`.
#[test]
fn a_write_with_more_records_than_room_is_not_half_refused() {
    let lab = Lab::new();
    let mut run = lab.run();
    let path = lab.data("b.log");
    run.open("a", &lab.data("a.log"), APPEND);
    run.open("b", &path, APPEND);
    lab.inject(libc::EIO, u64::MAX);
    while !lab.label().starts_with("failed:") {
        run.call("write a 1 5000").unwrap();
    }
    let mut expected: Vec<u8> = Vec::new();
    for i in 0.. {
        assert!(i < 100, "more than the pool holds");
        // More than two segments: the lane has room for its beginning at last.
        match run.call(format!("write b {i} 150000")) {
            Ok(bytes) => expected.extend(&content(i, 150_000)[..bytes]),
            Err(errno) => {
                assert_eq!(errno, libc::EIO);
                break;
            }
        }
    }
    assert!(fs::read(&path).unwrap() == expected);
    run.call("sync b").unwrap_err();
    lab.inject(libc::EIO, 0);
    // Once the other file is sound.
    assert!(eventually(|| run.call("sync b") == Ok(0)));
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert!(fs::read(&path).unwrap() == expected);
    assert_eq!(lab.lanes(), 0);
}

/// Promise (disks): A sync that fails behind the database costs no acknowledged byte, also where no
/// process hears the supervisor.
#[test]
fn what_is_acknowledged_while_syncs_fail_survives_a_power_cut() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    let mut expected = Vec::new();
    lab.inject(libc::EIO, 1);
    for i in 0..30 {
        run.call(format!("write a {i} 5000")).unwrap();
        if run.call("sync a").is_ok() {
            expected.extend(content(i, 5000));
        }
    }
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert!(fs::read(&path).unwrap() == expected);
}

/// Promise (disks): A write that finds no room in the pool because a file cannot be synced waits
/// until that file is written again and synced.
#[test]
fn older_records_overwrite_nothing_the_pool_had_no_room_for() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(RDWR);
    let mut expected = Vec::new();
    let write = |file: &mut Vec<u8>, run: &mut Running, at: usize, seed: u64| {
        // Refused while the lane is full of what cannot be synced.
        let begun = std::time::Instant::now();
        while let Err(errno) = run.call(format!("pwrite a {at} {seed} 5000")) {
            assert_eq!(errno, libc::EIO);
            assert!(begun.elapsed().as_secs() < 20, "it is not synced again");
        }
        file.resize(file.len().max(at + 5000), 0);
        file[at..at + 5000].copy_from_slice(&content(seed, 5000));
    };
    lab.inject(libc::EIO, 1);
    // The lane holds about 25 of them.
    for i in 0..40 {
        write(&mut expected, &mut run, 3000 * (i as usize % 5), i);
    }
    run.call("truncate a 9000").unwrap();
    expected.truncate(9000);
    write(&mut expected, &mut run, 8000, 99);
    assert_eq!(run.call("sync a"), Ok(0));
    assert!(fs::read(&path).unwrap() == expected);
    // From here on everything is logged again.
    write(&mut expected, &mut run, 1000, 100);
    assert_eq!(run.call("sync a"), Ok(0));
    run.kill_both();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert!(fs::read(&path).unwrap() == expected);
}

/// Promise (disks): Neither a run nor a recovery takes a file for durable because a later sync
/// succeeds, once a sync of it failed.
#[test]
fn a_same_boot_recovery_after_a_failed_sync_rewrites_or_refuses() {
    let full = |lab: &Lab| {
        let mut run = lab.run();
        run.open("a", &lab.data("a.log"), APPEND);
        lab.inject(libc::EIO, u64::MAX);
        let mut acknowledged = Vec::new();
        for i in 0..20 {
            run.call(format!("write a {i} 5000")).unwrap();
            acknowledged.extend(content(i, 5000));
        }
        while !lab.label().starts_with("failed:") {
            thread::sleep(Duration::from_millis(1));
        }
        (run, acknowledged)
    };
    // The database dies.
    let lab = Lab::new();
    let (mut run, acknowledged) = full(&lab);
    lab.inject(libc::EIO, 0);
    run.kill_database();
    assert_eq!(run.end()["lane"]["left"], serde_json::Value::Null);
    assert!(fs::read(lab.data("a.log")).unwrap() == acknowledged);
    assert_eq!(lab.lanes(), 0);

    // Both die, and a reader has the file open.
    let lab = Lab::new();
    let (run, acknowledged) = full(&lab);
    run.kill_both();
    let path = lab.data("a.log");
    let reader = fs::File::open(&path).unwrap();
    for _ in 0..2 {
        let reports = lab.recover_to("refused", None, &[]);
        let why = reports[0]["files"][0]["refused"].as_str().unwrap();
        assert!(why.contains("open") && why.contains("--force"), "{why}");
    }
    drop(reader);
    // A process that another test is about to start has the reader until it becomes another
    // program.
    let mut again = (0..100).map(|_| {
        let outcome = lab.recover(None, &[])[0]["outcome"].clone();
        (outcome != "refused").then_some(outcome)
    });
    assert_eq!(again.find_map(|outcome| outcome).unwrap(), "synced");
    assert!(fs::read(&path).unwrap() == acknowledged);
    assert_eq!(lab.lanes(), 0);

    // Both die, and the file is something else.
    let lab = Lab::new();
    let (run, acknowledged) = full(&lab);
    run.kill_both();
    let path = lab.data("a.log");
    fs::write(&path, b"changed").unwrap();
    lab.recover_to("refused", None, &[]);
    assert_eq!(fs::read(&path).unwrap(), b"changed");
    assert_eq!(lab.lanes(), 1);
    assert_eq!(lab.recover(None, &["--force"])[0]["outcome"], "replayed");
    assert!(fs::read(&path).unwrap() == acknowledged);
    assert_eq!(lab.lanes(), 0);
}

/// Promise (disks): Bytes that are written again after a failed sync do not overwrite the newer
/// bytes of a signal handler.
#[test]
fn rewriting_after_a_failed_sync_spares_a_signal_handlers_bytes() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(RDWR);
    run.call("pwrite a 0 1 300").unwrap();
    assert_eq!(run.call("sync a"), Ok(0));
    lab.inject(libc::EIO, 1);
    run.call("interrupting pwrite a 0 2 300").unwrap();
    // What the disk has of it is not known, neither now nor later.
    for _ in 0..2 {
        assert_eq!(run.call("sync a"), Err(libc::EIO));
        holds(&path, &[(2, 300)]);
    }
    run.end_with_something_left();
    holds(&path, &[(2, 300)]);
    assert_eq!(lab.lanes(), 1);
    assert_eq!(lab.recover(None, &[])[0]["outcome"], "refused");
    holds(&path, &[(2, 300)]);
}

/// A run with one file whose syncs fail from now on, and what the file held when one had succeeded
/// last.
fn failing(lab: &Lab) -> (Running, Vec<u8>) {
    let (mut run, _) = lab.run_with_log(RDWR);
    run.call("pwrite a 0 1 5000").unwrap();
    let synced = content(1, 5000);
    // Those of the drain, and those by which it tries again.
    lab.inject(libc::EIO, u64::MAX);
    for i in 1..20 {
        run.call(format!("pwrite a {} {i} 5000", 5000 * i)).unwrap();
    }
    while !lab.label().starts_with("failed:") {
        thread::sleep(Duration::from_millis(1));
    }
    (run, synced)
}

/// The power fails: the file has the time that it has, and what was synced.
fn put_back(path: &Path, synced: &[u8]) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    fs::write(path, synced).unwrap();
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(modified).unwrap();
}

/// Promise (disks): A file that is written again after a failed sync keeps its modification time,
/// so that a power cut leaves nothing to decide.
#[test]
fn a_rewritten_file_is_not_taken_for_changed_after_a_power_cut() {
    if !rustix::process::geteuid().is_root() {
        // Then it may be another process's.
        return;
    }
    let lab = Lab::new();
    let path = lab.data("a.log");
    let (mut run, synced) = failing(&lab);
    let expected = fs::read(&path).unwrap();
    // Longer than what a replay takes for the time of the last record.
    thread::sleep(LATER);
    assert_eq!(run.call("sync a"), Err(libc::EIO));
    run.kill_both();
    assert!(fs::read(&path).unwrap() == expected);
    put_back(&path, &synced);
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    assert!(fs::read(&path).unwrap() == expected);
}

/// Promise: as `a_rewritten_file_is_not_taken_for_changed_after_a_power_cut`.
#[test]
fn orphans_rewriting_is_no_other_processs_change() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let (mut run, synced) = failing(&lab);
    let expected = fs::read(&path).unwrap();
    run.kill_supervisor();
    thread::sleep(LATER);
    assert_eq!(run.call("sync a"), Err(libc::EIO));
    run.kill_database();
    put_back(&path, &synced);
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    assert!(fs::read(&path).unwrap() == expected);
}

/// Promise (disks): In the same boot after a failed sync, a recovery writes the records that the
/// file lacks if it has zeros, or nothing, in their place.
#[test]
fn pages_dropped_by_a_failed_sync_return_in_the_same_boot() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let (run, synced) = failing(&lab);
    let expected = fs::read(&path).unwrap();
    run.kill_both();
    put_back(&path, &synced);
    lab.recover_to("replayed", None, &[]);
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn a_rename_refused_for_one_file_keeps_the_names_of_the_others() {
    for (other, call) in [
        ("d/b.log", "rename @/d @/e"),
        ("f/b.log", "exchange @/d @/f"),
    ] {
        let lab = Lab::new();
        for directory in ["d", "f"] {
            fs::create_dir(lab.data(directory)).unwrap();
        }
        let mut run = lab.run();
        let path = lab.data("d/a.log");
        for (name, path) in [("a", &path), ("b", &lab.data(other))] {
            assert_eq!(run.open(name, path, RDWR), 1);
            run.call(format!("write {name} 1 3000")).unwrap();
        }
        lab.inject(libc::EIO, u64::MAX);
        // It is to be plain, and cannot be synced.
        run.call("interrupting pwrite b 0 2 10").unwrap();
        let data = lab.home.path().join("data");
        let done = run.call(call.replace('@', data.to_str().unwrap()));
        assert_eq!(done, Err(libc::EIO), "{call}");
        run.kill_both();
        let reports = lab.recover(Some(OTHER_BOOT), &[]);
        let files = reports[0]["files"].as_array().unwrap();
        let name = path.to_str().unwrap();
        assert!(files.iter().any(|file| file["path"] == name), "{reports:?}");
    }
}
