//! Opening a pool, and what is checked before it is believed. docs/pool-format.md, "Superblock".
//!
//! 1. *Map* the medium: persistent memory, or an emulation of it if the file system has none.
//! 2. *Refuse* a pool that was made on persistent memory and is not on it any more, unless the caller says that it may be emulated.
//! 3. *Read* the superblocks; either one is enough.
//! 4. *Repair* the superblock that was damaged, under the pool lock.
//!
//! Nothing is changed before step 4. The tables are mapped here, a lane's segments when it is claimed: what is not mapped does not count as this
//! process's memory.

use super::Pool;
use crate::{
    core::Core,
    error::{PoolError, PoolErrorKind},
    media::{Media, map_file},
    superblock::{self, Superblock},
};
use std::{
    fs::{self, OpenOptions},
    path::Path,
    sync::Arc,
};

impl Pool {
    /// Opens the pool at `path`: on persistent memory, or emulated if it was made so. With
    /// `emulated`, a pool that was made on persistent memory and moved is opened as an emulated one.
    ///
    /// # Errors
    /// [`PoolErrorKind`] for everything that can be wrong with it; nothing is changed.
    pub fn open(path: &Path, emulated: bool) -> Result<Self, PoolError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|e| PoolError::io(path, "opening the pool", e))?;
        Self::open_either(path, file, emulated)
    }

    /// As [`open`](Self::open), of a `file` that is open for reading and writing: for a process that was given it by one that may
    /// open it. `path` is what errors call it. Lanes are locked by this open file, so it must not be one that is shared.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_file(path: &Path, file: fs::File) -> Result<Self, PoolError> {
        Self::open_either(path, file, false)
    }

    fn open_either(path: &Path, file: fs::File, emulated: bool) -> Result<Self, PoolError> {
        let mut refused = None;
        let media = map_file(path, file, |e| match &e.kind {
            PoolErrorKind::NotPersistentMemory { file_system } => {
                refused = Some(file_system.clone());
                true
            }
            _ => false,
        })?;
        // Before anything is repaired: a pool that is refused is not touched.
        if let Some(file_system) = refused
            && !emulated
            && !Superblock::read(&media, path)?.superblock.emulated
        {
            return Err(PoolError::new(
                path,
                PoolErrorKind::MovedOffPersistentMemory { file_system },
            ));
        }
        Self::open_media(path, Arc::new(media))
    }

    /// Opens the pool on `media`. A damaged superblock copy is rewritten from the intact one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_media(path: &Path, media: Arc<dyn Media>) -> Result<Self, PoolError> {
        let superblock::Read { superblock, damage } = Superblock::read(&*media, path)?;
        let core = Arc::new(Core {
            path: path.to_owned(),
            media,
            superblock,
        });
        // The tables; a lane's segments when it is claimed.
        core.prepare(0, superblock.geometry.data(), false)?;
        if !damage.is_empty() {
            let _pool = core.lock_pool()?;
            superblock.repair(&*core.media);
        }
        Ok(Self { core, damage })
    }
}
