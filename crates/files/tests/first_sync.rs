//! The first sync of a log: not before there is something to find, before anything that is
//! acknowledged, and in no other log's way.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
use common::{Lab, content, disk::Disk, held_up, holds};
use std::{fs, time::Duration};

const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
const TRUNCATING: i32 = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";
/// What waits for no disk is done in this time, on a machine that has much else to do.
const AT_ONCE: Duration = Duration::from_secs(20);

/// Attempts, where another program has all file systems synced meanwhile.
const ATTEMPTS: usize = 10;

/// Does `work` on a file system of each kind, with each kind of pool, and then `check`, after a
/// power cut and a recovery. If it `commits` nothing, neither is there what was made
/// without Forebay just before; where that is, another program has synced all, and it is tried
/// again.
fn cut_after(commits: bool, work: impl Fn(&mut common::Running, &Lab), check: impl Fn(&Lab)) {
    for make in [
        &["mkfs.ext4", "-q"][..],
        &["mkfs.ext4", "-q", "-O", "fast_commit"],
        &["mkfs.xfs", "-q", "-f"],
    ] {
        for on_disk in [false, true] {
            let is_checked = || {
                let lab = if on_disk { Lab::on_disk() } else { Lab::new() };
                let Some(disk) = Disk::mount(&lab, make, 320) else {
                    return true;
                };
                fs::create_dir(lab.data("d")).unwrap();
                fs::write(lab.data("old.log"), content(9, 500)).unwrap();
                rustix::fs::syncfs(fs::File::open(lab.data("d")).unwrap()).unwrap();
                let mut run = lab.run();
                fs::write(lab.data("control"), "").unwrap();
                work(&mut run, &lab);
                disk.shut_down();
                run.kill_both();
                if !disk.mount_again() {
                    return true;
                }
                lab.recover(Some(OTHER_BOOT), &[]);
                if !commits && lab.data("control").exists() {
                    return false;
                }
                check(&lab);
                true
            };
            let checked = (0..ATTEMPTS).any(|_| is_checked());
            assert!(checked, "what is not to be durable is, each time: {make:?}");
        }
    }
}

/// Promise (files): A log that was only opened is after a power cut as it would be without Forebay:
/// its open makes no name durable.
#[test]
fn log_that_was_only_opened_is_none_after_a_cut() {
    cut_after(
        false,
        |run, lab| {
            assert_eq!(run.open_only("a", &lab.data("a.log"), APPEND), 1);
            assert_eq!(run.open_only("t", &lab.data("t.log"), TRUNCATING), 1);
            assert_eq!(run.open_only("other b", &lab.data("b.log"), APPEND), 1);
            assert_eq!(run.open_only("closed", &lab.data("c.log"), APPEND), 1);
            run.call("close closed").unwrap();
            // Another log's sync is another file's.
            assert_eq!(run.open_only("old", &lab.data("old.log"), APPEND), 1);
        },
        |lab| {
            for name in ["a.log", "t.log", "b.log", "c.log"] {
                assert!(!lab.data(name).exists(), "{name}");
            }
            assert_eq!(fs::read(lab.data("old.log")).unwrap(), content(9, 500));
        },
    );
}

/// Promise (files): A log that has anything acknowledged is found after a power cut, by each name
/// that it had.
#[test]
fn synced_log_is_found_after_a_cut_by_each_name_it_had() {
    cut_after(
        true,
        |run, lab| {
            let rename = |run: &mut common::Running, from: &str, to: &str| {
                let (from, to) = (lab.data(from), lab.data(to));
                let call = format!("rename {} {}", from.display(), to.display());
                run.call(call).unwrap();
            };
            // Renamed before it has anything, to another directory, and after.
            assert_eq!(run.open_only("a", &lab.data("a.tmp.log"), APPEND), 1);
            rename(run, "a.tmp.log", "a.log");
            assert_eq!(run.open_only("b", &lab.data("b.tmp.log"), APPEND), 1);
            rename(run, "b.tmp.log", "d/b.log");
            assert_eq!(run.open_only("c", &lab.data("c.tmp.log"), APPEND), 1);
            for (i, name) in ["a", "b", "c"].iter().enumerate() {
                assert_eq!(run.call(format!("write {name} {i} 100")), Ok(100));
                assert_eq!(run.call(format!("sync {name}")), Ok(0));
            }
            rename(run, "c.tmp.log", "d/c.log");
            // And one that two processes write to, of which one has not written yet.
            assert_eq!(run.open_only("other a", &lab.data("a.log"), APPEND), 1);
            run.calls([
                "other write a 7 50",
                "other sync a",
                "write c 8 50",
                "sync c",
            ]);
        },
        |lab| {
            let both = |one, two| [content(one, 100), content(two, 50)].concat();
            assert_eq!(fs::read(lab.data("a.log")).unwrap(), both(0, 7));
            assert_eq!(fs::read(lab.data("d/b.log")).unwrap(), content(1, 100));
            // The rename may be durable or not.
            let c = ["c.tmp.log", "d/c.log"].map(|name| fs::read(lab.data(name)).ok());
            assert!(c.contains(&Some(both(2, 8))), "{c:?}");
        },
    );
}

