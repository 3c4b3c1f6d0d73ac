//! A pool on a disk that fails, or the data's disk beside it: no acknowledged write is lost, no
//! recovery writes older bytes over newer ones, and nothing waits for ever.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use common::*;
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const OTHER_BOOT: &str = "11111111-2222-3333-4444-555555555555";
/// How a disk fails: with `EIO`.
const ALWAYS: &str = "5";
const ONCE: &str = "5 1";

/// A run in which no file can be told that its records are void.
fn run_without_marks(lab: &Lab) -> Running {
    lab.run_with(|command| {
        command.env("FOREBAY_BROKEN", "void-mark-write");
    })
}

/// From now on the pool's disk fails: always, or once.
fn fail_disk(lab: &Lab, how: &str) {
    fs::write(lab.faults().join("disk-write"), how).unwrap();
}

/// It fails no more.
fn mend_disk(lab: &Lab) {
    fs::remove_file(lab.faults().join("disk-write")).unwrap();
}

/// As if the file had been changed last before anything in the pool was logged: its time says
/// nothing of what is newer.
fn set_back(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    file.set_modified(long_ago).unwrap();
}

/// A file with `content(1, 3000)` that is synced: where it is. The program has it open as `a`.
fn acknowledge(lab: &Lab, run: &mut Running) -> PathBuf {
    let path = lab.data("a.log");
    run.open("a", &path, RDWR);
    run.calls(["write a 1 3000", "sync a"]);
    path
}

/// Promise (disks): A pool's disk that fails, for a while or for good, leaves everything
/// acknowledged synced and every later sync a real one, also if the supervisor is killed meanwhile.
/// Promise: as `a_pools_disk_that_fails_once_is_told_that_its_lane_is_void`.
#[test]
fn every_sync_is_real_and_lasts_once_the_pools_disk_has_failed() {
    for supervisor_dies in [false, true] {
        let lab = Lab::on_disk();
        let mut run = lab.run();
        let [a, b, gone] = ["a.log", "b.log", "gone.log"].map(|name| lab.data(name));
        for (handle, path) in [("a", &a), ("b", &b), ("gone", &gone)] {
            run.open(handle, path, RDWR);
            run.call(format!("write {handle} 1 3000")).unwrap();
            run.call(format!("sync {handle}")).unwrap();
        }
        fail_disk(&lab, ALWAYS);
        run.call("pwrite a 0 2 3000").unwrap();
        if supervisor_dies {
            run.kill_supervisor();
        }
        assert_eq!(run.call("sync a"), Ok(0));
        if !supervisor_dies {
            // The supervisor's syncs are those of what was acknowledged, of all files.
            assert!(fs::read(lab.synced(&a)).unwrap() == content(2, 3000));
            assert!(fs::read(lab.synced(&b)).unwrap() == content(1, 3000));
        }
        for (handle, seed) in [("a", 3), ("b", 4), ("gone", 5)] {
            run.call(format!("pwrite {handle} 0 {seed} 3000")).unwrap();
            assert_eq!(run.call(format!("sync {handle}")), Ok(0));
            assert_eq!(run.call(format!("absorbs {handle}")), Ok(0));
        }
        run.call(format!("unlink {}", gone.display())).unwrap();
        run.kill_both();
        mend_disk(&lab);
        assert_eq!(lab.lanes(), 1, "the pool could not be told");
        let standing = forebay_files::marks::standing(a.parent().unwrap()).unwrap();
        assert!(standing.iter().all(|one| one.is_harmless()), "{standing:?}");
        assert!(!standing.is_empty());
        for path in [&a, &b] {
            set_back(path);
        }
        lab.recover_to("newer", Some(OTHER_BOOT), &[]);
        holds(&a, &[(3, 3000)]);
        holds(&b, &[(4, 3000)]);
        assert!(!gone.exists());
        assert_eq!(lab.lanes(), 0);
    }
}

