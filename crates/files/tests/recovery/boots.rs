//! Boots: bytes that the page cache lost in this one are written from the pool; a pool of another
//! is written nowhere without force.

use crate::{
    APPEND, LATER, OTHER_BOOT,
    common::{Lab, content, disk::Disk, holds},
    modified, same_time, set_modified,
    times::numbers_mounts,
    why, written,
};
use forebay_pool::{ClaimOptions, PoolOptions};
use std::{
    fs,
    os::unix::fs::FileExt,
    path::PathBuf,
    thread,
    time::{Duration, SystemTime},
};

/// As a ring of the program's, a system call past the C library, or a process outside has written
/// it: the pool has nothing of that.
///
/// Promise (recovery): A recovery in the same boot writes no record over a file whose mount stayed
/// and whose syncs succeeded, and reports a file that differs.
/// Promise: as `a_same_boot_recovery_after_both_were_killed_only_syncs`.
#[test]
fn in_the_same_boot_a_file_is_right_whatever_its_pool_says() {
    for (medium, lab) in [("memory", Lab::new as fn() -> Lab), ("disk", Lab::on_disk)] {
        for how in ["over", "cut", "zeros", "empty", "longer", "set back"] {
            let lab = lab();
            let run = written(&lab);
            let path = lab.data("a.log");
            if !numbers_mounts(&path) {
                println!("skipped: the kernel numbers no mounts");
                return;
            }
            run.kill_both();
            let file = fs::File::options().write(true).open(&path).unwrap();
            match how {
                "over" => file.write_all_at(&content(2, 100), 1000).unwrap(),
                "cut" => file.set_len(2000).unwrap(),
                "zeros" => file.write_all_at(&[0; 100], 1000).unwrap(),
                "empty" => file.set_len(0).unwrap(),
                "longer" => file.write_all_at(&content(2, 3000), 1).unwrap(),
                _ => {
                    file.write_all_at(&content(2, 100), 1000).unwrap();
                    let day = Duration::from_secs(86_400);
                    file.set_modified(SystemTime::now() - day).unwrap();
                }
            }
            drop(file);
            let (expected, then) = (fs::read(&path).unwrap(), modified(&path));
            let reports = lab.recover(None, &[]);
            assert_eq!(
                reports[0]["outcome"], "synced",
                "{medium} {how}: {reports:?}"
            );
            assert!(fs::read(&path).unwrap() == expected, "{medium} {how}");
            assert_eq!(modified(&path), then, "{medium} {how}");
            assert_eq!(lab.lanes(), 0);
            let told = &reports[0]["files"][0];
            assert_eq!(told["is_kept"], true, "{medium} {how}: {told}");
            let note = told["note"].as_str().unwrap();
            assert!(note.contains("on its mount all the time"), "{note}");
            assert_eq!(
                note.contains("bytes, and they reach to 3000"),
                expected.len() < 3000
            );
        }
    }
}

/// The kernel told a supervisor that it had lost something, which was killed in that sync, and has
/// evicted the pages: nothing but the lane says so.
#[test]
fn bytes_of_a_sync_that_was_cut_are_written_from_the_pool() {
    for (lost, outcome) in [
        ("zeros", "replayed"),
        ("short", "replayed"),
        ("other", "synced"),
    ] {
        let lab = Lab::new();
        written(&lab).kill_both();
        let path = lab.data("a.log");
        if !numbers_mounts(&path) {
            return;
        }
        let pool = PoolOptions::new().open(lab.pool()).unwrap();
        let owner = pool.lanes()[0].owner;
        let (lane, _) = pool.claim(owner, &ClaimOptions::new()).unwrap();
        lane.relabel("files:  0000000001 lab 1").unwrap();
        drop((lane, pool));
        let then = modified(&path);
        let file = fs::File::options().write(true).open(&path).unwrap();
        match lost {
            "zeros" => file.write_all_at(&[0; 1000], 2000).unwrap(),
            "short" => file.set_len(1000).unwrap(),
            _ => file.write_all_at(&content(2, 1000), 2000).unwrap(),
        }
        drop(file);
        set_modified(&path, then);
        let found = fs::read(&path).unwrap();
        let reports = lab.recover(None, &[]);
        assert_eq!(reports[0]["outcome"], outcome, "{lost}: {reports:?}");
        let expected = match lost {
            "other" => found,
            _ => content(1, 3000),
        };
        assert!(fs::read(&path).unwrap() == expected, "{lost}");
        assert_eq!(lab.lanes(), 0);
    }
}

