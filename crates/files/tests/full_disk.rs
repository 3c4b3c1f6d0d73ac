//! A disk that is full: what the kernel refused is in no lane, and what it took is lost by no
//! recovery.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Lab, content};
use std::{fs, path::PathBuf, process::Command};

const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";

/// A small file system where the lab's files are.
struct Small(PathBuf);

impl Small {
    fn mount(lab: &Lab) -> Self {
        let at = lab.home.path().join("data");
        let mut mount = Command::new("mount");
        let mount = mount
            .args(["-t", "tmpfs", "-o", "size=256k", "none"])
            .arg(&at);
        assert!(mount.status().unwrap().success());
        Self(at)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_write_without_room_fails_and_costs_nothing_acknowledged() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can mount a small file system");
        return;
    }
    let lab = Lab::new();
    let _small = Small::mount(&lab);
    let path = lab.data("a.log");
    let mut run = lab.run();
    assert_eq!(
        run.open("a", &path, libc::O_RDWR | libc::O_CREAT | libc::O_APPEND),
        1
    );
    let mut expected = Vec::new();
    let mut refused = 0;
    for seed in 0..40 {
        match run.call(format!("write a {seed} 30000")) {
            // The last that fits may be shorter.
            Ok(written) => expected.extend_from_slice(&content(seed, 30_000)[..written]),
            Err(errno) => {
                assert_eq!(errno, libc::ENOSPC);
                refused += 1;
            }
        }
        run.call("sync a").unwrap();
    }
    assert!(refused > 20, "{refused}");
    // There is room again, and it goes on.
    expected.truncate(20_000);
    run.call("truncate a 20000").unwrap();
    assert_eq!(run.call("write a 77 30000"), Ok(30_000));
    expected.extend(content(77, 30_000));
    run.call("sync a").unwrap();
    assert_eq!(run.call("absorbs a"), Ok(1));
    run.kill_both();
    lab.power_cut();
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    assert!(fs::read(&path).unwrap() == expected);
    assert_eq!(lab.lanes(), 0);
}
