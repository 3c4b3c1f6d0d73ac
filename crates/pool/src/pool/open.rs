//! Opening a pool, and the checks before it is believed. docs/pool-format.md, "Superblock".
//!
//! 1. *Map* the medium: a disk, if the superblock says so; persistent memory, or an emulation of it
//!    if the file system has none.
//! 2. *Refuse* a pool that was made on persistent memory and is not on it any more, unless the
//!    caller says that it may be emulated.
//! 3. *Read* the superblocks; either one is enough.
//! 4. *Repair* the superblock that was damaged, under the pool lock.
//!
//! Nothing is changed before step 4. The tables are mapped here, a lane's segments when it is
//! claimed: what is not mapped does not count as this process's memory.

use super::{Pool, PoolOptions};
use crate::{
    core::{Core, has_name},
    error::{PoolError, PoolErrorKind},
    format::{
        layout::PAGE,
        superblock::{self, Superblock},
    },
    legs::LegsFile,
    media::{DiskMedia, LegsMedia, Media, PoolAccess, ProcessMark, map_file},
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
    sync::Arc,
};

/// True if there is nothing at the path.
fn is_absent(error: &PoolError) -> bool {
    let PoolErrorKind::Io { source, .. } = &error.kind else {
        return false;
    };
    source.kind() == io::ErrorKind::NotFound
}

impl PoolOptions {
    /// Opens the pool at `path`: on persistent memory, or emulated if it was made so.
    ///
    /// # Errors
    /// [`PoolErrorKind`] for everything that can be wrong with it; nothing is changed.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("example.pool");
    /// # drop(PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(&path)?);
    /// let pool = PoolOptions::new().open(&path)?;
    /// for lane in pool.lanes() {
    ///     println!("{}: {}", lane.owner, lane.label);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool, PoolError> {
        let path = path.as_ref();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|e| PoolError::io(path, "opening the pool", e))?;
        self.open_file(path, file)
    }

    /// Opens the pool at `path` for reading alone: its file is opened and mapped so, no lock is
    /// taken, and a damaged superblock stays as it is. So it needs the permission to read and no
    /// other, keeps no owner from anything, and may lie on a read-only file system.
    ///
    /// [`Pool::lanes`] and [`Pool::copy_lane`] say what is in it. What would change or lock
    /// something is refused ([`PoolErrorKind::OpenedToRead`]).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("example.pool");
    /// # drop(PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(&path)?);
    /// let pool = PoolOptions::new().open_read_only(&path)?;
    /// for lane in pool.lanes() {
    ///     if let Some(copy) = pool.copy_lane(lane.owner)? {
    ///         println!("{}: {} records", lane.label, copy.records().count());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<Pool, PoolError> {
        let path = path.as_ref();
        let file = OpenOptions::new()
            .read(true)
            // Of a FIFO, which a path may lead to by now, reading would wait for a writer.
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(|e| PoolError::io(path, "opening the pool for reading", e))?;
        self.open_with(path, file, PoolAccess::Read)
    }

    /// Opens the pool at `path`, or makes one where there is nothing.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("example.pool");
    /// let options = PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true);
    /// let made = options.open_or_create(&path)?.uuid();
    /// assert_eq!(options.open_or_create(&path)?.uuid(), made);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Pool, PoolError> {
        let path = path.as_ref();
        match self.open(path) {
            Err(error) if is_absent(&error) => match self.create(path) {
                // Another process or thread was first.
                Err(error) if matches!(error.kind, PoolErrorKind::Exists { .. }) => self.open(path),
                made => made,
            },
            opened => opened,
        }
    }

    /// As [`open`](Self::open), of a `file` that is open for reading and writing: for a process
    /// that was given it by one that may open it. `path` is what errors call it. Lanes are locked
    /// by this open file, so it must not be one that is shared.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("example.pool");
    /// # drop(PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(&path)?);
    /// // By whom this process was begun, for instance.
    /// let file = std::fs::OpenOptions::new().read(true).write(true).open(&path)?;
    /// let pool = PoolOptions::new().open_file(&path, file)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_file(&self, path: impl AsRef<Path>, file: fs::File) -> Result<Pool, PoolError> {
        self.open_with(path.as_ref(), file, PoolAccess::ReadWrite)
    }

    fn open_with(
        &self,
        path: &Path,
        file: fs::File,
        access: PoolAccess,
    ) -> Result<Pool, PoolError> {
        if let Some(legs) = legs_file(path, &file)? {
            let media = LegsMedia::open(path, file, legs, &self.lost_legs)?;
            return open_media(path, Arc::new(media), access);
        }
        if let Some(bytes) = disk_bytes(path, &file)? {
            let media = DiskMedia::new(path, file, bytes, None)?;
            return open_media(path, Arc::new(media), access);
        }
        let mut refused = None;
        let media = map_file(path, file, access, |e| match &e.kind {
            PoolErrorKind::NotPersistentMemory { file_system } => {
                refused = Some(file_system.clone());
                true
            }
            _ => false,
        })?;
        // Before anything is repaired: a pool that is refused is not touched.
        if let Some(file_system) = refused
            && !self.emulated
            && !Superblock::read(&media, path)?.superblock.emulated
        {
            return Err(PoolError::new(
                path,
                PoolErrorKind::MovedOffPersistentMemory { file_system },
            ));
        }
        open_media(path, Arc::new(media), access)
    }

    /// As [`open_file`](Self::open_file), in the memory of the process that sent the file, if its
    /// pool has one to share ([`Pool::shared_memory`]).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("example.pool");
    /// # drop(PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(&path)?);
    /// let file = std::fs::OpenOptions::new().read(true).write(true).open(&path)?;
    /// let pool = PoolOptions::new().open_shared(&path, file, None)?; // of persistent memory: none
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_shared(
        &self,
        path: impl AsRef<Path>,
        file: fs::File,
        memory: Option<OwnedFd>,
    ) -> Result<Pool, PoolError> {
        let path = path.as_ref();
        let Some(memory) = memory else {
            return self.open_file(path, file);
        };
        if legs_file(path, &file)?.is_some() {
            return self.open_on(path, Arc::new(LegsMedia::join(path, file, memory)?));
        }
        let bytes = rustix::fs::fstat(&memory)
            .map_err(|e| PoolError::io(path, "looking at the pool's memory", e.into()))?
            .st_size
            .unsigned_abs();
        let media = DiskMedia::new(path, file, bytes, Some(memory))?;
        self.open_on(path, Arc::new(media))
    }

    /// Opens the pool on `media`, which errors call `path`. A damaged superblock copy is rewritten
    /// from the intact one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use forebay_pool::{PoolOptions, media::SimMedia};
    /// use std::sync::Arc;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true);
    /// let media = Arc::new(SimMedia::new(1 << 20)); // with the feature `failpoints`
    /// drop(options.create_on("simulated", media.clone())?);
    /// let found = Arc::new(SimMedia::from_image(media.image())); // as a killed process leaves it
    /// let pool = options.open_on("simulated", found)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_on(
        &self,
        path: impl AsRef<Path>,
        media: Arc<dyn Media>,
    ) -> Result<Pool, PoolError> {
        open_media(path.as_ref(), media, PoolAccess::ReadWrite)
    }
}

