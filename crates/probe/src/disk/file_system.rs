//! The file system that holds a directory, and its device.

use rustix::fs::{Access, major, minor, stat};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A mounted file system.
#[derive(Clone, Debug, Serialize)]
pub struct FileSystem {
    /// Its type, as in `ext4`.
    pub kind: String,
    /// Its mount point.
    pub mount_point: String,
    /// The mounted device or file system, as in `/dev/sda1`.
    pub source: String,
    /// Its options, comma-separated.
    pub options: String,
}

impl FileSystem {
    /// True if files on it can be mapped as persistent memory.
    #[must_use]
    pub fn is_dax(&self) -> bool {
        self.options
            .split(',')
            .any(|o| matches!(o, "dax" | "dax=always"))
    }

    /// True if it lies in ordinary memory.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs" | "devtmpfs")
    }
}

/// The file system that holds `path`: the last mount over its longest prefix.
#[must_use]
pub fn file_system(path: &Path) -> Option<FileSystem> {
    let path = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts
        .lines()
        .filter_map(parse_mount)
        .filter(|mount| path.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.len())
}

/// One line of mountinfo: `id parent MAJ:MIN root mount-point options … - type source
/// super-options`.
fn parse_mount(line: &str) -> Option<FileSystem> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    Some(FileSystem {
        mount_point: left.get(4)?.replace("\\040", " "),
        kind: right.next()?.to_owned(),
        source: right.next()?.to_owned(),
        options: format!("{},{}", left.get(5)?, right.next().unwrap_or_default()),
    })
}

/// The name of the block device that holds `path`, as in `nvme0n1p2`, if one does: files in memory,
/// or on the network, have none.
#[must_use]
pub fn device_of(path: &Path) -> Option<String> {
    let device = stat(path).ok()?.st_dev;
    named((major(device), minor(device))).or_else(|| {
        // File systems over several devices (btrfs) have a number of their own: ask the mount.
        let source = file_system(path)?.source;
        let device = stat(source.as_str()).ok()?.st_rdev;
        named((major(device), minor(device)))
    })
}

/// By `/proc/diskstats`: `major minor name …`.
fn named((major, minor): (u32, u32)) -> Option<String> {
    let table = fs::read_to_string("/proc/diskstats").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let mut number = || fields.next()?.parse::<u32>().ok();
        let is_it = (number()?, number()?) == (major, minor);
        fields.next().filter(|_| is_it).map(str::to_owned)
    })
}

/// A directory in memory, if the system has one that may be written to; or else the one for
/// temporary files.
#[must_use]
pub fn memory_dir() -> PathBuf {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() && rustix::fs::access(shm, Access::WRITE_OK).is_ok() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_line_is_read() {
        let line = "36 35 259:1 / /mnt/p\\040m rw,noatime shared:1 - ext4 /dev/pmem0 rw,dax=always";
        let mount = parse_mount(line).unwrap();
        assert!(mount.is_dax() && !mount.is_memory());
        assert_eq!(
            (mount.mount_point.as_str(), mount.source.as_str()),
            ("/mnt/p m", "/dev/pmem0")
        );
        let line = "25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw";
        assert!(parse_mount(line).unwrap().is_memory());
    }

    #[test]
    fn files_in_memory_have_no_block_device() {
        assert_eq!(device_of(Path::new("/proc/self")), None);
    }
}
