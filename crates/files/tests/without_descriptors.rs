//! A supervisor that has no descriptor left for a file that a member opens.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Lab, Running, content, held_up};
use forebay_files::supervisor::status_of_running;
use std::{fs, path::Path, time::Duration};

const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
/// After so long a test waits for what never comes.
const LIMIT: Duration = Duration::from_secs(60);

/// The supervisor gets no descriptor more.
fn exhaust(run: &Running) {
    let is_open = |fd: &u64| Path::new(&format!("/proc/{}/fd/{fd}", run.supervisor.id())).exists();
    run.limit_descriptors((0..).find(|fd| !is_open(fd)).unwrap());
}

/// Promise (processes): A member stays one as long as it lives: no other process gets its number,
/// and nothing of its own is taken for a dead member's, though it cannot be answered.
#[test]
fn a_member_stays_one_though_one_of_its_files_has_no_descriptor() {
    let lab = Lab::new();
    let (path, second) = (lab.data("a.log"), lab.data("b.log"));
    let mut run = lab.run();
    assert_eq!(run.open("a", &path, APPEND), 1);
    exhaust(&run);
    assert_eq!(run.open("b", &second, APPEND), 0);
    run.limit_descriptors(256);
    assert_eq!(run.open("other c", &lab.data("c.log"), APPEND), 1);
    let running = status_of_running(&lab.home.path().join("run")).unwrap();
    let processes = &running.statuses[0].processes;
    assert_eq!(processes.iter().filter(|process| !process.ended).count(), 2);
    run.call("write a 1 10").unwrap();
    // It is served still.
    run.call("retire a").unwrap();
    run.end();
}

/// Promise (processes): A process never takes a supervisor that it cannot hear for one that says
/// that no process absorbs a file.
#[test]
fn file_in_its_first_sync_is_joined_where_no_descriptor_is_left() {
    // Root's supervisor needs a descriptor for each process that opens what it watches.
    let lab = Lab::of_an_ordinary_user();
    let path = lab.data("a.log");
    fs::write(&path, content(1, 200_000)).unwrap();
    std::os::unix::fs::chown(&path, lab.user, lab.user).unwrap();
    let pipe = lab.slow_syncs(&path);
    let mut run = lab.run();
    assert_eq!(run.open("own", &lab.data("own.log"), APPEND), 1);
    assert_eq!(run.open("begin other a", &path, RDWR), 0);
    run.call("begin other pwrite a 0 2 10").unwrap();
    let syncing = held_up(&pipe);
    exhaust(&run);
    run.send(&format!("open b {} {RDWR}", path.display()));
    assert_eq!(run.answer_within(LIMIT).as_deref(), Some("ok 1\n"));
    run.limit_descriptors(256);
    drop(syncing);
    assert_eq!(run.call("end other"), Ok(1));
    assert_eq!(run.call("end other"), Ok(10));
    run.end();
}