/// Promise (disks): A run that comes after a pool's disk failed is absorbed and recovered as ever.
#[test]
fn a_run_after_a_pools_disk_failed_absorbs_and_recovers_as_ever() {
    let lab = Lab::on_disk();
    let mut run = lab.run();
    let path = acknowledge(&lab, &mut run);
    fail_disk(&lab, ALWAYS);
    run.calls(["pwrite a 0 2 3000", "sync a"]);
    run.end();
    mend_disk(&lab);
    lab.recover(None, &[]);
    assert_eq!(lab.lanes(), 0);
    // The mark in the file says nothing of this run's lane.
    let mut run = lab.run();
    assert_eq!(run.open("a", &path, RDWR), 1);
    run.calls(["pwrite a 0 3 3000", "sync a"]);
    run.kill_both();
    lab.power_cut();
    holds(&path, &[(2, 3000)]);
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    holds(&path, &[(3, 3000)]);
}

/// Promise (disks): A recovery writes nothing older over the files once a pool's failed disk is
/// back.
#[test]
fn a_pools_disk_that_fails_once_is_told_that_its_lane_is_void() {
    let lab = Lab::on_disk();
    let mut run = run_without_marks(&lab);
    let path = acknowledge(&lab, &mut run);
    run.call("pwrite a 0 2 3000").unwrap();
    fail_disk(&lab, ONCE);
    assert_eq!(run.call("sync a"), Ok(0));
    run.call("pwrite a 0 3 3000").unwrap();
    assert_eq!(run.call("sync a"), Ok(0));
    assert_eq!(run.call("absorbs a"), Ok(0));
    run.kill_both();
    set_back(&path);
    lab.recover_to("empty", Some(OTHER_BOOT), &[]);
    holds(&path, &[(3, 3000)]);
}

/// Promise (disks): A sync and a change of names fail with `EIO` where neither the pool nor the
/// files can be told that records are void.
#[test]
fn no_sync_succeeds_where_nothing_can_say_that_records_are_void() {
    for supervisor_dies in [false, true] {
        let lab = Lab::on_disk();
        let mut run = run_without_marks(&lab);
        let path = acknowledge(&lab, &mut run);
        fail_disk(&lab, ALWAYS);
        run.call("pwrite a 0 2 3000").unwrap();
        if supervisor_dies {
            run.kill_supervisor();
        }
        assert_eq!(run.call("sync a"), Err(libc::EIO));
        mend_disk(&lab);
        run.kill_both();
        holds(&path, &[(2, 3000)]);
    }
}

/// Promise: as `no_sync_succeeds_where_nothing_can_say_that_records_are_void`.
#[test]
fn no_name_changes_where_nothing_can_say_that_records_are_void() {
    for call in [
        "rename @/d/a.log @/d/b",
        "rename @/plain @/d/a.log",
        "rename @/d @/e",
        "exchange @/d @/f",
        "link @/d/a.log @/d/b",
        "unlink @/d/a.log",
    ] {
        let lab = Lab::on_disk();
        for directory in ["d", "f"] {
            fs::create_dir(lab.data(directory)).unwrap();
        }
        fs::write(lab.data("plain"), "plain").unwrap();
        let mut run = run_without_marks(&lab);
        let path = lab.data("d/a.log");
        run.open("a", &path, RDWR);
        run.calls(["write a 1 3000", "sync a"]);
        fail_disk(&lab, ALWAYS);
        let data = lab.home.path().join("data");
        let done = run.call(call.replace('@', data.to_str().unwrap()));
        assert_eq!(done, Err(libc::EIO), "{call}");
        assert!(fs::read(&path).unwrap() == content(1, 3000), "{call}");
        let is_there = |name| lab.data(name).exists();
        assert!(!["d/b", "e", "f/a.log"].into_iter().any(is_there), "{call}");
        mend_disk(&lab);
        run.kill_both();
    }
}

