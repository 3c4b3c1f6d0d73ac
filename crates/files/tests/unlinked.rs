//! A file that lost its last name: after a power cut it may have it again, until the directory that had it is synced. Which one that was the supervisor learns by a path,
//! and later.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Lab, content};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::{Path, PathBuf},
};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;

/// A run in which `d/a.log` was acknowledged, closed and unlinked, and the directory `d` changed before its supervisor heard of that: the laboratory, and the file.
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

#[test]
fn a_file_that_was_unlinked_in_a_directory_that_is_gone_is_synced_itself() {
    let (lab, path) = unlinked_before(|directory| fs::remove_dir(directory).unwrap());
    assert!(fs::read(lab.synced(&path)).unwrap() == content(1, 3000));
}

#[test]
fn a_file_that_was_unlinked_in_a_directory_that_moved_is_synced_itself() {
    let (lab, path) = unlinked_before(|directory| {
        fs::rename(directory, directory.with_file_name("moved")).unwrap();
        fs::create_dir(directory).unwrap();
    });
    assert!(fs::read(lab.synced(&path)).unwrap() == content(1, 3000));
}

#[test]
fn of_a_file_that_was_unlinked_the_directory_that_had_it_is_synced_instead() {
    let (lab, path) = unlinked_before(|_| {});
    assert_eq!(fs::read(lab.synced(&path)).unwrap(), b"");
}
