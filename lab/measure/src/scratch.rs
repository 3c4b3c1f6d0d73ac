//! Directories and pools that are there for a measurement and go away again.
//!
//! They are removed when dropped. A process that ends otherwise (a signal) calls [`remove_all`] on
//! its way out.

pub use forebay_probe::disk::memory_dir;

use crate::MeasureError;
use forebay_pool::{Pool, PoolOptions};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// The scratch directories that exist.
static ALIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Attempts to remove a directory in which the threads of an interrupted measurement may still be
/// making files.
const REMOVALS: u32 = 200;
/// Time between two of them.
const AGAIN: Duration = Duration::from_millis(5);

/// Removes every scratch directory of this process. For the handler of a signal that ends it: no
/// other is made from now on.
pub fn remove_all() {
    let mut alive = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
    for path in alive.drain(..) {
        for _ in 0..REMOVALS {
            match fs::remove_dir_all(&path) {
                Ok(()) => break,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
                // No caller is left to report it to; what cannot be removed stays.
                Err(_) => thread::sleep(AGAIN),
            }
        }
    }
    std::mem::forget(alive);
}

/// A directory of our own.
#[derive(Debug)]
pub struct ScratchDir(TempDir);

impl ScratchDir {
    /// Makes one inside `parent`, which is created if need be.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new_in(parent: &Path) -> Result<Self, MeasureError> {
        fs::create_dir_all(parent).map_err(MeasureError::io("creating the directory", parent))?;
        let mut alive = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::Builder::new()
            .prefix("forebay-scratch-")
            .tempdir_in(parent)
            .map_err(MeasureError::io("creating a directory in", parent))?;
        alive.push(dir.path().to_owned());
        Ok(Self(dir))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let mut alive = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: a signal that ends the process meanwhile finds it removed, or removes it.
        drop(fs::remove_dir_all(self.0.path()));
        alive.retain(|path| path != self.0.path());
    }
}

/// Where a benchmark's pool comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolSource {
    /// Made for the purpose in memory (`/dev/shm`): it survives a process crash only.
    Emulated,
    /// Made for the purpose in this directory, on an ordinary disk: what is committed survives a
    /// power cut.
    OnDisk(PathBuf),
    /// The user's.
    At(PathBuf),
}

/// The user's, if there is one.
impl From<Option<PathBuf>> for PoolSource {
    fn from(pool: Option<PathBuf>) -> Self {
        pool.map_or(Self::Emulated, Self::At)
    }
}

impl PoolSource {
    /// What to know of figures that were measured on it, if anything.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let note =
            "the pools were emulated in memory: they survive a process crash, not a power cut";
        (*self == Self::Emulated).then(|| note.to_owned())
    }
}

impl fmt::Display for PoolSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Emulated => f.write_str("emulated in memory"),
            Self::OnDisk(dir) => write!(f, "on the disk under {}", dir.display()),
            Self::At(path) => path.display().fmt(f),
        }
    }
}

/// A pool for a measurement.
pub struct ScratchPool {
    /// Open as long as the measurement is; `None` while another process has its turn.
    pool: Pool,
    path: PathBuf,
    _dir: Option<ScratchDir>,
}

impl ScratchPool {
    /// A pool with `buffers` free segments of `buffer_bytes` bytes at least; the user's has the
    /// segments that it has.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn new(source: &PoolSource, buffers: u64, buffer_bytes: u64) -> Result<Self, MeasureError> {
        let parent = match source {
            PoolSource::At(path) => {
                return Ok(Self {
                    pool: PoolOptions::new().open(path)?,
                    path: path.clone(),
                    _dir: None,
                });
            }
            PoolSource::Emulated => &memory_dir(),
            PoolSource::OnDisk(dir) => dir,
        };
        let dir = ScratchDir::new_in(parent)?;
        let path = dir.path().canonicalize();
        let path = path.map_err(MeasureError::io("finding", dir.path()))?;
        let path = path.join("forebay.pool");
        let pool = PoolOptions::new()
            .size(buffers * buffer_bytes + TABLES_MAX)
            .segment_size(buffer_bytes)
            .lanes(4)
            .emulated(*source == PoolSource::Emulated)
            .on_disk(*source != PoolSource::Emulated)
            .create(&path)?;
        Ok(Self {
            pool,
            path,
            _dir: Some(dir),
        })
    }

    /// The same with what `layer` makes of the pool: one that is as slow as another memory, say.
    #[must_use]
    pub fn layered(self, layer: impl FnOnce(Pool) -> Pool) -> Self {
        Self {
            pool: layer(self.pool),
            ..self
        }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// More than the superblocks and tables of a pool of 4 lanes and some dozens of segments take.
const TABLES_MAX: u64 = 64 << 10;

/// A directory in memory of the kind that pools from `source` are in; none beside a devdax device.
#[must_use]
pub fn dir_beside(source: &PoolSource) -> Option<PathBuf> {
    match source {
        PoolSource::Emulated => Some(memory_dir()),
        PoolSource::OnDisk(dir) => Some(dir.clone()),
        PoolSource::At(path) => path.is_file().then(|| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        }),
    }
}

/// Bytes that the files under `dir` occupy.
#[must_use]
pub fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(dir) else {
        // Gone meanwhile: occupies nothing.
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => disk_bytes(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Writes everything that the file system of `dir` has in memory to its device.
///
/// # Errors
/// I/O errors.
pub fn sync_file_system(dir: &Path) -> Result<(), MeasureError> {
    let failed = || MeasureError::io("syncing the file system of", dir);
    let dir_handle = fs::File::open(dir).map_err(failed())?;
    rustix::fs::syncfs(&dir_handle).map_err(|e| failed()(e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_pool_has_its_buffers_and_leaves_nothing_behind() {
        let pool = ScratchPool::new(&PoolSource::Emulated, 3, 1 << 20).unwrap();
        let path = pool.path().to_owned();
        assert!(path.exists());
        let geometry = pool.pool().geometry();
        assert_eq!((geometry.segments, geometry.segment_bytes), (3, 1 << 20));
        drop(pool);
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn occupied_bytes_are_those_of_all_files() {
        let dir = ScratchDir::new_in(&std::env::temp_dir()).unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/file"), vec![1; 10_000]).unwrap();
        sync_file_system(dir.path()).unwrap();
        assert!(disk_bytes(dir.path()) >= 10_000);
    }
}