/// The kernel says once of what it could not write back that it was lost, to the first that asks:
/// here that is the recovery.
///
/// Promise: as `in_the_same_boot_a_file_is_right_whatever_its_pool_says`.
#[test]
fn a_file_that_differs_and_cannot_be_synced_keeps_its_lane() {
    let lab = Lab::new();
    written(&lab).kill_both();
    let path = lab.data("a.log");
    fs::write(&path, b"lost").unwrap();
    lab.inject(libc::EIO, 1);
    let reports = lab.recover_with(None, &[], |command| {
        command.env("FOREBAY_TEST_FAULTS", lab.faults());
    });
    assert!(why(&reports).contains("cannot be synced"), "{reports:?}");
    // A second sync succeeds, and says nothing.
    let reports = lab.recover(None, &[]);
    assert!(why(&reports).contains("a sync of"), "{reports:?}");
    assert_eq!(lab.lanes(), 1);
    lab.recover_to("replayed", None, &["--force"]);
    assert!(fs::read(&path).unwrap().starts_with(&content(1, 3000)));
}

/// A run on a file system of its own that was killed, and its log; none where there can be no such
/// disk.
fn killed_on_a_disk(make: &[&str], megabytes: u64) -> Option<(Lab, Disk, PathBuf)> {
    let lab = Lab::new();
    let disk = Disk::mount(&lab, make, megabytes)?;
    written(&lab).kill_both();
    let path = lab.data("a.log");
    Some((lab, disk, path))
}

fn survives_a_shutdown_of(make: &[&str], megabytes: u64) {
    let Some((lab, disk, path)) = killed_on_a_disk(make, megabytes) else {
        return;
    };
    let then = modified(&path);
    disk.shut_down();
    if !disk.mount_again() {
        return;
    }
    assert!(
        fs::read(&path).unwrap() != content(1, 3000),
        "nothing was lost: the test proves nothing"
    );
    lab.recover_to("replayed", None, &[]);
    holds(&path, &[(1, 3000)]);
    same_time(&path, then);
    assert_eq!(lab.lanes(), 0);

    // Mounted anew and written to by others: the page cache is no witness any more.
    let run = written(&lab);
    run.kill_both();
    disk.shut_down();
    if !disk.mount_again() {
        return;
    }
    thread::sleep(LATER);
    fs::write(&path, b"changed").unwrap();
    let reports = lab.recover(None, &[]);
    assert!(why(&reports).contains("was changed"), "{reports:?}");
    assert_eq!(fs::read(&path).unwrap(), b"changed");
    assert_eq!(lab.lanes(), 1);
}

/// Promise (recovery): A recovery writes a file from the pool, on ext4 and XFS, if its file system
/// was shut down and mounted again, or its device came back, in the same boot.
#[test]
fn a_file_system_that_was_shut_down_gets_all_when_mounted_again() {
    survives_a_shutdown_of(&["mkfs.ext4", "-q"], 64);
}

/// Promise: as `a_file_system_that_was_shut_down_gets_all_when_mounted_again`.
#[test]
fn an_xfs_that_was_shut_down_gets_all_when_mounted_again() {
    survives_a_shutdown_of(&["mkfs.xfs", "-q", "-f"], 320);
}

