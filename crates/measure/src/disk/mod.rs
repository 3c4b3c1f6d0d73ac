//! The device under a directory: how fast it is, measured in the same run, and what it has written.

mod block;
pub mod pages;

pub use block::{BlockDevice, Written};

use crate::{
    MeasureError,
    rounds::{Span, median, span},
};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    time::Instant,
};

/// What a device does at best.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Sequential writes of 1 MiB with a final sync, MB/s (10^6 bytes).
    pub seq_write_mb_s: f64,
    /// Slowest and fastest of the runs whose median that is.
    pub seq_write_mb_s_span: Span,
    /// Median time of a 4 KiB write in place with fdatasync, microseconds.
    pub fsync_us: f64,
    /// True if the writes went past the page cache (O_DIRECT); false where the file system refuses
    /// that.
    pub direct: bool,
    /// The block device, where one is known.
    pub name: Option<String>,
    /// The file system, as in `ext4`.
    pub file_system: Option<String>,
}

impl Speed {
    /// What to know of what was written where there is no disk.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let note = "the directory is not on a block device: nothing was written to a disk";
        self.name.is_none().then(|| note.to_owned())
    }

    /// Several measurements as one: the medians, and the span of all.
    #[must_use]
    pub fn of_rounds(rounds: &[Self]) -> Option<Self> {
        let all = |figure: fn(&Self) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
        Some(Self {
            seq_write_mb_s: median(&all(|s| s.seq_write_mb_s)),
            seq_write_mb_s_span: Span {
                min: span(&all(|s| s.seq_write_mb_s_span.min)).min,
                max: span(&all(|s| s.seq_write_mb_s_span.max)).max,
            },
            fsync_us: median(&all(|s| s.fsync_us)),
            ..rounds.first()?.clone()
        })
    }
}

/// How much is written to find out.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Bytes of one sequential run.
    pub bytes: u64,
    /// Sequential runs; the median counts.
    pub runs: usize,
    /// Synced writes.
    pub syncs: usize,
}

impl Effort {
    /// Enough for figures to be relied on.
    pub const FULL: Self = Self {
        bytes: 1 << 30,
        runs: 2,
        syncs: 300,
    };
    /// Enough for a first impression.
    pub const SHORT: Self = Self {
        bytes: 256 << 20,
        runs: 1,
        syncs: 100,
    };
    /// Enough to see that it works.
    pub const QUICK: Self = Self {
        bytes: 16 << 20,
        runs: 1,
        syncs: 20,
    };
}

const CHUNK: usize = 1 << 20;
const PAGE: usize = 4096;

/// Measures the device under `dir`, in a file there without a name, which is gone at the end,
/// however that comes.
///
/// # Errors
/// I/O errors.
pub fn measure(dir: &Path, effort: Effort) -> Result<Speed, MeasureError> {
    let target = tempfile::tempfile_in(dir).map_err(MeasureError::io("creating a file in", dir))?;
    let failed = || MeasureError::io("measuring the device under", dir);
    // Past the page cache, if the file system lets us.
    let direct = rustix::fs::fcntl_setfl(&target, OFlags::DIRECT).is_ok();
    let mut sequential = Vec::new();
    for _ in 0..effort.runs.max(1) {
        sequential.push(sequential_mb_s(&target, effort.bytes).map_err(failed())?);
    }
    let fsync_us = synced_write_us(&target, effort.syncs.max(1)).map_err(failed())?;
    let block = BlockDevice::holding(dir);
    Ok(Speed {
        seq_write_mb_s: median(&sequential),
        seq_write_mb_s_span: span(&sequential),
        fsync_us,
        direct,
        name: block.map(|b| b.name),
        file_system: file_system(dir).map(|f| f.kind),
    })
}

/// Why nothing was measured; of a full disk, how much room a measurement needs.
#[must_use]
pub fn told(error: &MeasureError, effort: Effort) -> String {
    const MIB: u64 = 1 << 20;
    let is_full = match error {
        MeasureError::Io { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
        _ => false,
    };
    match is_full {
        true => format!(
            "{error}: a measurement needs {} MiB free there",
            effort.bytes / MIB
        ),
        false => error.to_string(),
    }
}

/// Writes the file anew, 1 MiB at a time, and syncs it. Its blocks are allocated before, as the
/// store's are.
fn sequential_mb_s(file: &File, bytes: u64) -> std::io::Result<f64> {
    let chunks = (bytes / CHUNK as u64).max(1);
    file.set_len(0)?;
    match rustix::fs::fallocate(
        file,
        rustix::fs::FallocateFlags::empty(),
        0,
        chunks * CHUNK as u64,
    ) {
        Err(rustix::io::Errno::OPNOTSUPP) | Ok(()) => {}
        Err(e) => return Err(e.into()),
    }
    file.sync_all()?;
    let buffer = aligned_noise();
    let chunk = buffer.bytes(CHUNK);
    let start = Instant::now();
    for at in 0..chunks {
        file.write_all_at(chunk, at * CHUNK as u64)?;
    }
    file.sync_data()?;
    Ok((chunks * CHUNK as u64) as f64 / 1e6 / start.elapsed().as_secs_f64())
}

/// The median time of writing 4 KiB over what is there and syncing it.
fn synced_write_us(file: &File, times: usize) -> std::io::Result<f64> {
    let buffer = aligned_noise();
    let mut us = Vec::with_capacity(times);
    for turn in 0..times {
        let start = Instant::now();
        file.write_all_at(buffer.bytes(PAGE), (turn % 64 * PAGE) as u64)?;
        file.sync_data()?;
        us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&us))
}

/// Random bytes that start on a page boundary, which O_DIRECT asks for.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn bytes(&self, length: usize) -> &[u8] {
        &self.bytes[self.start..self.start + length]
    }
}

fn aligned_noise() -> Aligned {
    let mut bytes = vec![0; CHUNK + PAGE];
    crate::data::Random::new(1).fill(&mut bytes);
    let start = bytes.as_ptr().addr().next_multiple_of(PAGE) - bytes.as_ptr().addr();
    Aligned { bytes, start }
}

/// A mounted file system.
#[derive(Clone, Debug, Serialize)]
pub struct FileSystem {
    /// Its type, as in `ext4`.
    pub kind: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// What is mounted, as in `/dev/sda1`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_measured_and_nothing_is_left_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let speed = measure(dir.path(), Effort::QUICK).unwrap();
        assert!(
            speed.seq_write_mb_s > 0.0 && speed.fsync_us > 0.0,
            "{speed:?}"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

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
}
