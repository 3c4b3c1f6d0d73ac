//! A real ext4 that is shut down in the middle of writes: what the variant `fsync` acknowledged is
//! on the disk.
//!
//! The kernel is told to abort the file system (as it does by itself after an error of the
//! journal), so nothing that is in its memory only reaches the disk any more. Needs root, a loop
//! device, and the packages `e2fsprogs` and `xfsprogs` (scripts/setup.sh test); where something is
//! missing it says so and passes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_store::{Durability, StoreOptions};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

const DISK_BYTES: u64 = 192 << 20;
/// Enough that a file system which loses a block now and then loses one.
const ROUNDS: u64 = 15;

fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!(
            "{program} {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// An ext4 of its own on a loop device, unmounted at the end.
struct Ext4 {
    image: PathBuf,
    at: PathBuf,
    device: String,
}

impl Ext4 {
    fn make(dir: &Path) -> Result<Self, String> {
        let (image, at) = (dir.join("image"), dir.join("mounted"));
        File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        fs::create_dir(&at).unwrap();
        run("xfs_io", &["-V"])?;
        run("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()])?;
        let mut disk = Self {
            image,
            at,
            device: String::new(),
        };
        disk.mount()?;
        Ok(disk)
    }

    /// On another device each time: a process with mounts of its own may still hold the file system
    /// that was shut down.
    fn mount(&mut self) -> Result<(), String> {
        self.device = run("losetup", &["-f", "--show", self.image.to_str().unwrap()])?;
        run("mount", &[&self.device, self.at.to_str().unwrap()])?;
        Ok(())
    }

    fn shut_down(&self) -> Result<(), String> {
        run(
            "xfs_io",
            &["-x", "-c", "shutdown", self.at.to_str().unwrap()],
        )?;
        Ok(())
    }

    fn unmount(&self) -> Result<(), String> {
        run("umount", &[self.at.to_str().unwrap()])?;
        run("losetup", &["-d", &self.device])?;
        Ok(())
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
        let _ = Command::new("losetup").arg("-d").arg(&self.device).output();
    }
}

fn key(round: u64, i: u64) -> Vec<u8> {
    format!("{round} {i}").into_bytes()
}

fn value(i: u64) -> Vec<u8> {
    vec![(i % 255) as u8 + 1; 100 + (i as usize * 37) % 3000]
}

/// Promise (store): Writes that an `fsync` store acknowledged are there after the kernel aborted an
/// ext4 in the middle of writes.
#[test]
fn writes_acknowledged_before_an_ext4_shutdown_are_there_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = match Ext4::make(dir.path()) {
        Ok(disk) => disk,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let options = StoreOptions::new()
        .close_on_drop(false)
        .durability(Durability::Fsync)
        .gc(false)
        .file_size(4 << 20)
        .segment_size(256 << 10);
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let store = options.open(disk.at.join("store"), None).unwrap();
        let written = thread::scope(|scope| {
            let writer =
                scope.spawn(|| (0..).find(|&i| store.put(&key(round, i), &value(i)).is_err()));
            thread::sleep(Duration::from_millis(150 + 13 * round));
            disk.shut_down().unwrap();
            writer.join().unwrap().unwrap()
        });
        drop(store);
        acknowledged.push(written);
        disk.unmount().unwrap();
        disk.mount().unwrap();
        let store = options.open(disk.at.join("store"), None).unwrap();
        for (round, &written) in acknowledged.iter().enumerate() {
            for i in 0..written {
                let found = store.get(&key(round as u64, i)).unwrap();
                assert!(
                    found.is_some_and(|found| found == value(i)),
                    "round {round}: put {i} of {written} is not there"
                );
            }
        }
        store.close().unwrap();
    }
    assert!(
        acknowledged.iter().sum::<u64>() > ROUNDS,
        "{acknowledged:?}"
    );
}
