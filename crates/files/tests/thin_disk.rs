//! A disk behind the files that has less room than it says: what could not be written back is on it once a sync has succeeded again.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Lab, content, eventually, succeed};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

const BYTES: usize = 30_000;
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";

/// A file system on a sparse image, which lies on a small tmpfs.
struct Thin {
    lower: PathBuf,
    at: PathBuf,
    device: PathBuf,
}

fn run(words: &[&str], paths: &[&Path]) -> Result<(), String> {
    succeed(Command::new(words[0]).args(&words[1..]).args(paths))
}

/// A loop device over an image. What it writes at a time is a page: of more it takes for done what the image had only in part room for.
fn device_of(image: &Path) -> Result<PathBuf, String> {
    let mut set_up = Command::new("losetup");
    let made = set_up.args(["-f", "--show"]).arg(image).output();
    let made = made.map_err(|e| e.to_string())?;
    let device = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    let name = device.strip_prefix("/dev/").ok_or("no loop device")?;
    let pages = format!("/sys/block/{name}/queue/max_sectors_kb");
    fs::write(pages, "4").map_err(|e| e.to_string())?;
    Ok(PathBuf::from(device))
}

impl Thin {
    fn mount(lab: &Lab, make: &[&str]) -> Result<Self, String> {
        let mut thin = Self {
            lower: lab.home.path().join("lower"),
            at: lab.home.path().join("data"),
            device: PathBuf::new(),
        };
        fs::create_dir(&thin.lower).unwrap();
        run(
            &["mount", "-t", "tmpfs", "-o", "size=96m", "none"],
            &[&thin.lower],
        )?;
        let image = thin.lower.join("image");
        File::create(&image).unwrap().set_len(400 << 20).unwrap();
        run(make, &[&image])?;
        thin.device = device_of(&image)?;
        run(&["mount"], &[&thin.device, &thin.at])?;
        // Its journal gets its place.
        for round in 0..300 {
            let file = File::create(thin.at.join(format!("f{}", round % 7))).unwrap();
            std::io::Write::write_all(&mut &file, &[7; 5000]).unwrap();
            file.sync_all().unwrap();
        }
        Ok(thin)
    }

    fn fill(&self, left: u64) {
        let free = rustix::fs::statvfs(&self.lower).unwrap();
        let ballast = File::create(self.lower.join("ballast")).unwrap();
        let bytes = free.f_bavail * free.f_frsize - left;
        rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
    }

    fn make_room(&self) {
        fs::remove_file(self.lower.join("ballast")).unwrap();
    }

    /// What is on the disk, and nothing that is in memory.
    fn mount_again(&self) {
        assert!(eventually(|| run(&["umount"], &[&self.at]).is_ok()));
        run(&["mount"], &[&self.device, &self.at]).unwrap();
    }
}

/// A device keeps the limit when it is another file's.
fn lift_limit(device: &Path) -> std::io::Result<()> {
    let queue = Path::new("/sys/block")
        .join(device.file_name().unwrap_or_default())
        .join("queue");
    let most = fs::read(queue.join("max_hw_sectors_kb"))?;
    fs::write(queue.join("max_sectors_kb"), most)
}

impl Drop for Thin {
    fn drop(&mut self) {
        let _ = lift_limit(&self.device);
        let _ = run(&["umount", "-l"], &[&self.at]);
        let _ = run(&["losetup", "-d"], &[&self.device]);
        let _ = run(&["umount", "-l"], &[&self.lower]);
    }
}

fn nothing_is_lost(make: &[&str]) {
    let lab = Lab::new();
    let thin = match Thin::mount(&lab, make) {
        Ok(thin) => thin,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let mut run = lab.run();
    let path = lab.data("a.log");
    run.open("a", &path, libc::O_RDWR | libc::O_CREAT | libc::O_APPEND);
    thin.fill(1 << 20);
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
    thin.make_room();
    assert!(eventually(|| run.call("sync a").is_ok()), "it stays so");
    // The lane gives its records up.
    thread::sleep(Duration::from_millis(2500));
    run.kill_both();
    thin.mount_again();
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

/// Promise: as `what_is_written_again_after_a_failed_write_back_is_on_the_disk`.
#[test]
fn what_an_ext4_could_not_write_back_is_there_once_it_is_synced() {
    (0..3).for_each(|_| nothing_is_lost(&["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4"]));
}

/// Promise: as `what_is_written_again_after_a_failed_write_back_is_on_the_disk`.
#[test]
fn what_an_xfs_could_not_write_back_is_there_once_it_is_synced() {
    nothing_is_lost(&["mkfs.xfs", "-q"]);
}
