//! A disk behind the files that has less room than it says: what could not be written back is on it
//! once a sync has succeeded again.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Lab, content, eventually};
use forebay_device::thin::ThinDisk;
use std::{fs, thread, time::Duration};

const BYTES: usize = 30_000;
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";

fn nothing_is_lost(make: &[&str]) {
    let lab = Lab::new();
    let disk = match ThinDisk::mount(lab.home.path(), &lab.home.path().join("data"), make, None) {
        Ok(disk) => disk,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let (mut run, path) = lab.run_with_log(libc::O_RDWR | libc::O_CREAT | libc::O_APPEND);
    disk.fill(1 << 20).unwrap();
    let mut expected = Vec::new();
    let mut failed = false;
    for seed in 0..300 {
        failed = match run.call(format!("write a {seed} {BYTES}")) {
            Ok(written) => {
                expected.extend_from_slice(&content(seed, BYTES)[..written]);
                run.call("sync a").is_err()
            }
            Err(_) => true,
        };
        if failed {
            break;
        }
    }
    assert!(failed, "the disk does not get full");
    disk.make_room().unwrap();
    assert!(eventually(|| run.call("sync a").is_ok()), "it stays so");
    // The lane gives its records up.
    thread::sleep(Duration::from_millis(2500));
    run.kill_both();
    disk.mount_again().unwrap();
    lab.recover(Some(OTHER_BOOT), &[]);
    assert_eq!(lab.lanes(), 0);
    let found = fs::read(&path).unwrap();
    let wrong = (0..expected.len()).find(|at| found.get(*at) != Some(&expected[*at]));
    assert!(
        wrong.is_none() && found.len() == expected.len(),
        "{make:?}: {} bytes of {}, wrong at {wrong:?}",
        found.len(),
        expected.len()
    );
}

/// Promise: as `bytes_rewritten_after_a_failed_write_back_are_on_the_disk`.
#[test]
fn what_an_ext4_could_not_write_back_is_there_once_it_is_synced() {
    (0..3).for_each(|_| nothing_is_lost(&["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4"]));
}

/// Promise: as `bytes_rewritten_after_a_failed_write_back_are_on_the_disk`.
#[test]
fn what_an_xfs_could_not_write_back_is_there_once_it_is_synced() {
    nothing_is_lost(&["mkfs.xfs", "-q"]);
}