/// Promise (files): Once a log in memory was synced, each write to it is durable when it returns.
#[test]
fn write_to_a_synced_log_in_memory_is_durable_when_it_returns() {
    let lab = Lab::new();
    let mut run = lab.run();
    let (path, room) = (lab.data("a.log"), lab.data("b.log"));
    assert_eq!(run.open_only("a", &path, APPEND), 1);
    run.call("write a 1 100").unwrap();
    assert!(!lab.synced(&path).exists());
    run.call("sync a").unwrap();
    assert_eq!(fs::read(lab.synced(&path)).unwrap(), content(1, 100));
    assert_eq!(run.open_only("b", &room, APPEND), 1);
    run.calls(["truncate b 300", "sync b"]);
    assert_eq!(fs::read(lab.synced(&room)).unwrap(), [0; 300]);
    run.call("write a 2 100").unwrap();
    run.kill_both();
    lab.power_cut();
    lab.recover(Some(OTHER_BOOT), &[]);
    holds(&path, &[(1, 100), (2, 100)]);
}

#[test]
fn unsynced_write_to_a_new_log_is_synced_soon() {
    for lab in [Lab::new(), Lab::on_disk()] {
        let mut run = lab.run();
        let path = lab.data("a.log");
        assert_eq!(run.open_only("a", &path, APPEND), 1);
        run.call("write a 1 100").unwrap();
        let begun = std::time::Instant::now();
        while !lab.synced(&path).exists() {
            assert!(begun.elapsed() < AT_ONCE, "it is not synced");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(fs::read(lab.synced(&path)).unwrap(), content(1, 100));
        run.end();
    }
}

/// Promise (files): A file that is written, closed and never synced costs no sync: none is made of
/// it, then or later.
#[test]
fn file_that_is_closed_unsynced_is_never_synced() {
    // More than have numbers at first.
    const FILES: usize = 300;
    for lab in [Lab::new(), Lab::on_disk()] {
        let mut run = lab.run();
        let path = |n: usize| lab.data(&format!("{n}.log"));
        let begun = std::time::Instant::now();
        for n in 0..FILES {
            assert_eq!(run.open_only("a", &path(n), APPEND), 1, "{n}");
            run.calls(["write a 1 100", "close a"]);
            if n % 2 == 0 {
                run.call(format!("unlink {}", path(n).display())).unwrap();
            }
        }
        let synced = || {
            (0..FILES)
                .filter(|n| lab.synced(&path(*n)).exists())
                .count()
        };
        // Those that were open at the moment at which the supervisor looks, once a second.
        let unlucky = synced();
        assert!(unlucky as u64 <= begun.elapsed().as_secs() + 1, "{unlucky}");
        // Longer than one waits that was not closed.
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(synced(), unlucky);
        // It is absorbed again, and durable once it is synced.
        let kept = path(1);
        assert_eq!(run.open_only("a", &kept, APPEND), 1);
        run.calls(["write a 2 100", "sync a"]);
        run.kill_both();
        lab.power_cut();
        lab.recover(Some(OTHER_BOOT), &[]);
        holds(&kept, &[(1, 100), (2, 100)]);
    }
}

#[test]
fn logs_are_opened_while_a_first_sync_hangs() {
    let lab = Lab::new();
    let mut run = lab.run();
    let (known, hanging, new) = (lab.data("a.log"), lab.data("b.log"), lab.data("c.log"));
    assert_eq!(run.open_only("a", &known, APPEND), 1);
    run.call("write a 1 100").unwrap();
    let pipe = lab.slow_syncs(&hanging);
    let open = format!("open b {} {APPEND}", hanging.display());
    run.call(format!("begin other {open}")).unwrap();
    run.call("begin other write b 1 100000").unwrap();
    // It is under way.
    let held = held_up(&pipe);
    for (handle, path) in [("again", &known), ("c", &new), ("hanging", &hanging)] {
        run.send(&format!("open {handle} {} {APPEND}", path.display()));
        let answer = run.answer_within(AT_ONCE);
        assert_eq!(answer.as_deref(), Some("ok 1\n"), "{handle}");
    }
    // What is durable already needs none of it.
    assert_eq!(run.call("write again 2 100"), Ok(100));
    assert_eq!(run.call("sync a"), Ok(0));
    drop(held);
    run.kill_both();
}

#[test]
fn log_whose_first_sync_fails_is_plain_and_its_syncs_are_real() {
    let lab = Lab::new();
    let mut run = lab.run();
    let (path, gone) = (lab.data("a.log"), lab.data("b.log"));
    assert_eq!(run.open_only("a", &path, APPEND), 1);
    // Past the client: by the name that it had it is not found.
    fs::rename(&path, &gone).unwrap();
    assert_eq!(run.call("write a 1 100"), Ok(100));
    // By that it is plain, which the next write finds.
    assert_eq!(run.call("sync a"), Ok(0));
    assert_eq!(run.call("write a 2 100"), Ok(100));
    assert_eq!(run.call("absorbs a"), Ok(0));
    assert_eq!(run.call("sync a"), Ok(0));
    run.end();
    let expected = [content(1, 100), content(2, 100)].concat();
    assert_eq!(fs::read(&gone).unwrap(), expected);
    assert_eq!(lab.lanes(), 0);
}
