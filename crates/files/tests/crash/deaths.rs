//! Deaths: of the database, its supervisor, both, the machine, the replay; every acknowledged write
//! is there, and changes by others are not touched.

use crate::{
    APPEND, LATER, OTHER_BOOT, RDWR,
    common::{Lab, content, holds},
};
use std::{fs, thread};

/// Promise (files): A recovery brings everything acknowledged into the files and nothing that was
/// never written, whether the database, the supervisor or both were killed.
#[test]
fn a_killed_databases_files_are_synced_and_its_lane_goes_back() {
    let lab = Lab::new();
    let mut run = lab.run();
    run.open("a", &lab.data("a.log"), APPEND);
    run.calls(["write a 1 3000", "sync a"]);
    run.kill_database();
    let status = run.end();
    assert_eq!(status["lane"]["left"], serde_json::Value::Null);
    assert_eq!(fs::read(lab.data("a.log")).unwrap(), content(1, 3000));
    assert_eq!(lab.lanes(), 0);
}

/// Promise (recovery): A file's contents count in the same boot, whoever wrote them and when, while
/// its mount stayed and no sync of it failed (from Linux 6.8 on).
#[test]
fn a_same_boot_recovery_after_both_were_killed_only_syncs() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.calls(["write a 1 3000", "sync a"]);
    run.kill_both();
    assert_eq!(lab.lanes(), 1);
    // Another process changes the file later: in the same boot that is the truth.
    thread::sleep(LATER);
    fs::write(&path, b"changed").unwrap();
    lab.recover_to("synced", None, &[]);
    assert_eq!(fs::read(&path).unwrap(), b"changed");
    assert_eq!(lab.lanes(), 0);
    assert!(lab.recover(None, &[]).is_empty());
}

/// Promise (files): A recovery after a power cut brings everything acknowledged into the files, if
/// the pool survives power cuts.
#[test]
fn after_a_power_cut_everything_acknowledged_is_replayed() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.calls(["write a 1 3000", "sync a"]);
    run.kill_both();
    lab.power_cut();
    assert_eq!(fs::read(&path).unwrap(), b"");
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    holds(&path, &[(1, 3000)]);
    assert_eq!(lab.lanes(), 0);
}

/// Promise (recovery): A recovery writes to no file that another process changed since, to no
/// missing file, and to no other file at the same path.
#[test]
fn a_file_that_was_changed_since_is_not_touched_without_force() {
    for (options, left) in [(&["--force"][..], "forced"), (&["--discard"], "changed")] {
        let lab = Lab::new();
        let mut run = lab.run();
        let (path, untouched) = (lab.data("a.log"), lab.data("b.log"));
        run.open("a", &path, APPEND);
        run.open("b", &untouched, APPEND);
        run.calls(["write a 1 3000", "write b 2 3000"]);
        run.kill_both();
        lab.power_cut();
        fs::write(&path, b"changed").unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(later)
            .unwrap();
        let reports = lab.recover_to("refused", Some(OTHER_BOOT), &[]);
        let reason = reports[0]["files"][0]["refused"].as_str().unwrap();
        assert!(
            reason.contains("was changed") && reason.contains("--force"),
            "{reason}"
        );
        // Nor is the other file of the lane: a lane is replayed as a whole.
        assert_eq!(fs::read(&path).unwrap(), b"changed");
        assert_eq!(fs::read(&untouched).unwrap(), b"");
        assert_eq!(lab.lanes(), 1);
        lab.recover(Some(OTHER_BOOT), options);
        let found = fs::read(&path).unwrap();
        match left {
            "forced" => assert_eq!(found, content(1, 3000)),
            _ => assert_eq!(found, b"changed"),
        }
        assert_eq!(lab.lanes(), 0);
    }
}

