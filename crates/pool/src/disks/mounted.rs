//! File systems whose device number is no block device's: the storage that they lie on, by the
//! table of mounts.

use std::{
    fs,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

/// File systems that keep what they have in memory.
const IN_MEMORY: [&str; 5] = ["tmpfs", "ramfs", "devtmpfs", "rootfs", "hugetlbfs"];

/// The media below such a file system.
pub(super) enum BackingMedia {
    /// Memory; its kind.
    Memory(String),
    /// Devices, as far as they are known.
    Devices(Vec<u64>),
}

/// A line of the table of mounts.
struct MountEntry {
    kind: String,
    source: String,
    options: String,
}

/// The media below the file system with this device number.
pub(super) fn below(device: u64) -> BackingMedia {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some(mount) = table.lines().find_map(|line| parse(line, device)) else {
        return BackingMedia::Devices(Vec::new());
    };
    if IN_MEMORY.contains(&mount.kind.as_str()) {
        return BackingMedia::Memory(mount.kind);
    }
    BackingMedia::Devices(match mount.kind.as_str() {
        "btrfs" => of_btrfs(&mount.source),
        // What is written goes there.
        "overlay" => (option(&mount.options, "upperdir").into_iter())
            .filter_map(|upper| Some(fs::metadata(upper).ok()?.dev()))
            .filter(|upper| *upper != device)
            .collect(),
        _ => block(Path::new(&mount.source)).into_iter().collect(),
    })
}

/// The device number of the mount by which a file was opened: a directory of btrfs has another one
/// than its mount.
pub(super) fn device_of(file: BorrowedFd<'_>) -> Option<u64> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = about
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?
        .trim();
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut words = table.lines().map(|line| line.split(' '));
    let device =
        words.find_map(|mut words| (words.next() == Some(mount)).then(|| words.nth(1))?)?;
    let (major, minor) = device.split_once(':')?;
    Some(rustix::fs::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

/// A line, if it is this device's: number, parent, device, root, mount point, options, …, -, kind,
/// source, options.
fn parse(line: &str, device: u64) -> Option<MountEntry> {
    let (left, right) = line.split_once(" - ")?;
    let (major, minor) = left.split(' ').nth(2)?.split_once(':')?;
    let found = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let mut right = right.split(' ');
    let mut next = || right.next().map(str::to_owned);
    let (kind, source, options) = (next()?, next()?, next()?);
    (found == device).then_some(MountEntry {
        kind,
        source,
        options,
    })
}

fn option(options: &str, name: &str) -> Option<PathBuf> {
    let mut options = options.split(',');
    let found = options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))?;
    Some(PathBuf::from(found.replace("\\040", " ")))
}

/// The number of a block device.
fn block(path: &Path) -> Option<u64> {
    let found = fs::metadata(path).ok()?;
    found.file_type().is_block_device().then(|| found.rdev())
}

/// All devices of the file system that has this one.
fn of_btrfs(source: &str) -> Vec<u64> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let number = |device: &Path| {
        let text = fs::read_to_string(device.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(rustix::fs::makedev(
            major.parse().ok()?,
            minor.parse().ok()?,
        ))
    };
    let own = block(Path::new(source));
    let all = entries(Path::new("/sys/fs/btrfs")).map(|one| {
        let devices = entries(&one.path().join("devices"));
        let devices = devices.filter_map(|device| number(&device.path()));
        devices.collect::<Vec<u64>>()
    });
    let mut its = all.filter(|devices| own.is_some_and(|own| devices.contains(&own)));
    its.next().unwrap_or_else(|| own.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_of_a_device_is_understood() {
        let line = "30 25 0:31 / /data rw,relatime shared:1 - overlay overlay rw,lowerdir=/l,upperdir=/u\\040p,workdir=/w";
        let device = rustix::fs::makedev(0, 31);
        let mount = parse(line, device).unwrap();
        assert_eq!(mount.kind, "overlay");
        let upper = option(&mount.options, "upperdir");
        assert_eq!(upper, Some(PathBuf::from("/u p")));
        assert!(parse(line, rustix::fs::makedev(8, 1)).is_none());
        assert!(parse("nonsense", device).is_none());
    }
}
