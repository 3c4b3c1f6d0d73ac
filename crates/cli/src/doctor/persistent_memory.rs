//! Persistent memory that the kernel shows.

use forebay_probe::disk::{FileSystem, file_system};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The persistent memory found.
#[derive(Debug, Default, Serialize)]
pub struct PersistentMemory {
    /// Block devices: `/dev/pmemN`.
    pub block: Vec<PmemBlockDevice>,
    /// Character devices: `/dev/daxX.Y`.
    pub devdax: Vec<PersistentDevice>,
    /// Regions that the kernel's nvdimm bus has, with or without a namespace on them.
    pub regions: Vec<PersistentDevice>,
}

/// A device.
#[derive(Debug, Serialize)]
pub struct PersistentDevice {
    /// Its path, or name on the bus.
    #[serde(serialize_with = "forebay_files::readable")]
    pub path: PathBuf,
    /// Its size.
    pub bytes: Option<u64>,
}

/// A block device of persistent memory.
#[derive(Debug, Serialize)]
pub struct PmemBlockDevice {
    /// The device.
    #[serde(flatten)]
    pub device: PersistentDevice,
    /// The file system on it, if it is mounted.
    pub mount: Option<FileSystem>,
}

impl PersistentMemory {
    /// True if there is nothing.
    pub fn is_empty(&self) -> bool {
        self.block.is_empty() && self.devdax.is_empty() && self.regions.is_empty()
    }

    /// In words.
    pub fn human(&self) -> String {
        if self.is_empty() {
            return "none that the kernel shows (no /dev/pmem*, no /dev/dax*, no nvdimm regions)"
                .to_owned();
        }
        let size = |bytes: Option<u64>| {
            bytes.map_or_else(String::new, |b| format!(" ({})", crate::size::show(b)))
        };
        let blocks = self.block.iter().map(|block| {
            let mount = match &block.mount {
                None => "not mounted".to_owned(),
                Some(fs) if fs.is_dax() => format!("{} with dax at {}", fs.kind, fs.mount_point),
                Some(fs) => format!("{} without dax at {}", fs.kind, fs.mount_point),
            };
            format!(
                "{}{}, {mount}",
                block.device.path.display(),
                size(block.device.bytes)
            )
        });
        let devdax = self
            .devdax
            .iter()
            .map(|d| format!("{}{}, devdax", d.path.display(), size(d.bytes)));
        let regions = self
            .regions
            .iter()
            .map(|d| format!("{}{}", d.path.display(), size(d.bytes)));
        blocks
            .chain(devdax)
            .chain(regions)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// Looks for it.
pub fn find() -> PersistentMemory {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let block = names("/sys/block", "pmem").into_iter().map(|name| {
        let path = Path::new("/dev").join(&name);
        let mount_point = mounts.lines().find_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let source = right.split(' ').nth(1)?;
            (Path::new(source) == path).then(|| left.split(' ').nth(4))?
        });
        PmemBlockDevice {
            mount: mount_point.and_then(|point| file_system(Path::new(point))),
            device: PersistentDevice {
                bytes: number(&format!("/sys/block/{name}/size")).map(|sectors| sectors * 512),
                path,
            },
        }
    });
    let devdax = names("/sys/bus/dax/devices", "dax")
        .into_iter()
        .map(|name| PersistentDevice {
            bytes: number(&format!("/sys/bus/dax/devices/{name}/size")),
            path: Path::new("/dev").join(name),
        });
    let regions = names("/sys/bus/nd/devices", "region")
        .into_iter()
        .map(|name| PersistentDevice {
            bytes: number(&format!("/sys/bus/nd/devices/{name}/size")),
            path: PathBuf::from(name),
        });
    PersistentMemory {
        block: block.collect(),
        devdax: devdax.collect(),
        regions: regions.collect(),
    }
}

/// The entries of `dir` that begin with `prefix`, sorted. None if there is no such directory.
fn names(dir: &str, prefix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
