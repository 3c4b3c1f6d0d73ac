//! Disks that are files of this machine, and no faster than they are told to be: QEMU holds
//! requests back.

use crate::{Failure, run};
use forebay_device::{Cost, Profile};
use std::{
    fmt,
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

/// A disk.
pub struct Disk {
    /// Its file.
    pub image: PathBuf,
    /// How fast it is; as fast as the emulation without.
    pub limits: Option<Limits>,
}

/// What a disk does at most in a second. An operation is a request as it arrives, of any size and
/// anywhere; reads and writes share both. A flush counts nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests a second.
    pub operations: u64,
    /// Bytes a second.
    pub bytes: u64,
}

impl Limits {
    /// What a disk does that is so many times slower than the device whose built-in profile has
    /// this name; none without such a profile. Reads and writes are taken to be as many, and none
    /// to follow another.
    #[must_use]
    pub fn of(device: &str, slower: f64) -> Option<Self> {
        let profile = Profile::built_in(device)?;
        let mean = |of: fn(&Cost) -> f64| (of(&profile.read) + of(&profile.write)) / 2.0;
        let us = mean(|cost| cost.random_us);
        Some(Self {
            operations: (f64::from(profile.channels) * 1e6 / us / slower) as u64,
            bytes: (mean(|cost| cost.mb_s) * 1e6 / slower) as u64,
        })
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, bytes } = self;
        write!(f, "{operations} requests/s and {} MB/s", bytes / 1_000_000)
    }
}

/// The words of QEMU's command line for these disks: the guest has them as `/dev/vda`, `/dev/vdb`
/// and so on. What it flushes is in this machine's memory, and survives the guest's end, not this
/// machine's.
#[must_use]
pub fn words(disks: &[Disk]) -> Vec<String> {
    let mut words = Vec::new();
    for (number, disk) in disks.iter().enumerate() {
        let file = format!(
            "driver=file,filename={},cache.no-flush=on",
            disk.image.display()
        );
        let node = format!("node-name=disk{number}");
        match disk.limits {
            None => words.extend(["-blockdev".into(), format!("{file},{node}")]),
            Some(Limits { operations, bytes }) => words.extend([
                "-object".into(),
                format!(
                    r#"{{"qom-type":"throttle-group","id":"limits{number}","limits":{{"iops-total":{operations},"bps-total":{bytes}}}}}"#
                ),
                "-blockdev".into(),
                format!("{file},node-name=file{number}"),
                "-blockdev".into(),
                format!("driver=throttle,throttle-group=limits{number},file=file{number},{node}"),
            ]),
        }
        words.extend([
            "-device".into(),
            format!("virtio-blk-pci,drive=disk{number},write-cache=on"),
        ]);
    }
    words
}

/// Makes a file of zeros.
///
/// # Errors
/// I/O errors.
pub fn blank(image: &Path, bytes: u64) -> Result<(), Failure> {
    let made = File::create(image).and_then(|file| file.set_len(bytes));
    made.map_err(|e| format!("making {}: {e}", image.display()).into())
}

/// Makes a disk of ext4 with what is in the directory `files`, or empty. The file system has
/// `bytes`, behind `offset` bytes that are left free.
///
/// # Errors
/// I/O errors; mke2fs is not installed, or fails.
pub fn ext4(image: &Path, offset: u64, bytes: u64, files: Option<&Path>) -> Result<(), Failure> {
    blank(image, offset + bytes)?;
    let mut command = Command::new("/sbin/mke2fs");
    command
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-E"])
        // Nothing is left to be written once it is mounted.
        .arg(format!(
            "lazy_itable_init=0,lazy_journal_init=0,offset={offset}"
        ));
    if let Some(files) = files {
        command.arg("-d").arg(files);
    }
    run(command.arg(image).arg(format!("{}k", bytes >> 10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_so_many_times_slower_than_the_device() {
        let limits = Limits::of("hdd-15k-raid0x8", 10.0).unwrap();
        // Eight disks at 5.4 ms a read and 5.9 ms a write.
        assert_eq!((limits.operations, limits.bytes), (141, 120_000_000));
        assert_eq!(limits.to_string(), "141 requests/s and 120 MB/s");
        assert_eq!(Limits::of("no such device", 10.0), None);
    }

    #[test]
    fn a_limited_disk_has_a_throttle_of_its_own_before_its_file() {
        let disk = |limits| Disk {
            image: "/d".into(),
            limits,
        };
        let limits = Limits {
            operations: 142,
            bytes: 120_000_000,
        };
        let words = words(&[disk(None), disk(Some(limits))]);
        let file = "driver=file,filename=/d,cache.no-flush=on";
        let expected = [
            "-blockdev",
            &format!("{file},node-name=disk0"),
            "-device",
            "virtio-blk-pci,drive=disk0,write-cache=on",
            "-object",
            r#"{"qom-type":"throttle-group","id":"limits1","limits":{"iops-total":142,"bps-total":120000000}}"#,
            "-blockdev",
            &format!("{file},node-name=file1"),
            "-blockdev",
            "driver=throttle,throttle-group=limits1,file=file1,node-name=disk1",
            "-device",
            "virtio-blk-pci,drive=disk1,write-cache=on",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_file_system_stands_behind_the_room_that_is_left_free() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        ext4(&image, 8192, 16 << 20, None).unwrap();
        let bytes = std::fs::read(&image).unwrap();
        assert_eq!(bytes.len(), 8192 + (16 << 20));
        assert!(bytes[..8192].iter().all(|&byte| byte == 0));
        // The magic number of ext4's superblock, 1024 bytes into the file system.
        assert_eq!(bytes[8192 + 1024 + 0x38..][..2], [0x53, 0xEF]);
    }
}
