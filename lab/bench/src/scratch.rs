//! The laboratory's additions to [`forebay_measure::scratch`]: bare memory beside a pool, and the
//! space that files occupy and leave in memory.

use crate::BenchError;
use forebay_device::memory::{self, Profile, Timed};
pub use forebay_measure::scratch::{
    PoolSource, ScratchDir, ScratchPool, dir_beside, disk_bytes, memory_dir, remove_all,
    sync_file_system,
};
use forebay_pool::media::{Media, open_dax, open_emulated};
use std::{fs, path::Path, sync::Arc};

/// A pool for a measurement, as [`ScratchPool::new`] makes it; with a `profile` it is as slow as
/// that memory.
///
/// # Errors
/// Those of the pool.
pub fn pool(
    source: &PoolSource,
    buffers: u64,
    buffer_bytes: u64,
    profile: Option<Profile>,
) -> Result<ScratchPool, BenchError> {
    let pool = ScratchPool::new(source, buffers, buffer_bytes)?;
    Ok(match profile {
        Some(profile) => pool.layered(|pool| memory::slowed(pool, profile)),
        None => pool,
    })
}

/// A scratch medium beside the pool's, of the same kind, that bare copies go to.
pub struct ScratchMedia {
    /// The memory.
    pub media: Arc<dyn Media>,
    _dir: ScratchDir,
}

impl ScratchMedia {
    /// `bytes` bytes of memory like that of a pool from `source`. `None` beside a devdax device:
    /// there is no second one.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(
        source: &PoolSource,
        bytes: u64,
        profile: Option<Profile>,
    ) -> Result<Option<Self>, BenchError> {
        let Some(parent) = dir_beside(source) else {
            return Ok(None);
        };
        let dir = ScratchDir::new_in(&parent)?;
        let path = dir.path().join("floor");
        // Real zeros, as a pool has: no later store may need a block or a page.
        let zeros = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        fs::write(&path, zeros).map_err(BenchError::io("writing", &path))?;
        let media: Arc<dyn Media> = match open_dax(&path) {
            Ok(media) => Arc::new(media),
            Err(_) => Arc::new(open_emulated(&path)?),
        };
        media
            .prepare(0, bytes, true)
            .map_err(BenchError::io("mapping", &path))?;
        let media = match profile {
            Some(profile) => Arc::new(Timed::new(media, profile)),
            None => media,
        };
        Ok(Some(Self { media, _dir: dir }))
    }
}

/// Drops the page cache of every file under `dir`, which must be synced, so that reads go to the
/// device.
///
/// # Errors
/// I/O errors.
pub fn drop_page_cache(dir: &Path) -> Result<(), BenchError> {
    for entry in fs::read_dir(dir)
        .map_err(BenchError::io("listing", dir))?
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            drop_page_cache(&path)?;
            continue;
        }
        let failed = || BenchError::io("dropping the page cache of", &path);
        let file = fs::File::open(&path).map_err(failed())?;
        file.sync_all().map_err(failed())?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .map_err(|e| failed()(e.into()))?;
    }
    Ok(())
}
