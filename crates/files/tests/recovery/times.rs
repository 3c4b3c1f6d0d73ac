//! Times: a change of a file's time keeps no lane from being replayed, and a file keeps those that
//! the program gave it. And the end of a file's client keeps no opener out.

use crate::{
    APPEND, LATER, OTHER_BOOT, Running,
    common::{Lab, content, holds},
    modified, same_time, set_modified, written,
};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::{
    fs,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, SystemTime},
};

/// Promise (recovery): A change to a file's time but to none of its bytes gets no lane refused:
/// `futimens`, `fallocate`, a failed write, a clock that was set back.
#[test]
fn a_lane_is_replayed_though_an_unchanged_files_time_moved() {
    for call in ["touch a 5000", "touch a -5000", "room a 65536"] {
        let lab = Lab::new();
        let mut run = written(&lab);
        thread::sleep(LATER);
        run.call(call).unwrap();
        run.kill_both();
        let path = lab.data("a.log");
        let then = modified(&path);
        lab.power_cut();
        let reports = lab.recover(Some(OTHER_BOOT), &[]);
        assert_eq!(reports[0]["outcome"], "replayed", "{call}: {reports:?}");
        holds(&path, &[(1, 3000)]);
        same_time(&path, then);
    }
}

/// Its time is one of a clock that was ahead, or was set so before the run: on the disk it stays so
/// until what was written is synced.
///
/// Promise (recovery): A file whose time lies ahead of the clock gets no lane refused, whether a
/// program set it so or the clock was set back.
#[test]
fn a_lane_is_replayed_though_a_files_time_is_ahead_of_the_clock() {
    let ahead = SystemTime::now() + Duration::from_secs(86_400);
    for call in ["write a 2 100", "truncate a 10"] {
        let lab = Lab::new();
        let path = lab.data("a.log");
        fs::write(&path, content(1, 3000)).unwrap();
        set_modified(&path, ahead);
        let mut run = lab.run();
        assert_eq!(run.open("a", &path, APPEND), 1);
        run.call(call).unwrap();
        run.call("sync a").unwrap();
        is_replayed_though_ahead(&lab, run, ahead, call);
        assert!(
            modified(&path) < ahead - Duration::from_secs(3600),
            "{call}"
        );
    }
}

/// The program itself gave it such a time; what it writes then is in another segment.
///
/// Promise: as `a_lane_is_replayed_though_a_files_time_is_ahead_of_the_clock`.
#[test]
fn a_time_ahead_of_the_clock_set_long_ago_is_the_programs_own() {
    let lab = Lab::new();
    let mut run = written(&lab);
    let path = lab.data("a.log");
    run.call("touch a 5000").unwrap();
    let ahead = modified(&path);
    // The segment with the record of that is released.
    thread::sleep(Duration::from_secs(3));
    run.calls(["write a 2 100", "sync a"]);
    is_replayed_though_ahead(&lab, run, ahead, "write a 2 100");
}

/// Cuts the power, which leaves the file with this time, and recovers it.
fn is_replayed_though_ahead(lab: &Lab, run: Running, ahead: SystemTime, call: &str) {
    let path = lab.data("a.log");
    let expected = fs::read(&path).unwrap();
    run.kill_both();
    lab.power_cut();
    set_modified(&path, ahead);
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{call}: {reports:?}");
    assert!(fs::read(&path).unwrap() == expected, "{call}");
}

/// From Linux 6.8 on. Before, it is not known that the page cache was there all the time.
pub fn numbers_mounts(path: &Path) -> bool {
    let unique = StatxFlags::from_bits_retain(0x4000);
    let stat = statx(CWD, path, AtFlags::empty(), unique).unwrap();
    stat.stx_mask & unique.bits() != 0
}

/// Promise (recovery): A file keeps the times that the program left, whatever a recovery or a
/// member's end did to the file.
#[test]
fn a_file_keeps_the_times_that_the_program_gave_it() {
    let hour = Duration::from_secs(3600);
    // The database ends; is killed; both are; and the same with a power cut behind it.
    for way in ["ends", "killed", "both", "cut"] {
        let lab = Lab::new();
        let mut run = written(&lab);
        run.call("touch a -3600").unwrap();
        let path = lab.data("a.log");
        let then = modified(&path);
        assert!(then < SystemTime::now() - hour / 2);
        match way {
            "ends" => drop(run.end()),
            "killed" => {
                run.kill_database();
                run.end();
            }
            _ => run.kill_both(),
        }
        if way == "cut" {
            lab.power_cut();
            lab.recover(Some(OTHER_BOOT), &[]);
        } else {
            lab.recover(None, &[]);
        }
        holds(&path, &[(1, 3000)]);
        assert_eq!(modified(&path), then, "{way}");
        assert_eq!(lab.lanes(), 0);
    }
}

/// Promise (processes): A process that ends keeps no other process from opening its files.
#[test]
fn an_open_without_waiting_is_not_refused_at_a_clients_end() {
    let mut refused = 0;
    for _ in 0..10 {
        let lab = Lab::new();
        let mut run = written(&lab);
        let path = lab.data("a.log");
        let stop = Arc::new(AtomicBool::new(false));
        let opener = {
            let (path, stop) = (path.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                let mut refused = 0;
                while !stop.load(Relaxed) {
                    let open = fs::File::options()
                        .read(true)
                        .custom_flags(libc::O_NONBLOCK)
                        .open(&path);
                    refused += u64::from(open.is_err());
                }
                refused
            })
        };
        run.kill_database();
        run.end();
        stop.store(true, Relaxed);
        refused += opener.join().unwrap();
        holds(&path, &[(1, 3000)]);
    }
    assert_eq!(refused, 0);
}