/// Promise: as `a_pools_disk_that_fails_once_is_told_that_its_lane_is_void`.
#[test]
fn what_the_pools_disk_does_not_take_as_released_is_not() {
    let lab = Lab::on_disk();
    let mut run = lab.run();
    let path = acknowledge(&lab, &mut run);
    fail_disk(&lab, ALWAYS);
    // The file is synced, and the pool cannot be told: the file says it.
    run.calls(["retire a", "pwrite a 0 2 3000"]);
    assert_eq!(run.call("sync a"), Ok(0));
    run.kill_both();
    mend_disk(&lab);
    set_back(&path);
    lab.recover_to("newer", Some(OTHER_BOOT), &[]);
    holds(&path, &[(2, 3000)]);
}

/// Promise (disks): A recovery in the same boot does not take the page cache's contents for durable
/// if the files' disk failed beside the pool's.
#[test]
fn a_same_boot_recovery_drops_nothing_after_both_disks_failed() {
    let lab = Lab::on_disk();
    let mut run = lab.run();
    acknowledge(&lab, &mut run);
    fail_disk(&lab, ALWAYS);
    run.call("pwrite a 0 2 3000").unwrap();
    lab.inject(libc::EIO, u64::MAX);
    assert_eq!(run.call("sync a"), Err(libc::EIO));
    run.kill_both();
    mend_disk(&lab);
    // What the kernel has is clean, and on no disk.
    lab.recover_to("refused", None, &[]);
    assert_eq!(lab.lanes(), 1);
}

/// Promise: as `a_same_boot_recovery_after_a_failed_sync_rewrites_or_refuses`.
#[test]
fn a_second_sync_does_not_make_good_a_recoverys_failed_one() {
    let lab = Lab::on_disk();
    let mut run = lab.run();
    let path = acknowledge(&lab, &mut run);
    run.kill_both();
    lab.power_cut();
    lab.inject(libc::EIO, 1);
    let reports = lab.recover_with(Some(OTHER_BOOT), &[], |command| {
        command.env("FOREBAY_TEST_FAULTS", lab.faults());
    });
    assert_eq!(reports[0]["outcome"], "refused", "{reports:?}");
    // The file has it all, by the page cache. Only written again it comes to the disk, which cannot
    // be done while another process has it open.
    holds(&path, &[(1, 3000)]);
    let other = fs::File::open(&path).unwrap();
    lab.recover_to("refused", Some(OTHER_BOOT), &[]);
    drop(other);
    lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(lab.lanes(), 0);
}

/// Promise (disks): A recovery writes nothing to a file whose attributes cannot be read.
#[test]
fn a_file_whose_marks_cannot_be_read_gets_nothing() {
    let lab = Lab::on_disk();
    let mut run = lab.run();
    let path = acknowledge(&lab, &mut run);
    run.kill_both();
    lab.power_cut();
    let reports = lab.recover_with(Some(OTHER_BOOT), &[], |command| {
        command.env("FOREBAY_BROKEN", "void-mark-read");
    });
    assert_eq!(reports[0]["outcome"], "refused", "{reports:?}");
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    holds(&path, &[(1, 3000)]);
}

/// Promise (disks): A sync without a supervisor fails once in each process where records cannot be
/// voided, and no recovery overwrites later writes.
#[test]
fn later_writes_of_orphans_that_cannot_void_records_are_kept() {
    let lab = Lab::on_disk();
    let mut run = run_without_marks(&lab);
    let path = acknowledge(&lab, &mut run);
    fail_disk(&lab, ALWAYS);
    run.call("pwrite a 0 2 3000").unwrap();
    run.kill_supervisor();
    assert_eq!(run.call("sync a"), Err(libc::EIO));
    run.calls(["pwrite a 0 3 3000", "sync a"]);
    run.kill_both();
    mend_disk(&lab);
    lab.recover_to("refused", Some(OTHER_BOOT), &[]);
    holds(&path, &[(3, 3000)]);
}

