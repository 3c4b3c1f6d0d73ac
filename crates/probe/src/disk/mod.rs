//! The device under a directory: its kind, and its speed, measured.

mod file_system;
pub mod pages;

pub use file_system::{FileSystem, device_of, file_system, memory_dir};

use crate::figures::{Span, median, span};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Instant,
};

/// A measurement that the operating system refused.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}: {source}", path.display())]
pub struct ProbeError {
    /// The step that failed, as a verb.
    doing: &'static str,
    /// To which file.
    path: PathBuf,
    /// The system's reason.
    pub source: io::Error,
}

impl ProbeError {
    /// For `map_err`: an error while `doing` something to `path`.
    fn while_doing(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self {
            doing,
            path,
            source,
        }
    }
}

/// A device's best times.
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

/// The bytes that a measurement writes.
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
pub fn measure(dir: &Path, effort: Effort) -> Result<Speed, ProbeError> {
    let target =
        tempfile::tempfile_in(dir).map_err(ProbeError::while_doing("creating a file in", dir))?;
    let failed = || ProbeError::while_doing("measuring the device under", dir);
    // Past the page cache, if the file system lets us.
    let direct = rustix::fs::fcntl_setfl(&target, OFlags::DIRECT).is_ok();
    let mut sequential = Vec::new();
    for _ in 0..effort.runs.max(1) {
        sequential.push(sequential_mb_s(&target, effort.bytes).map_err(failed())?);
    }
    let fsync_us = synced_write_us(&target, effort.syncs.max(1)).map_err(failed())?;
    Ok(Speed {
        seq_write_mb_s: median(&sequential),
        seq_write_mb_s_span: span(&sequential),
        fsync_us,
        direct,
        name: device_of(dir),
        file_system: file_system(dir).map(|f| f.kind),
    })
}

/// Writes the file anew, 1 MiB at a time, and syncs it. Its blocks are allocated before, as the
/// store's are.
fn sequential_mb_s(file: &File, bytes: u64) -> io::Result<f64> {
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
    let buffer = aligned_noise()?;
    let chunk = buffer.bytes(CHUNK);
    let start = Instant::now();
    for at in 0..chunks {
        file.write_all_at(chunk, at * CHUNK as u64)?;
    }
    file.sync_data()?;
    Ok((chunks * CHUNK as u64) as f64 / 1e6 / start.elapsed().as_secs_f64())
}

/// The median time of writing 4 KiB over what is there and syncing it.
fn synced_write_us(file: &File, times: usize) -> io::Result<f64> {
    let buffer = aligned_noise()?;
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

fn aligned_noise() -> io::Result<Aligned> {
    let mut bytes = vec![0; CHUNK + PAGE];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let start = bytes.as_ptr().addr().next_multiple_of(PAGE) - bytes.as_ptr().addr();
    Ok(Aligned { bytes, start })
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
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
