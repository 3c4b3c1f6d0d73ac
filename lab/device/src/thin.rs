//! A disk that has less room than it says: a file system on a sparse image, which lies on a small
//! tmpfs. Once that is full, write-back fails, page by page, until there is room again. Needs root.
//!
//! For tests: what cannot be set up is said in words, for the test to be skipped.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

const LOWER: &str = "size=160m";
/// More than there is room for, and the least that XFS takes.
const IMAGE_BYTES: u64 = 400 << 20;
const UNMOUNT_MAX: Duration = Duration::from_secs(20);

/// The disk. It is unmounted and gone when this is dropped.
pub struct ThinDisk {
    lower: PathBuf,
    mounted: PathBuf,
    device: PathBuf,
    options: Option<&'static str>,
}

fn run(words: &[&str], paths: &[&Path]) -> Result<String, String> {
    let failed = |why: String| format!("{}: {why}", words.join(" "));
    let done = Command::new(words[0])
        .args(&words[1..])
        .args(paths)
        .output();
    let done = done.map_err(|e| failed(e.to_string()))?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        false => Err(failed(String::from_utf8_lossy(&done.stderr).into_owned())),
    }
}

impl ThinDisk {
    /// In directory `home`, mounted at the directory `mounted`; `make` makes the file system, and
    /// `options` mount it.
    ///
    /// # Errors
    /// In words: what cannot be done here.
    pub fn mount(
        home: &Path,
        mounted: &Path,
        make: &[&str],
        options: Option<&'static str>,
    ) -> Result<Self, String> {
        let mut disk = Self {
            lower: home.join("lower"),
            mounted: mounted.to_owned(),
            device: PathBuf::new(),
            options,
        };
        let said = |e: std::io::Error| e.to_string();
        fs::create_dir(&disk.lower).map_err(said)?;
        run(
            &["mount", "-t", "tmpfs", "-o", LOWER, "none"],
            &[&disk.lower],
        )?;
        let image = disk.lower.join("image");
        let made = File::create(&image).and_then(|image| image.set_len(IMAGE_BYTES));
        made.map_err(said)?;
        run(make, &[&image])?;
        disk.device = PathBuf::from(run(&["losetup", "-f", "--show"], &[&image])?);
        // A page at a time: of more the device takes for done what there was only in part room for.
        fs::write(disk.queue().join("max_sectors_kb"), "4").map_err(said)?;
        disk.mount_device()?;
        disk.settle().map_err(said)?;
        Ok(disk)
    }

    /// The file system's journal gets its room.
    fn settle(&self) -> std::io::Result<()> {
        for round in 0..300 {
            let mut file = File::create(self.mounted.join(format!("settle-{}", round % 7)))?;
            file.write_all(&[7; 5000])?;
            file.sync_all()?;
        }
        Ok(())
    }

    fn queue(&self) -> PathBuf {
        let name = self.device.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join("queue")
    }

    fn mount_device(&self) -> Result<(), String> {
        let options = self.options.map(|options| ["-o", options]);
        let words = ["mount"].iter().chain(options.iter().flatten());
        let words: Vec<&str> = words.copied().collect();
        run(&words, &[&self.device, &self.mounted]).map(drop)
    }

    /// Leaves so many bytes of the room below.
    ///
    /// # Errors
    /// The kernel's.
    pub fn fill(&self, left: u64) -> std::io::Result<()> {
        let free = rustix::fs::statvfs(&self.lower)?;
        let bytes = (free.f_bavail * free.f_frsize).saturating_sub(left);
        let ballast = File::create(self.lower.join("ballast"))?;
        let flags = rustix::fs::FallocateFlags::empty();
        Ok(rustix::fs::fallocate(&ballast, flags, 0, bytes)?)
    }

    /// There is room again. A file system that became read-only meanwhile is writable again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make_room(&self) -> std::io::Result<()> {
        fs::remove_file(self.lower.join("ballast"))?;
        if self.options.is_some_and(|it| it.contains("remount-ro")) {
            let _ = run(&["mount", "-o", "remount,rw"], &[&self.mounted]);
        }
        Ok(())
    }

    /// Shows what is on the disk, and nothing that is in memory only.
    ///
    /// # Errors
    /// In words.
    pub fn mount_again(&self) -> Result<(), String> {
        let begun = Instant::now();
        while let Err(why) = run(&["umount"], &[&self.mounted]) {
            if begun.elapsed() > UNMOUNT_MAX {
                return Err(why);
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.mount_device()
    }
}

impl Drop for ThinDisk {
    fn drop(&mut self) {
        let _ = run(&["umount", "-l"], &[&self.mounted]);
        if !self.device.as_os_str().is_empty() {
            // A loop device keeps its limit when it is another file's.
            let most = fs::read(self.queue().join("max_hw_sectors_kb"));
            let _ = most.and_then(|most| fs::write(self.queue().join("max_sectors_kb"), most));
            let _ = run(&["losetup", "-d"], &[&self.device]);
        }
        let _ = run(&["umount", "-l"], &[&self.lower]);
    }
}