/// Promise (disks): Members without a supervisor write nothing over bytes that another process
/// wrote since.
#[test]
fn orphans_write_nothing_over_what_another_process_wrote_since() {
    let lab = Lab::new();
    let (mut run, path) = lab.run_with_log(RDWR);
    let pipe = lab.slow_syncs(&path);
    run.calls(["write a 1 3000", "sync a"]);
    // A second without a write ends the segment, and its drain waits in the sync.
    thread::sleep(Duration::from_millis(2500));
    run.kill_supervisor();
    thread::sleep(Duration::from_millis(300));
    fs::write(&path, content(2, 3000)).unwrap();
    let _ = run.call("sync a");
    holds(&path, &[(2, 3000)]);
    drop(pipe);
}

/// Promise (disks): Members without a supervisor sync a file that they cannot find with its whole
/// file system.
#[test]
fn orphans_sync_a_file_they_cannot_find_with_its_file_system() {
    let lab = Lab::of_an_ordinary_user();
    let directory = lab.data("directory");
    fs::create_dir(&directory).unwrap();
    std::os::unix::fs::chown(&directory, lab.user, lab.user).unwrap();
    let mut run = lab.run();
    for (handle, path) in [("a", directory.join("a.log")), ("b", lab.data("b.log"))] {
        run.open(handle, &path, RDWR);
        run.call(format!("write {handle} 1 3000")).unwrap();
        run.call(format!("sync {handle}")).unwrap();
    }
    run.call("close a").unwrap();
    fs::rename(&directory, lab.data("elsewhere")).unwrap();
    run.kill_supervisor();
    // Or it could not be seen that it was. It is the first of the two that is synced.
    lab.inject(libc::EIO, 1);
    std::os::unix::fs::chown(lab.fault_file(), lab.user, lab.user).unwrap();
    assert_eq!(run.call("sync b"), Ok(0));
    run.kill_both();
    assert!(lab.label().starts_with("failed:"), "{}", lab.label());
    // A recovery looks nearby.
    lab.recover(None, &[]);
    assert_eq!(lab.lanes(), 0);
}

/// Promise (disks): Forebay writes nothing over bytes that a process outside wrote to a file which
/// could not be made plain.
#[test]
fn outside_writes_to_a_file_that_cannot_be_made_plain_are_kept() {
    if !rustix::process::geteuid().is_root() {
        // Then it is not held up when it opens the file.
        return;
    }
    let lab = Lab::on_disk();
    let mut run = run_without_marks(&lab);
    let path = acknowledge(&lab, &mut run);
    fail_disk(&lab, ALWAYS);
    fs::write(&path, content(2, 3000)).unwrap();
    run.kill_both();
    mend_disk(&lab);
    lab.recover_to("refused", Some(OTHER_BOOT), &[]);
    holds(&path, &[(2, 3000)]);
}

/// Promise (disks): A run ends although its pool's disk failed with a full segment.
#[test]
fn a_run_ends_though_its_pools_disk_failed_with_a_full_segment() {
    let lab = Lab::on_disk();
    let (mut run, path) = lab.run_with_log(RDWR);
    let pipe = lab.slow_syncs(&path);
    for seed in 0..30 {
        run.call(format!("write a {seed} 3000")).unwrap();
    }
    run.call("sync a").unwrap();
    thread::sleep(Duration::from_millis(300));
    fail_disk(&lab, ALWAYS);
    run.call("pwrite a 0 2 3000").unwrap();
    run.send(&"sync a");
    thread::sleep(Duration::from_millis(300));
    let mut copied = Vec::new();
    fs::File::open(&pipe)
        .unwrap()
        .read_to_end(&mut copied)
        .unwrap();
    assert!(run.answer().unwrap().starts_with("ok"));
    let supervisor = rustix::process::Pid::from_child(&run.supervisor);
    let (ended, end) = std::sync::mpsc::channel();
    let watchdog = thread::spawn(move || {
        if end.recv_timeout(Duration::from_secs(60)).is_err() {
            // It hangs: the end of the run says so.
            let _ = rustix::process::kill_process(supervisor, rustix::process::Signal::KILL);
        }
    });
    run.end();
    ended.send(()).unwrap();
    watchdog.join().unwrap();
}
