//! Finds the disks or memory that a file lies on, by the kernel's word. It follows down whatever is
//! between: partitions, loop devices, the device mapper and arrays (by what sysfs says is below
//! them), and file systems that have no device number of their own (btrfs, overlayfs).

mod mounted;

use crate::sysfs;
use std::{
    collections::BTreeSet,
    fs,
    os::{
        fd::BorrowedFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
};

/// Layers that are followed, at most.
const LAYERS_MAX: usize = 32;
/// Block devices that keep what they have in memory.
const IN_MEMORY: [&str; 3] = ["ram", "zram", "nullb"];
/// As a disk's model; with the module's own devices.
const MODEL_IN_MEMORY: &str = "scsi_debug";

/// The disks and memory at the bottom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackingStore {
    /// Names of disks. None is known of a network file system, for instance.
    pub disks: BTreeSet<String>,
    /// Names of the layers between: arrays, volumes of the device mapper.
    pub layers: BTreeSet<String>,
    /// The parts that are memory, in words: gone after a power cut.
    pub memory: BTreeSet<String>,
}

impl BackingStore {
    /// The storage below a device: a block device's number, or a file system's.
    #[must_use]
    pub fn of_device(device: u64) -> Self {
        let mut ground = Self::default();
        ground.add_device(device, LAYERS_MAX);
        ground
    }

    /// The storage below an open file, or below the block device that it is.
    #[must_use]
    pub fn of(file: BorrowedFd<'_>) -> Self {
        let Ok(stat) = rustix::fs::fstat(file) else {
            return Self::default();
        };
        match rustix::fs::FileType::from_raw_mode(stat.st_mode).is_block_device() {
            true => Self::of_device(stat.st_rdev),
            false => Self::of_device(stat.st_dev).or_else(|| {
                let mounted = mounted::device_of(file).map(Self::of_device);
                mounted.unwrap_or_default()
            }),
        }
    }

    fn or_else(self, other: impl FnOnce() -> Self) -> Self {
        match self.is_unknown() {
            true => other(),
            false => self,
        }
    }

    /// True if something is known of both to be the same disk.
    #[must_use]
    pub fn shares_with(&self, other: &Self) -> bool {
        !self.disks.is_disjoint(&other.disks)
    }

    /// True if nothing is known of it.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.disks.is_empty() && self.memory.is_empty()
    }

    fn add_device(&mut self, device: u64, layers: usize) {
        let Some(layers) = layers.checked_sub(1) else {
            return;
        };
        match sysfs::of_block_device(device) {
            Some(at) => self.add_block(&at, layers),
            None => self.add_mounted(device, layers),
        }
    }

    /// A file system without a device of its own.
    fn add_mounted(&mut self, device: u64, layers: usize) {
        match mounted::below(device) {
            mounted::BackingMedia::Memory(kind) => {
                self.memory.insert(kind);
            }
            mounted::BackingMedia::Devices(devices) => {
                for device in devices {
                    self.add_device(device, layers);
                }
            }
        }
    }

    /// A block device's directory in sysfs.
    fn add_block(&mut self, at: &Path, layers: usize) {
        let Some(layers) = layers.checked_sub(1) else {
            return;
        };
        if at.join("partition").exists() {
            if let Some(disk) = at.parent() {
                self.add_block(disk, layers);
            }
            return;
        }
        if at.join("loop").exists() {
            return self.add_backing(at, layers);
        }
        let slaves = fs::read_dir(at.join("slaves")).into_iter().flatten();
        let below: Vec<_> = slaves
            .flatten()
            .filter_map(|slave| fs::canonicalize(slave.path()).ok())
            .collect();
        for slave in &below {
            self.add_block(slave, layers);
        }
        let Some(name) = at.file_name().map(|name| name.to_string_lossy()) else {
            return;
        };
        match below.is_empty() {
            true => self.add_bottom(at, &name),
            false => {
                self.layers.insert(name.into_owned());
            }
        }
    }

    /// Adds the storage below the file of a loop device: found by its path, or, if it was removed,
    /// by its old place.
    fn add_backing(&mut self, at: &Path, layers: usize) {
        const REMOVED: &str = " (deleted)";
        let path = fs::read_to_string(at.join("loop/backing_file")).unwrap_or_default();
        let path = path.trim_end_matches('\n');
        let was_at = Path::new(path.strip_suffix(REMOVED).unwrap_or_default());
        let places = std::iter::once(Path::new(path)).chain(was_at.ancestors().skip(1));
        let places = places.filter(|place| place.is_absolute());
        let found = places.filter_map(|place| fs::metadata(place).ok()).next();
        match (found, at.file_name()) {
            (Some(found), _) if found.file_type().is_block_device() => {
                self.add_device(found.rdev(), layers);
            }
            (Some(found), _) => self.add_device(found.dev(), layers),
            (None, Some(name)) => {
                self.disks.insert(name.to_string_lossy().into_owned());
            }
            (None, None) => {}
        }
    }

    fn add_bottom(&mut self, at: &Path, name: &str) {
        let is_kind = |kind: &str| {
            let number = name.strip_prefix(kind);
            number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let model = fs::read_to_string(at.join("device/model")).unwrap_or_default();
        match IN_MEMORY.iter().any(|kind| is_kind(kind)) || model.contains(MODEL_IN_MEMORY) {
            true => self.memory.insert(name.to_owned()),
            false => self.disks.insert(name.to_owned()),
        };
    }
}

/// The names of the disks below a device: of a partition the disk's, of a volume its disks', of a
/// loop device its file's.
#[must_use]
pub fn whole(device: u64) -> Vec<String> {
    BackingStore::of_device(device).disks.into_iter().collect()
}

/// The disks below an open file, or below the block device that it is.
#[must_use]
pub fn of(file: BorrowedFd<'_>) -> Vec<String> {
    BackingStore::of(file).disks.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn two_files_of_a_directory_lie_on_the_same_disks() {
        let program = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let [one, other] = ["one", "other"].map(|name| fs::File::create(dir.path().join(name)));
        assert_eq!(of(one.unwrap().as_fd()), of(other.unwrap().as_fd()));
        // Memory is no disk.
        let memory = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(of(memory.as_fd()).is_empty());
    }

    #[test]
    fn file_in_memory_lies_in_memory() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        let file = fs::File::create(dir.path().join("one")).unwrap();
        let ground = BackingStore::of(file.as_fd());
        assert!(ground.memory.contains("tmpfs"), "{ground:?}");
        assert!(ground.disks.is_empty(), "{ground:?}");
    }
}
