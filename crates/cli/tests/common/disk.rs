//! A file system of its own on a loop device, which can be cut off: what was not written back is gone, as after a power cut.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// mkfs.xfs refuses less than 300 MB. The image is sparse.
const BYTES: u64 = 768 << 20;

/// The file system, mounted at `at`; unmounted in the end.
pub struct Disk {
    image: PathBuf,
    pub at: PathBuf,
    device: String,
}

impl Disk {
    /// An ext4 or XFS in `dir`; none where that cannot be made (no root, no loop device).
    pub fn make(dir: &Path, kind: &str) -> Option<Self> {
        match Self::try_make(dir, kind) {
            Ok(disk) => Some(disk),
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    fn try_make(dir: &Path, kind: &str) -> Result<Self, String> {
        let (image, at) = (dir.join("image"), dir.join("mounted"));
        File::create(&image).unwrap().set_len(BYTES).unwrap();
        fs::create_dir(&at).unwrap();
        run("xfs_io", &["-V"])?;
        let path = image.to_str().unwrap();
        match kind {
            "xfs" => run("mkfs.xfs", &["-q", path])?,
            _ => run("mkfs.ext4", &["-q", "-F", path])?,
        };
        let mut disk = Self {
            image,
            at,
            device: String::new(),
        };
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&mut self) -> Result<(), String> {
        self.device = run("losetup", &["-f", "--show", self.image.to_str().unwrap()])?;
        run("mount", &[&self.device, self.at.to_str().unwrap()]).map(drop)
    }

    /// Writes back what is in memory.
    pub fn sync(&self) {
        run("sync", &["--file-system", self.at.to_str().unwrap()]).unwrap();
    }

    /// From now on nothing reaches the device, and what is in memory only is lost.
    pub fn cut(&self) {
        let words = ["-x", "-c", "shutdown", self.at.to_str().unwrap()];
        run("xfs_io", &words).unwrap();
    }

    /// Mounts what is on the device. Those who used the file system must have ended.
    pub fn mount_again(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(30);
        let begun = Instant::now();
        while let Err(why) = run("umount", &[self.at.to_str().unwrap()]) {
            assert!(begun.elapsed() < PATIENCE, "{why}");
            thread::sleep(Duration::from_millis(20));
        }
        run("losetup", &["-d", &self.device]).unwrap();
        self.mount().unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
        let _ = Command::new("losetup").arg("-d").arg(&self.device).output();
    }
}

/// What a program says if it succeeds.
fn run(program: &str, words: &[&str]) -> Result<String, String> {
    let done = Command::new(program)
        .args(words)
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        false => Err(format!(
            "{program} {words:?}: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        )),
    }
}