/// Promise: as `a_file_that_was_changed_since_is_not_touched_without_force`.
#[test]
fn a_missing_file_is_refused_unless_the_database_removed_it() {
    let lab = Lab::new();
    let mut run = lab.run();
    let (path, removed) = (lab.data("a.log"), lab.data("b.log"));
    run.open("a", &path, APPEND);
    run.open("b", &removed, APPEND);
    run.calls(["write a 1 300", "write b 2 300"]);
    run.call(format!("unlink {}", removed.display())).unwrap();
    run.kill_both();
    lab.power_cut();
    let aside = lab.data("aside");
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    // On another file system it is another file.
    fs::copy(&path, home.path().join("a.log")).unwrap();
    fs::rename(&path, &aside).unwrap();
    fs::remove_file(&aside).unwrap();
    let reports = lab.recover_to("refused", Some(OTHER_BOOT), &[]);
    let files = reports[0]["files"].as_array().unwrap();
    assert!(files[0]["refused"].as_str().unwrap().contains("missing"));
    assert_eq!(files[1]["refused"], serde_json::Value::Null);
    assert_eq!(lab.lanes(), 1);
    lab.recover(Some(OTHER_BOOT), &["--force"]);
    assert_eq!(lab.lanes(), 0);
}

/// Promise: as `a_file_that_was_changed_since_is_not_touched_without_force`.
#[test]
fn another_file_at_the_same_path_is_not_written_to() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.call("write a 1 300").unwrap();
    run.kill_both();
    lab.power_cut();
    fs::rename(&path, lab.data("moved")).unwrap();
    fs::write(&path, b"another").unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(fs::read(&path).unwrap(), b"another");
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert_eq!(fs::read(lab.data("moved")).unwrap(), content(1, 300));
}

/// Promise (recovery): A replay may be cut anywhere and repeated, also in the same boot, with the
/// power behind it, and however long it took.
#[test]
fn a_replay_that_is_cut_anywhere_is_repeated_and_ends_the_same() {
    let lab = Lab::new();
    let mut run = lab.run();
    let paths = [lab.data("a.log"), lab.data("b.log")];
    run.open("a", &paths[0], APPEND);
    run.open("b", &paths[1], RDWR);
    let mut expected = [Vec::new(), vec![0; 4000]];
    for i in 0..12u64 {
        run.call(format!("write a {i} 700")).unwrap();
        expected[0].extend(content(i, 700));
        run.call(format!("pwrite b {} {i} 1000", i * 250)).unwrap();
        let at = i as usize * 250;
        expected[1][at..at + 1000].copy_from_slice(&content(i, 1000));
    }
    expected[1].truncate(11 * 250 + 1000);
    run.kill_both();
    lab.power_cut();
    // Later than any slack: only the mark of the replay tells whose changes these are.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let pool = lab.home.path().join("pool.before");
    fs::copy(lab.pool(), &pool).unwrap();
    for first in 1.. {
        fs::copy(&pool, lab.pool()).unwrap();
        lab.power_cut();
        if !lab.cut(Some(OTHER_BOOT), first) {
            assert_eq!(lab.lanes(), 0);
            assert!(first > 24, "cut only {first} times");
            break;
        }
        assert_eq!(lab.lanes(), 1);
        lab.cut(Some(OTHER_BOOT), first * 7 % 11 + 1);
        let mut said = Vec::new();
        if lab.lanes() == 1 {
            said = lab.recover(Some(OTHER_BOOT), &[]);
        }
        for (path, expected) in paths.iter().zip(&expected) {
            let content = fs::read(path).unwrap();
            assert!(content == *expected, "cut at step {first}: {said:?}");
        }
        assert_eq!(lab.lanes(), 0);
    }
    fs::copy(&pool, lab.pool()).unwrap();
    lab.power_cut();
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    for (path, expected) in paths.iter().zip(expected) {
        assert!(fs::read(path).unwrap() == expected, "{}", path.display());
    }
    assert_eq!(lab.lanes(), 0);
}

/// Promise: as `a_killed_databases_files_are_synced_and_its_lane_goes_back`.
#[test]
fn a_database_goes_on_and_drains_itself_without_its_supervisor() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(APPEND);
    run.call("write a 0 5000").unwrap();
    run.kill_supervisor();
    let mut expected = content(0, 5000);
    for i in 1..100 {
        run.call(format!("write a {i} 5000")).unwrap();
        run.call("sync a").unwrap();
        expected.extend(content(i, 5000));
    }
    // New files are plain.
    assert_eq!(run.open("b", &lab.data("b.log"), APPEND), 0);
    run.kill_both();
    lab.recover(None, &[]);
    assert!(fs::read(&path).unwrap() == expected);
    assert_eq!(lab.lanes(), 0);
}
