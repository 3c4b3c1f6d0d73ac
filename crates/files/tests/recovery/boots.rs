//! Which boot it was: what the page cache lost in this one is written from the pool; a pool of another is written nowhere without force.

use crate::{
    APPEND, LATER, OTHER_BOOT,
    common::{Lab, content, disk::Disk},
    modified, same_time, set_modified, why, written,
};
use std::{fs, thread};

#[test]
fn what_the_page_cache_lost_in_the_same_boot_is_written_from_the_pool() {
    let lab = Lab::new();
    let run = written(&lab);
    run.kill_both();
    let path = lab.data("a.log");
    let then = modified(&path);
    lab.power_cut();
    let reports = lab.recover(None, &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert!(fs::read(&path).unwrap() == content(1, 3000));
    same_time(&path, then);
    assert_eq!(lab.lanes(), 0);
}

fn survives_a_shutdown_of(make: &[&str], megabytes: u64) {
    let lab = Lab::new();
    let Some(disk) = Disk::mount(&lab, make, megabytes) else {
        return;
    };
    let run = written(&lab);
    run.kill_both();
    let path = lab.data("a.log");
    let then = modified(&path);
    disk.shut_down();
    if !disk.mount_again() {
        return;
    }
    assert!(
        fs::read(&path).unwrap() != content(1, 3000),
        "nothing was lost: the test proves nothing"
    );
    let reports = lab.recover(None, &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert!(fs::read(&path).unwrap() == content(1, 3000));
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

#[test]
fn a_file_system_that_was_shut_down_and_mounted_again_gets_what_was_acknowledged() {
    survives_a_shutdown_of(&["mkfs.ext4", "-q"], 64);
}

#[test]
fn an_xfs_that_was_shut_down_and_mounted_again_gets_what_was_acknowledged() {
    survives_a_shutdown_of(&["mkfs.xfs", "-q", "-f"], 320);
}

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
    run.call("write a 1 3000").unwrap();
    run.call("sync a").unwrap();
    run.kill_both();
    disk.shut_down();
    if disk.mount_again() {
        // It was really synced.
        assert!(fs::read(&path).unwrap() == content(1, 3000));
        lab.recover(None, &[]);
        assert_eq!(lab.lanes(), 0);
    }
}

/// Its files can neither be opened nor looked for, and a sync of the whole may be said to have succeeded.
fn keeps_its_lane_while_it_is_shut_down(make: &[&str], megabytes: u64) {
    for is_renamed in [false, true] {
        let lab = Lab::new();
        let Some(disk) = Disk::mount(&lab, make, megabytes) else {
            return;
        };
        let run = written(&lab);
        run.kill_both();
        let path = lab.data("a.log");
        if is_renamed {
            // Farther away than a recovery without its handle looks.
            let far = disk.at.join("1/2/3/4/5");
            fs::create_dir_all(&far).unwrap();
            fs::rename(&path, far.join("b")).unwrap();
        }
        disk.shut_down();
        let reports = lab.recover(None, &[]);
        assert_eq!(reports[0]["outcome"], "refused", "{reports:?}");
        assert_eq!(lab.lanes(), 1);
        if is_renamed || !disk.mount_again() {
            continue;
        }
        let reports = lab.recover(None, &[]);
        assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
        assert!(fs::read(&path).unwrap() == content(1, 3000));
        assert_eq!(lab.lanes(), 0);
    }
}

#[test]
fn a_file_system_that_is_shut_down_and_still_mounted_keeps_its_lane() {
    keeps_its_lane_while_it_is_shut_down(&["mkfs.ext4", "-q"], 64);
    keeps_its_lane_while_it_is_shut_down(&["mkfs.xfs", "-q", "-f"], 320);
}

#[test]
fn an_emulated_pool_of_another_boot_is_written_nowhere_without_force() {
    for options in [&["--discard"][..], &["--force"]] {
        let lab = Lab::new();
        let run = written(&lab);
        run.kill_both();
        lab.power_cut();
        // The disk has newer bytes than the pool, and their time lies before the pool's last record.
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
