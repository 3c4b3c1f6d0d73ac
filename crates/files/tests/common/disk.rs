//! A file system of a laboratory's own, which can be cut off as by a device that goes away.

use super::{Lab, succeed};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

/// A file system that has the laboratory's data, unmounted whatever becomes of the test.
pub struct Disk {
    image: PathBuf,
    /// Where it is mounted.
    pub at: PathBuf,
}

impl Disk {
    /// A new one, made by these words. None, which is said, where there is none to be had.
    pub fn mount(lab: &Lab, make: &[&str], megabytes: u64) -> Option<Self> {
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
            return None;
        }
        Some(Self { image, at })
    }

    /// From now on it writes its journal only when it is asked to (ext4).
    pub fn commit_by_itself_no_more(&self) {
        let mut again = Command::new("mount");
        again.args(["-o", "remount,commit=3600"]).arg(&self.at);
        succeed(&mut again).unwrap();
    }

    /// What a device that goes away does to it: nothing reaches the disk any more.
    pub fn shut_down(&self) {
        // FS_IOC_SHUTDOWN, without writing the journal.
        let script = "import fcntl, os, struct, sys\n\
                      fcntl.ioctl(os.open(sys.argv[1], 0), 0x8004587D, struct.pack('I', 2))";
        let mut shut = Command::new("python3");
        let shut = shut.args(["-c", script]).arg(&self.at);
        succeed(shut).unwrap();
    }

    /// Mounts it anew after it was [shut down](Self::shut_down): what it had in memory is gone.
    /// False if a process elsewhere, in a mount namespace of its own, keeps the old file system.
    pub fn mount_again(&self) -> bool {
        succeed(Command::new("umount").arg(&self.at)).unwrap();
        let is_kept = || {
            let devices = Command::new("losetup").arg("-j").arg(&self.image).output();
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
        mount(&self.image, &self.at).unwrap();
        true
    }

    /// What a snapshot of its volume is, mounted at `at`, which is made: it has all that was
    /// written until now.
    pub fn cloned(&self, at: &Path) -> Self {
        succeed(Command::new("sync").arg("--file-system").arg(&self.at)).unwrap();
        let image = at.with_extension("image");
        super::copy(self.image.to_str().unwrap(), &image);
        fs::create_dir(at).unwrap();
        mount(&image, at).unwrap();
        let at = at.to_owned();
        Self { image, at }
    }

    /// Takes it away from where it is.
    pub fn unmount(&self) {
        let mut busy = 0;
        while let Err(why) = succeed(Command::new("umount").arg(&self.at)) {
            assert!(busy < 500, "{why}");
            busy += 1;
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Mounts it there.
    pub fn mount_at(&mut self, at: &Path) {
        mount(&self.image, at).unwrap();
        self.at = at.to_owned();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = succeed(Command::new("umount").args(["-l"]).arg(&self.at));
    }
}

fn mount(image: &Path, at: &Path) -> Result<(), String> {
    let with = |options| {
        let mut mount = Command::new("mount");
        succeed(mount.args(["-o", options]).arg(image).arg(at))
    };
    // XFS mounts no two of the same number without that; others do not know it.
    with("loop").or_else(|why| with("loop,nouuid").map_err(|_| why))
}
