//! The kernel's list of mounts, and of disks that nothing uses.

use forebay_pool::disk_signatures;
use forebay_probe::disk;
use rustix::fs::{Mode, OFlags};
use std::{
    fs,
    io::{Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// A file system on a block device.
#[derive(Clone, Debug)]
pub struct DiskMount {
    /// A directory where it is mounted.
    pub point: PathBuf,
    /// The number of its device.
    pub device: u64,
    /// Its device's path.
    pub source: String,
    /// `ext4` and the like.
    pub kind: String,
    /// It is persistent memory that programs may map.
    pub is_dax: bool,
}

/// File systems on block devices that may be written to, each once.
pub fn mounts() -> Vec<DiskMount> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<DiskMount> = Vec::new();
    for mount in text.lines().filter_map(parse) {
        if !found.iter().any(|other| other.device == mount.device) {
            found.push(mount);
        }
    }
    found
}

/// The one that `path` is on. A directory of btrfs may have another device's number than its mount:
/// that is found by its place.
pub fn mount_of(path: &Path) -> Option<DiskMount> {
    let device = fs::metadata(path).ok()?.dev();
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounts: Vec<DiskMount> = text.lines().filter_map(parse).collect();
    let by_number = mounts.iter().find(|mount| mount.device == device);
    let by_place = || {
        let found = disk::file_system(path)?;
        let at = Path::new(&found.mount_point);
        mounts.iter().rfind(|mount| mount.point == at)
    };
    by_number.or_else(by_place).cloned()
}

/// A line of mountinfo: number, parent, device, root, mount point, options, …, -, kind, source,
/// options.
fn parse(line: &str) -> Option<DiskMount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let device = number(left.next()?)?;
    let point = PathBuf::from(plain(left.nth(1)?));
    let is_writable = left.next()?.split(',').any(|option| option == "rw");
    let mut right = right.split(' ');
    let (kind, source, options) = (right.next()?, right.next()?, right.next()?);
    let is_dax = options
        .split(',')
        .any(|option| option == "dax" || option == "dax=always");
    (is_writable && source.starts_with("/dev/") && point.is_dir()).then(|| DiskMount {
        point,
        device,
        source: plain(source),
        kind: kind.to_owned(),
        is_dax,
    })
}

/// Without the kernel's octal escapes.
fn plain(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn number(device: &str) -> Option<u64> {
    let (major, minor) = device.split_once(':')?;
    Some(rustix::fs::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

/// Disks and partitions that nothing uses, and on which nothing is found. They are read, and that
/// is all.
pub fn unused() -> Vec<PathBuf> {
    let entries = |path: &Path| -> Vec<PathBuf> {
        let found = fs::read_dir(path).into_iter().flatten().flatten();
        found.map(|entry| entry.path()).collect()
    };
    let mut found: Vec<PathBuf> = entries(Path::new("/sys/block"))
        .into_iter()
        .flat_map(|disk| {
            let parts = entries(&disk)
                .into_iter()
                .filter(|part| part.join("partition").exists());
            parts.chain([disk.clone()]).collect::<Vec<_>>()
        })
        .filter_map(|at| Some(Path::new("/dev").join(at.file_name()?)))
        .filter(|device| is_unused(device))
        .collect();
    found.sort();
    found
}

fn is_unused(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let other = ["loop", "ram", "zram", "sr", "fd", "nbd", "pmem"];
    if other.iter().any(|kind| name.starts_with(kind)) {
        return false;
    }
    // Refused while it is mounted, or part of something.
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(open) = rustix::fs::open(device, flags, Mode::empty()) else {
        return false;
    };
    let mut file = fs::File::from(open);
    let found = file
        .seek(SeekFrom::End(0))
        .and_then(|bytes| disk_signatures::find(&file, bytes));
    found.is_ok_and(|found| found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mounts_is_understood_and_others_are_left_out() {
        let line = |point: &str, mode: &str, source: &str| {
            format!("36 35 8:2 / {point} {mode},noatime shared:1 - ext4 {source} rw,dax=always")
        };
        let found = parse(&line("/tmp", "rw", "/dev/sd\\040a2")).unwrap();
        assert_eq!(found.device, rustix::fs::makedev(8, 2));
        assert_eq!(
            (found.source.as_str(), found.kind.as_str()),
            ("/dev/sd a2", "ext4")
        );
        assert!(found.is_dax);
        assert!(parse(&line("/tmp", "ro", "/dev/sda2")).is_none());
        assert!(parse(&line("/tmp", "rw", "tmpfs")).is_none());
        assert!(parse(&line("/no/such/directory", "rw", "/dev/sda2")).is_none());
        assert!(parse("nonsense").is_none());
    }
}
