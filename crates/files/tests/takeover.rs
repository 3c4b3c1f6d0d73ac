//! The supervisor and every member are dead, and the program goes on by processes that were none:
//! the first of them that is about to write past the lane settles it. After a power cut a recovery
//! finds nothing to decide, and nothing acknowledged is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Lab, Running, content, eventually, holds, kill};
use forebay_pool::PoolOptions;
use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const OTHER_BOOT: &str = "11111111-2222-4333-8444-555555555555";
/// Long before a process that can settle nothing goes on.
const AT_ONCE: Duration = Duration::from_secs(4);

/// A run whose one member wrote to `path` and is dead, as the supervisor is; the first process of
/// the database lives and has opened nothing yet.
fn orphaned(lab: &Lab, path: &Path) -> Running {
    let mut run = lab.run();
    assert_eq!(run.open("other a", path, RDWR), 1);
    run.calls(["other pwrite a 0 1 3000", "other sync a"]);
    let member = run.other();
    run.kill_supervisor();
    kill(&member);
    run
}

/// Nothing is left in the pool that a recovery in another boot could refuse, or write to the file.
fn check_settled(lab: &Lab, path: &Path, expected: &[u8]) {
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(reports.is_empty(), "{reports:?}");
    assert_eq!(fs::read(path).unwrap(), expected);
}

/// Promise: as `a_cut_after_supervisor_and_backend_die_costs_nothing_on_ext4`.
#[test]
fn an_opener_settles_the_lane_of_a_run_whose_processes_are_dead() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let mut run = orphaned(&lab, &path);
    assert_eq!(lab.lanes(), 1);
    let begun = Instant::now();
    assert_eq!(run.open("b", &path, RDWR), 0);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    assert_eq!(lab.lanes(), 0);
    // Past what a replay would take for the lane's own.
    thread::sleep(Duration::from_millis(300));
    run.calls(["pwrite b 100 2 500", "sync b"]);
    run.kill_both();
    let mut expected = content(1, 3000);
    expected[100..600].copy_from_slice(&content(2, 500));
    check_settled(&lab, &path, &expected);
}

/// Promise: as `a_cut_after_supervisor_and_backend_die_costs_nothing_on_ext4`.
#[test]
fn an_opener_settles_a_dead_runs_lane_on_a_disk() {
    let lab = Lab::on_disk();
    let path = lab.data("a.log");
    let mut run = orphaned(&lab, &path);
    assert_eq!(run.open("b", &path, RDWR), 0);
    run.calls(["pwrite b 0 2 500", "sync b"]);
    run.kill_both();
    let mut expected = content(1, 3000);
    expected[..500].copy_from_slice(&content(2, 500));
    check_settled(&lab, &path, &expected);
}

#[test]
fn once_it_is_settled_no_process_waits_or_looks_into_the_pool() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let mut run = orphaned(&lab, &path);
    run.open("b", &path, RDWR);
    fs::rename(lab.pool(), lab.home.path().join("elsewhere")).unwrap();
    let begun = Instant::now();
    run.call(format!("third open c {} {RDWR}", path.display()))
        .unwrap();
    run.call("third pwrite c 0 2 500").unwrap();
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
}

/// Promise: as `a_cut_after_supervisor_and_backend_die_costs_nothing_on_ext4`.
#[test]
fn a_rename_or_unlink_in_a_dead_run_settles_its_lane_first() {
    for how in ["rename", "unlink"] {
        let lab = Lab::new();
        let (path, to) = (lab.data("a.log"), lab.home.path().join("gone"));
        let mut run = orphaned(&lab, &path);
        let call = match how {
            "rename" => format!("rename {} {}", path.display(), to.display()),
            _ => format!("unlink {}", path.display()),
        };
        run.call(&call).unwrap();
        assert_eq!(lab.lanes(), 0, "{how}");
        if how == "rename" {
            holds(&to, &[(1, 3000)]);
        }
    }
}

#[test]
fn an_opener_waits_until_a_living_member_has_settled_the_lane() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let mut run = lab.run();
    assert_eq!(run.open("other a", &path, RDWR), 1);
    run.call("other pwrite a 0 1 3000").unwrap();
    run.kill_supervisor();
    run.send(&format!("open b {} {RDWR}", path.display()));
    thread::sleep(Duration::from_millis(500));
    assert_eq!(lab.lanes(), 1, "a member's lane was taken from it");
    // It cannot be told to go on by who waits: its end is as good.
    kill(&run.other());
    assert_eq!(run.answer().as_deref(), Some("ok 0\n"));
    assert_eq!(lab.lanes(), 0);
    run.kill_both();
    check_settled(&lab, &path, &content(1, 3000));
}

