//! A log that is open with `O_DIRECT` takes what it takes without Forebay, and refuses what it
//! refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, build, disk::Disk};
use std::{fs, path::Path, process::Command};

fn same_in(place: &Path) {
    let programs = Sandbox::new();
    build("direct", programs.path());
    let direct = programs.file("direct");
    let plain = Command::new(&direct).current_dir(place).output().unwrap();
    let plain = Ran::of(plain).ok().text();
    fs::remove_file(place.join("a.log")).unwrap();
    let mut command = programs.command("run --emulated 16MiB --absorb *.log --explain --");
    let command = command.arg(&direct).current_dir(place);
    command.env("FOREBAY_RUN_DIR", programs.file("run"));
    let ran = Ran::of(command.output().unwrap()).ok();
    assert_eq!(ran.text(), plain, "{}", ran.stderr);
    assert!(ran.told("a.log ").ends_with("absorbed"), "{}", ran.stderr);
}

/// Promise (programs): A log with `O_DIRECT` takes and refuses the same calls as without Forebay.
#[test]
fn direct_io_of_a_log_is_refused_where_it_is_plainly() {
    same_in(Sandbox::on_disk().path());
    for kind in ["ext4", "xfs"] {
        let sandbox = Sandbox::new();
        if let Some(disk) = Disk::make(sandbox.path(), kind) {
            same_in(&disk.at);
        }
    }
}
