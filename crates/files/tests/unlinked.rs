//! A file that lost its last name: after a power cut it may have it again, until the directory that
//! had it is synced. Which one that was the supervisor learns by a path, and later; and who brings
//! the lane to its files instead of it does not know.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Lab, Running, content, disk::Disk};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;

/// A run in which `d/a.log` was acknowledged, closed and unlinked, and the directory `d` changed
/// before its supervisor heard of that: the laboratory, and the file.
fn unlinked_before(change: impl FnOnce(&Path)) -> (Lab, PathBuf) {
    let lab = Lab::new();
    let (directory, path) = (lab.data("d"), lab.data("d/a.log"));
    fs::create_dir(&directory).unwrap();
    let mut run = lab.run();
    assert_eq!(run.open("a", &path, RDWR), 1);
    for call in ["write a 1 3000", "sync a", "close a"] {
        run.call(call).unwrap();
    }
    assert_eq!(
        fs::read(lab.synced(&path)).unwrap(),
        b"",
        "only in the lane"
    );
    run.stop_supervisor();
    run.call(format!("unlink {}", path.display())).unwrap();
    change(&directory);
    kill_process(Pid::from_child(&run.supervisor), Signal::CONT).unwrap();
    run.end();
    assert_eq!(lab.lanes(), 0);
    (lab, path)
}

/// Promise (files): The acknowledged bytes of a file that lost its last name are there if a power
/// cut gives it the name again, whatever became of its directory meanwhile.
#[test]
fn a_file_unlinked_in_a_directory_that_is_gone_is_synced_itself() {
    let (lab, path) = unlinked_before(|directory| fs::remove_dir(directory).unwrap());
    assert!(fs::read(lab.synced(&path)).unwrap() == content(1, 3000));
}

/// Promise: as `a_file_unlinked_in_a_directory_that_is_gone_is_synced_itself`.
#[test]
fn a_file_unlinked_in_a_directory_that_moved_is_synced_itself() {
    let (lab, path) = unlinked_before(|directory| {
        fs::rename(directory, directory.with_file_name("moved")).unwrap();
        fs::create_dir(directory).unwrap();
    });
    assert!(fs::read(lab.synced(&path)).unwrap() == content(1, 3000));
}

/// Promise: as `a_file_unlinked_in_a_directory_that_is_gone_is_synced_itself`.
#[test]
fn an_unlinked_files_directory_is_synced_instead_of_the_file() {
    let (lab, path) = unlinked_before(|_| {});
    assert_eq!(fs::read(lab.synced(&path)).unwrap(), b"");
}

/// How a file loses its last name, and whether its supervisor hears of that.
const LOST: [(Lost, bool); 3] = [
    (Lost::InTheRun, true),
    (Lost::InTheRun, false),
    (Lost::Outside, false),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    InTheRun,
    /// By a process that is not of the run.
    Outside,
}

/// A run of two logs on a file system that commits nothing by itself: what was acknowledged of
/// `d/a.log` is in the lane only, and the file, and the directory `d`, are gone. None where there
/// is no such file system.
fn gone_with_its_directory((lost, is_heard): (Lost, bool)) -> Option<(Lab, Disk, Running)> {
    let lab = Lab::new();
    let disk = Disk::mount(&lab, &["mkfs.ext4", "-q"], 64)?;
    let (directory, path) = (lab.data("d"), lab.data("d/a.log"));
    fs::create_dir(&directory).unwrap();
    let mut run = lab.run();
    for (handle, path) in [("a", &path), ("b", &lab.data("b.log"))] {
        assert_eq!(run.open(handle, path, RDWR), 1);
    }
    disk.commit_by_itself_no_more();
    if !is_heard {
        run.stop_supervisor();
    }
    for call in ["write a 1 3000", "sync a", "close a"] {
        run.call(call).unwrap();
    }
    match lost {
        Lost::InTheRun => {
            run.call(format!("unlink {}", path.display())).unwrap();
        }
        Lost::Outside => fs::remove_file(&path).unwrap(),
    }
    if is_heard {
        wait_until_released(&run);
    }
    fs::remove_dir(&directory).unwrap();
    Some((lab, disk, run))
}

/// Returns when the supervisor has the file no longer.
fn wait_until_released(run: &Running) {
    let open = format!("/proc/{}/fd", run.supervisor.id());
    let is_there = || {
        let open = fs::read_dir(&open).unwrap();
        let mut links = open.filter_map(|open| fs::read_link(open.ok()?.path()).ok());
        links.any(|link| link.to_string_lossy().contains("a.log"))
    };
    let begun = Instant::now();
    while is_there() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(1));
    }
}

/// The power fails: if the file has its name again, it has what was acknowledged.
fn check_gone_or_whole(lab: &Lab, disk: &Disk) {
    disk.shut_down();
    if disk.mount_again() {
        lab.recover(None, &[]);
        assert_eq!(lab.lanes(), 0);
        let found = fs::read(lab.data("d/a.log")).ok();
        assert!(found.is_none_or(|found| found == content(1, 3000)));
    }
}

/// Promise (files): The bytes of a file without a name are kept whether the supervisor drains the
/// lane, a member settles it, or a recovery finds the file gone.
#[test]
fn a_settling_member_makes_a_files_loss_of_its_name_durable() {
    for how in LOST {
        let Some((lab, disk, mut run)) = gone_with_its_directory(how) else {
            return;
        };
        run.kill_supervisor();
        run.call("write b 1 10").unwrap();
        assert!(
            lab.label().starts_with("files:"),
            "{how:?}: {}",
            lab.label()
        );
        run.kill_both();
        check_gone_or_whole(&lab, &disk);
    }
}

/// Promise: as `a_settling_member_makes_a_files_loss_of_its_name_durable`.
#[test]
fn a_recovery_makes_the_loss_of_a_file_and_directory_durable() {
    for how in LOST.into_iter().filter(|(lost, _)| *lost == Lost::InTheRun) {
        let Some((lab, disk, run)) = gone_with_its_directory(how) else {
            return;
        };
        run.kill_both();
        lab.recover_to("synced", None, &[]);
        check_gone_or_whole(&lab, &disk);
    }
}
