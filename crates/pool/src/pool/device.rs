//! A block device that is to become a pool. docs/pool-format.md, "Pools on a disk".
//!
//! 1. *Open* it exclusively: a device that is mounted, or part of anything, is refused, and who
//!    uses it is said.
//! 2. *Look* whether it is large enough, what it writes at once, and what is on it. What holds
//!    anything is refused, or, with `force`, given up.
//! 3. *Give up*, with `force`: a pool that a process uses is refused all the same. The first and
//!    the last MiB and every mark in between become zeros, so that nothing takes the device for
//!    what it was. A kernel would assemble an array of it at the next boot, and write to it.

use super::PoolOptions;
use crate::{
    disk_signatures::{self, FoundSignature},
    error::{PoolError, PoolErrorKind},
    format::{layout::PAGE, superblock::Superblock},
    media::sector,
    sysfs,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Bytes that are zeroed at both ends of a device that is given up.
const END: u64 = 1 << 20;

/// Opens the device for a pool of `bytes` bytes; afterwards nothing is known to be on it.
pub(super) fn open_empty(path: &Path, bytes: u64, force: bool) -> Result<File, PoolError> {
    let fail = |kind| PoolError::new(path, kind);
    let file = open_exclusively(path)?;
    sector::check(path, &file)?;
    let looking = |e| PoolError::io(path, "looking at the device", e);
    let size = (&file).seek(SeekFrom::End(0)).map_err(looking)?;
    if size < bytes {
        return Err(fail(PoolErrorKind::TooSmall {
            wanted: bytes,
            found: size,
        }));
    }
    let found = disk_signatures::find(&file, size).map_err(looking)?;
    if found.is_empty() {
        return Ok(file);
    }
    if !force {
        let found = describe(&file, &found);
        return Err(fail(PoolErrorKind::Holds { found }));
    }
    check_unused_pool(path)?;
    give_up(&file, size, &found).map_err(|e| PoolError::io(path, "erasing the device", e))?;
    Ok(file)
}

fn open_exclusively(path: &Path) -> Result<File, PoolError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_EXCL);
    options.open(path).map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => {
            let by = fs::metadata(path).map_or_else(|_| Vec::new(), |found| users(found.rdev()));
            let by = match by.is_empty() {
                true => "mounted, or part of an array or a volume group".to_owned(),
                false => by.join(", "),
            };
            PoolError::new(path, PoolErrorKind::Busy { by })
        }
        _ => PoolError::io(path, "opening the device", e),
    })
}

/// The signatures found, with the kernel's and a pool's superblock's knowledge of them.
fn describe(file: &File, found: &[FoundSignature]) -> String {
    let mut words = disk_signatures::words(found);
    let mut start = vec![0; 2 * PAGE as usize];
    let read = file.read_exact_at(&mut start, 0);
    if let (Ok(()), Some(pool)) = (read, Superblock::on_disk(&start)) {
        let shows = "forebay pool status shows the owners of its records";
        words.push_str(&format!(", uuid {}; {shows}", pool.uuid));
    }
    let parts = file
        .metadata()
        .map_or_else(|_| Vec::new(), |about| partitions(about.rdev()));
    let names: Vec<String> = parts.iter().map(|part| name_of(part)).collect();
    if !names.is_empty() {
        words.push_str(&format!(", with the partitions {}", names.join(", ")));
    }
    words
}

/// Refuses a device with a pool that a process has a lane of.
pub(super) fn check_unused_pool(path: &Path) -> Result<(), PoolError> {
    let opened = PoolOptions::new().open(path);
    // A pool that cannot be opened counts as unused.
    let lanes = opened.map_or_else(|_| Vec::new(), |pool| pool.lanes());
    match lanes.into_iter().find(|lane| lane.in_use) {
        None => Ok(()),
        Some(used) => Err(PoolError::new(
            path,
            PoolErrorKind::InUse {
                lane: used.lane,
                label: used.label,
            },
        )),
    }
}

fn give_up(file: &File, size: u64, found: &[FoundSignature]) -> io::Result<()> {
    let zeros = vec![0; END as usize];
    let clear = |at: u64, bytes: u64| file.write_all_at(&zeros[..bytes as usize], at);
    let end = END.min(size);
    clear(0, end)?;
    clear(size - end, end)?;
    for content in found {
        let at = content.at / PAGE * PAGE;
        clear(at, PAGE.min(size - at))?;
    }
    file.sync_all()
}

/// The users of the block device of this number, or of a part of it, in words.
fn users(number: u64) -> Vec<String> {
    let whole = sysfs::of_block_device(number).into_iter();
    let all: Vec<PathBuf> = whole.chain(partitions(number)).collect();
    let mut found = Vec::new();
    for about in &all {
        let name = name_of(about);
        let number = fs::read_to_string(about.join("dev")).unwrap_or_default();
        let points = mount_points(number.trim());
        found.extend(
            points
                .into_iter()
                .map(|at| format!("{name} is mounted at {at}")),
        );
        let holders = entries(&about.join("holders"));
        found.extend(
            holders
                .iter()
                .map(|by| format!("{name} is part of {}", name_of(by))),
        );
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        if swaps
            .lines()
            .any(|line| line.starts_with(&format!("/dev/{name} ")))
        {
            found.push(format!("{name} is swapped to"));
        }
    }
    found
}

fn partitions(number: u64) -> Vec<PathBuf> {
    let whole = sysfs::of_block_device(number);
    let mut parts = whole.map_or_else(Vec::new, |about| entries(&about));
    parts.retain(|part| part.join("partition").exists());
    parts.sort();
    parts
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

fn name_of(about: &Path) -> String {
    about
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Mount points of the device with this number, as in `8:1`.
fn mount_points(number: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let lines = mounts.lines().map(|line| line.split(' ').skip(2));
    lines
        .filter_map(|mut fields| {
            let is_it = fields.next()? == number;
            is_it.then(|| fields.nth(1).map(str::to_owned))?
        })
        .collect()
}