/// Promise: as `a_process_that_dies_settling_leaves_the_lane_to_the_next`.
#[test]
fn a_lane_is_settled_and_a_dead_members_unlogged_write_stays() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let mut run = orphaned(&lab, &path);
    // As by a process that died between the kernel and the lane, a tick after its last record.
    let times = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"newer", 10).unwrap();
    file.set_modified(times).unwrap();
    drop(file);
    let has_mounts = has_mounts(&path);
    run.open("b", &path, RDWR);
    let mut expected = content(1, 3000);
    expected[10..15].copy_from_slice(b"newer");
    assert_eq!(fs::read(&path).unwrap(), expected);
    // Where the kernel does not say what mount it is, a recovery has to decide.
    assert_eq!(lab.lanes(), usize::from(!has_mounts));
}

/// True if the kernel gives each mount a number of its own for good.
fn has_mounts(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let found = statx(CWD, path, AtFlags::empty(), MNT_ID_UNIQUE).unwrap();
    found.stx_mask & MNT_ID_UNIQUE.bits() != 0
}

/// As [`orphaned`], where a third process is cut in its settling, or waits in it.
fn orphaned_with_cut(lab: &Lab, paths: &[&Path], cut: &str) -> Running {
    let mut run = lab.run_with(|command| {
        command.env("LAB_CUT_THIRD", format!("replay:step={cut}"));
    });
    for (number, path) in paths.iter().enumerate() {
        assert_eq!(run.open(&format!("other {number}"), path, RDWR), 1);
    }
    // After a second without a write it would drain what there is, and the settling had less to do.
    run.stop_supervisor();
    for number in 0..paths.len() {
        run.call(format!("other pwrite {number} 0 1 3000")).unwrap();
    }
    let member = run.other();
    run.kill_supervisor();
    kill(&member);
    run
}

/// Promise (processes): A takeover of a lane succeeds although the process dies on its way or
/// several try at once, and, from Linux 6.8 on, although a member died between kernel and lane.
#[test]
fn a_process_that_dies_settling_leaves_the_lane_to_the_next() {
    let mut cuts = 0;
    for steps in 1.. {
        let lab = Lab::new();
        let (a, b) = (lab.data("a.log"), lab.data("b.log"));
        let mut run = orphaned_with_cut(&lab, &[&a, &b], &format!("{steps}:die"));
        run.send(&format!("third open c {} {RDWR}", a.display()));
        if run.answer().unwrap() != "gone 0\n" {
            break;
        }
        cuts += 1;
        assert_eq!(lab.lanes(), 1, "after {steps} steps");
        if steps % 2 == 0 {
            // The power fails instead: the lane is in the pool as it was.
            run.kill_both();
            let reports = lab.recover(Some(OTHER_BOOT), &[]);
            assert_eq!(reports[0]["outcome"], "synced", "{steps}: {reports:?}");
            holds(&a, &[(1, 3000)]);
            continue;
        }
        assert_eq!(run.open("b", &b, RDWR), 0);
        assert_eq!(lab.lanes(), 0, "after {steps} steps");
        run.call("pwrite b 0 2 500").unwrap();
        run.kill_both();
        let mut expected = content(1, 3000);
        expected[..500].copy_from_slice(&content(2, 500));
        check_settled(&lab, &b, &expected);
        holds(&a, &[(1, 3000)]);
    }
    assert!(cuts >= 4, "{cuts} steps were those of the settling");
}

/// Promise: as `a_process_that_dies_settling_leaves_the_lane_to_the_next`.
#[test]
fn two_processes_that_settle_at_once_do_it_one_after_the_other() {
    let lab = Lab::new();
    let (a, b) = (lab.data("a.log"), lab.data("b.log"));
    // In the middle it waits longer than a process that can settle nothing.
    let mut run = orphaned_with_cut(&lab, &[&a, &b], "2:9000ms");
    let begun = Instant::now();
    run.call(format!("begin third open c {} {RDWR}", a.display()))
        .unwrap();
    let lanes = || PoolOptions::new().open(lab.pool()).unwrap().lanes();
    assert!(eventually(|| lanes().iter().any(|lane| lane.in_use)));
    assert_eq!(run.open("b", &b, RDWR), 0);
    assert!(
        begun.elapsed() > Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(lab.lanes(), 0);
    assert_eq!(run.call("end third"), Ok(0));
}

#[test]
fn a_program_goes_on_and_leaves_an_unsettled_lane_to_a_recovery() {
    let lab = Lab::new();
    let path = lab.data("a.log");
    let mut run = orphaned(&lab, &path);
    fs::rename(lab.pool(), lab.home.path().join("elsewhere")).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    let begun = Instant::now();
    assert_eq!(run.open("b", &path, RDWR), 0);
    assert!(
        begun.elapsed() > Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    fs::rename(lab.home.path().join("elsewhere"), lab.pool()).unwrap();
    run.calls(["pwrite b 0 2 500", "sync b"]);
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    run.kill_both();
    lab.recover_to("refused", Some(OTHER_BOOT), &[]);
    assert_eq!(fs::read(&path).unwrap()[..500], content(2, 500));
}
