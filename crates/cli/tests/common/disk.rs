//! A file system of its own on a loop device, which can be cut off: what was not written back is
//! gone, as after a power cut.

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
            // Its inodes have no room for when a file was born.
            "ext4-128" => run("mkfs.ext4", &["-q", "-F", "-I", "128", path])?,
            "ext4-encrypt" => run("mkfs.ext4", &["-q", "-F", "-O", "encrypt", path])?,
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

    /// Mounts what is on the device. Those who used the file system must have ended. Another
    /// process's mount namespace may hold it a little longer: what it has in memory is written to
    /// the image when it lets go, so until then nothing else may use that.
    pub fn mount_again(&mut self) {
        patiently(|| run("umount", &[self.at.to_str().unwrap()]));
        run("losetup", &["-d", &self.device]).unwrap();
        let image = self.image.to_str().unwrap();
        patiently(|| match run("losetup", &["-j", image])? {
            none if none.is_empty() => Ok(()),
            held => Err(format!("the image is in use still: {held}")),
        });
        self.mount().unwrap();
    }
}

/// Does work that others may be in the way of for a moment, again and again.
pub fn patiently<T>(mut work: impl FnMut() -> Result<T, String>) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let begun = Instant::now();
    while let Err(why) = work() {
        assert!(begun.elapsed() < PATIENCE, "{why}");
        thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
        let _ = Command::new("losetup").arg("-d").arg(&self.device).output();
    }
}

/// What a program says if it succeeds.
pub fn run(program: &str, words: &[&str]) -> Result<String, String> {
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

/// A loop device over an image; detached in the end.
pub struct Loop {
    pub path: String,
}

impl Loop {
    /// With sectors of so many bytes; none where that cannot be made (no root, no loop device, a
    /// kernel that has no such sectors).
    pub fn of(image: &Path, sector_bytes: u32) -> Option<Self> {
        let sector = sector_bytes.to_string();
        let line = ["-f", "-P", "--show", "--sector-size", &sector];
        let made = run("losetup", &[&line[..], &[image.to_str()?]].concat());
        match made {
            Ok(path) => {
                let device = Self { path };
                // Nor does a device forget how much it was to take at a time.
                let queue = format!("/sys/block/{}/queue", device.name());
                if let Ok(most) = fs::read(format!("{queue}/max_hw_sectors_kb")) {
                    let _ = fs::write(format!("{queue}/max_sectors_kb"), most);
                }
                // The kernel chooses the size of its blocks at the first opening only, and another
                // test that looks for a free device may have this one open.
                let block = sector_bytes.max(4096).to_string();
                run("blockdev", &["--setbsz", &block, &device.path]).unwrap();
                Some(device)
            }
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    /// The name without the directory.
    pub fn name(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["-d", &self.path]);
    }
}

/// Something that is mounted; unmounted in the end.
pub struct Mounted(PathBuf);

impl Mounted {
    /// `device` at `at`, which is made.
    pub fn at(device: &str, at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        run("mount", &[device, at.to_str().unwrap()]).unwrap();
        Self(at.to_owned())
    }

    /// What is mounted there already.
    pub fn already(at: &Path) -> Self {
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.0.to_str().unwrap()]);
    }
}
