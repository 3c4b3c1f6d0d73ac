//! Which boot it was: what the page cache lost in this one is written from the pool; a pool of another is written nowhere without force.

use crate::{
    LATER, OTHER_BOOT,
    common::{Lab, content},
    modified, same_time, set_modified, succeed, why, written,
};
use std::{fs, path::Path, process::Command, thread, time::Duration};

#[test]
fn what_the_page_cache_lost_in_the_same_boot_is_written_from_the_pool() {
    let lab = Lab::new();
    let run = written(&lab);
    run.kill_both();
    let path = lab.data("a.log");
    let then = modified(&path);
    lab.power_cut();
    let reports = lab.recover(None, &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert!(fs::read(&path).unwrap() == content(1, 3000));
    same_time(&path, then);
    assert_eq!(lab.lanes(), 0);
}

/// Mounts an image anew after what a device that goes away does to a file system: what it had in memory is gone. False if a process elsewhere,
/// in a mount namespace of its own, keeps the old file system.
fn lose_what_is_in_memory(image: &Path, at: &Path) -> bool {
    // FS_IOC_SHUTDOWN, without writing the journal.
    let script = "import fcntl, os, struct, sys\n\
                  fcntl.ioctl(os.open(sys.argv[1], 0), 0x8004587D, struct.pack('I', 2))";
    let mut shut = Command::new("python3");
    let shut = shut.args(["-c", script]).arg(at);
    succeed(shut).unwrap();
    succeed(Command::new("umount").arg(at)).unwrap();
    let is_kept = || {
        let devices = Command::new("losetup").arg("-j").arg(image).output();
        !devices.unwrap().stdout.is_empty()
    };
    for _ in 0..500 {
        if !is_kept() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    if is_kept() {
        println!("skipped: another process keeps the file system mounted");
        return false;
    }
    mount(image, at).unwrap();
    true
}

fn mount(image: &Path, at: &Path) -> Result<(), String> {
    succeed(
        Command::new("mount")
            .args(["-o", "loop"])
            .arg(image)
            .arg(at),
    )
}

/// A mounted image, unmounted whatever becomes of the test.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = succeed(Command::new("umount").args(["-l"]).arg(&self.0));
    }
}

fn survives_a_shutdown_of(make: &[&str], megabytes: u64) {
    let lab = Lab::new();
    let image = lab.home.path().join("image");
    fs::File::create(&image)
        .unwrap()
        .set_len(megabytes << 20)
        .unwrap();
    let at = lab.home.path().join("data");
    let made = succeed(Command::new(make[0]).args(&make[1..]).arg(&image));
    if let Err(e) = made.and_then(|()| mount(&image, &at)) {
        println!(
            "skipped: {} on a loop device is not to be had here: {e}",
            make[0]
        );
        return;
    }
    let _mounted = Mounted(at.clone());
    let run = written(&lab);
    run.kill_both();
    let path = lab.data("a.log");
    let then = modified(&path);
    if !lose_what_is_in_memory(&image, &at) {
        return;
    }
    assert!(
        fs::read(&path).unwrap() != content(1, 3000),
        "nothing was lost: the test proves nothing"
    );
    let reports = lab.recover(None, &[]);
    assert_eq!(reports[0]["outcome"], "replayed", "{reports:?}");
    assert!(fs::read(&path).unwrap() == content(1, 3000));
    same_time(&path, then);
    assert_eq!(lab.lanes(), 0);

    // Mounted anew and written to by others: the page cache is no witness any more.
    let run = written(&lab);
    run.kill_both();
    if !lose_what_is_in_memory(&image, &at) {
        return;
    }
    thread::sleep(LATER);
    fs::write(&path, b"changed").unwrap();
    let reports = lab.recover(None, &[]);
    assert!(why(&reports).contains("was changed"), "{reports:?}");
    assert_eq!(fs::read(&path).unwrap(), b"changed");
    assert_eq!(lab.lanes(), 1);
}

#[test]
fn a_file_system_that_was_shut_down_and_mounted_again_gets_what_was_acknowledged() {
    survives_a_shutdown_of(&["mkfs.ext4", "-q"], 64);
}

#[test]
fn an_xfs_that_was_shut_down_and_mounted_again_gets_what_was_acknowledged() {
    survives_a_shutdown_of(&["mkfs.xfs", "-q", "-f"], 320);
}

#[test]
fn an_emulated_pool_of_another_boot_is_written_nowhere_without_force() {
    for options in [&["--discard"][..], &["--force"]] {
        let lab = Lab::new();
        let run = written(&lab);
        run.kill_both();
        lab.power_cut();
        // The disk has newer bytes than the pool, and their time lies before the pool's last record.
        let path = lab.data("a.log");
        let then = modified(&path);
        fs::write(&path, b"newer").unwrap();
        set_modified(&path, then);
        let reports = lab.recover_really(OTHER_BOOT, &[]).unwrap();
        let why = why(&reports);
        assert!(why.contains("emulated"), "{why}");
        assert!(
            why.contains("--discard") && why.contains("--force"),
            "{why}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(lab.lanes(), 1);
        let reports = lab.recover_really(OTHER_BOOT, options).unwrap();
        if options[0] == "--force" {
            assert_eq!(reports[0]["outcome"], "replayed");
            assert!(fs::read(&path).unwrap().starts_with(&content(1, 3000)));
        } else {
            assert_eq!(reports[0]["outcome"], "discarded");
            assert_eq!(fs::read(&path).unwrap(), b"newer");
        }
        assert_eq!(lab.lanes(), 0);
    }
    // Where the files hold what it says, nothing is lost with it.
    let lab = Lab::new();
    written(&lab).kill_both();
    let reports = lab.recover_really(OTHER_BOOT, &[]).unwrap();
    assert_eq!(reports[0]["outcome"], "synced");
    assert_eq!(lab.lanes(), 0);
}