/// Promise (recovery): A file whose file system keeps times in whole seconds stays plain: a
/// recovery could not tell another process's change in the second of the last record.
#[test]
fn a_file_whose_times_are_whole_seconds_stays_plain() {
    let lab = Lab::new();
    let make = ["mkfs.ext4", "-q", "-I", "128"];
    let Some(disk) = Disk::mount(&lab, &make, 64) else {
        return;
    };
    let mut run = lab.run();
    let path = lab.data("a.log");
    assert_eq!(run.open("a", &path, APPEND), 0);
    run.calls(["write a 1 3000", "sync a"]);
    run.kill_both();
    disk.shut_down();
    if disk.mount_again() {
        // It was really synced.
        holds(&path, &[(1, 3000)]);
        lab.recover(None, &[]);
        assert_eq!(lab.lanes(), 0);
    }
}

/// Its files can neither be opened nor looked for, and a sync of the whole may be said to have
/// succeeded.
fn keeps_its_lane_while_it_is_shut_down(make: &[&str], megabytes: u64) {
    for is_renamed in [false, true] {
        let Some((lab, disk, path)) = killed_on_a_disk(make, megabytes) else {
            return;
        };
        if is_renamed {
            // Farther away than a recovery without its handle looks.
            let far = disk.at.join("1/2/3/4/5");
            fs::create_dir_all(&far).unwrap();
            fs::rename(&path, far.join("b")).unwrap();
        }
        disk.shut_down();
        lab.recover_to("refused", None, &[]);
        assert_eq!(lab.lanes(), 1);
        if is_renamed || !disk.mount_again() {
            continue;
        }
        lab.recover_to("replayed", None, &[]);
        holds(&path, &[(1, 3000)]);
        assert_eq!(lab.lanes(), 0);
    }
}

/// Promise (recovery): A recovery keeps the records for a file system that was shut down until that
/// is mounted again, though the kernel may report a sync of everything.
#[test]
fn a_file_system_shut_down_and_still_mounted_keeps_its_lane() {
    keeps_its_lane_while_it_is_shut_down(&["mkfs.ext4", "-q"], 64);
    keeps_its_lane_while_it_is_shut_down(&["mkfs.xfs", "-q", "-f"], 320);
}

/// Promise (recovery): A run and a recovery refuse an emulated pool of another boot, write none of
/// its records anywhere, and name the remedy.
#[test]
fn another_boots_emulated_pool_is_written_nowhere_unless_forced() {
    for options in [&["--discard"][..], &["--force"]] {
        let lab = Lab::new();
        let run = written(&lab);
        run.kill_both();
        lab.power_cut();
        // The disk has newer bytes than the pool, and their time lies before the pool's last
        // record.
        let path = lab.data("a.log");
        let then = modified(&path);
        fs::write(&path, b"newer").unwrap();
        set_modified(&path, then);
        let reports = lab.recover_really(OTHER_BOOT, &[]).unwrap();
        let why = why(&reports);
        assert!(why.contains("emulated"), "{why}");
        assert!(
            why.contains("--discard") && why.contains("--force"),
            "{why}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(lab.lanes(), 1);
        let reports = lab.recover_really(OTHER_BOOT, options).unwrap();
        if options[0] == "--force" {
            assert_eq!(reports[0]["outcome"], "replayed");
            assert!(fs::read(&path).unwrap().starts_with(&content(1, 3000)));
        } else {
            assert_eq!(reports[0]["outcome"], "discarded");
            assert_eq!(fs::read(&path).unwrap(), b"newer");
        }
        assert_eq!(lab.lanes(), 0);
    }
    // Where the files hold what it says, nothing is lost with it.
    let lab = Lab::new();
    written(&lab).kill_both();
    let reports = lab.recover_really(OTHER_BOOT, &[]).unwrap();
    assert_eq!(reports[0]["outcome"], "synced");
    assert_eq!(lab.lanes(), 0);
}