fn open_media(path: &Path, media: Arc<dyn Media>, access: PoolAccess) -> Result<Pool, PoolError> {
    let superblock::ReadSuperblock { superblock, damage } = Superblock::read(&*media, path)?;
    let core = Arc::new(Core {
        path: path.to_owned(),
        is_named: has_name(&*media),
        media,
        superblock,
        process: ProcessMark::take(),
        access,
    });
    // The tables; a lane's segments when it is claimed.
    let tables = superblock.geometry.data();
    core.prepare(0, tables, false)?;
    core.media.set_tables(tables);
    if !damage.is_empty() && access == PoolAccess::ReadWrite {
        let _pool = core.lock_pool()?;
        superblock.repair(&*core.media);
        return Ok(Pool { core, damage });
    }
    // Damage that stays is no repair.
    let damage = Vec::new();
    Ok(Pool { core, damage })
}

/// The contents of the file, if it is that of a pool on legs.
fn legs_file(path: &Path, file: &fs::File) -> Result<Option<LegsFile>, PoolError> {
    let looking = |e| PoolError::io(path, "looking at the pool", e);
    let found = rustix::fs::fstat(file).map_err(|e| looking(e.into()))?;
    if !rustix::fs::FileType::from_raw_mode(found.st_mode).is_file() {
        return Ok(None);
    }
    let read = LegsFile::read(file).map_err(looking)?;
    let wrong = |what| PoolError::new(path, PoolErrorKind::BadLegs { what });
    read.transpose().map_err(wrong)
}

/// Bytes of the pool, if it lies on a disk: on a block device, or in a file whose superblock says
/// so.
fn disk_bytes(path: &Path, file: &fs::File) -> Result<Option<u64>, PoolError> {
    let look = || {
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Ok(None);
        }
        let mut from = file;
        let found = from.seek(SeekFrom::End(0))?;
        from.rewind()?;
        let mut start = Vec::new();
        from.take(2 * PAGE).read_to_end(&mut start)?;
        let stated = Superblock::on_disk(&start).map(|own| own.geometry.pool_bytes.min(found));
        Ok(stated.or(kind.is_block_device().then_some(found)))
    };
    look().map_err(|e| PoolError::io(path, "looking at the pool", e))
}
