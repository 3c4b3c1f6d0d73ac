//! Making a pool. docs/pool-format.md, "Superblock".
//!
//! 1. *Refuse* what is there already: a file of that name, or a device that is used or holds
//!    something (`device`).
//! 2. *Allocate* the file with real zeros, and make it and its name durable.
//! 3. *Erase* both superblocks, then the tables, and write the tables of a pool in which everything
//!    is free.
//! 4. *Write* the superblocks.
//!
//! A superblock is what makes a pool, so one that is made only in part is none.

use super::{
    Pool, PoolOptions,
    device::{self, check_unused_pool},
};
use crate::{
    core::{Core, has_name},
    disks::BackingStore,
    error::{PoolError, PoolErrorKind},
    format::{
        layout::{LANE_TABLE, PAGE, PoolGeometry},
        superblock::Superblock,
    },
    legs::{LEG_DATA, LegsFile},
    media::{
        DiskMedia, FileMedia, LegsMedia, Media, PoolAccess, ProcessMark, open_dax, open_emulated,
        write_zeros,
    },
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

impl PoolOptions {
    /// Makes a pool at `path`. A file is created there; a devdax device or a block device is
    /// formatted.
    ///
    /// # Errors
    /// [`PoolErrorKind::Exists`] if there is a file already, [`PoolErrorKind::Holds`] if there is
    /// anything on a device ([`force`](Self::force) gives it up), [`PoolErrorKind::Busy`],
    /// [`PoolErrorKind::TooSmall`], [`PoolErrorKind::NoRoom`], [`PoolErrorKind::BadSize`],
    /// [`PoolErrorKind::SectorTooLarge`], [`PoolErrorKind::NotPersistentMemory`] without
    /// [`emulated`](Self::emulated). A file that was made is removed again.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("example.pool");
    /// let pool = forebay_pool::PoolOptions::new().size(16 << 20).segment_size(1 << 20).emulated(true).create(&path)?;
    /// println!("{}: {}", pool.describe(), pool.durability());
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Pool, PoolError> {
        let path = path.as_ref();
        // Sizes that make no pool are refused before anything is made.
        self.geometry(path)?;
        if !self.legs.is_empty() {
            return self.create_on_legs(path);
        }
        let is_block = fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
        if self.disk || is_block {
            return self.create_on_disk(path, is_block);
        }
        let open = |path: &Path| -> Result<FileMedia, PoolError> {
            if self.emulated {
                open_emulated(path)
            } else {
                open_dax(path)
            }
        };
        let is_device = fs::metadata(path).is_ok_and(|m| m.file_type().is_char_device());
        let media: Arc<dyn Media> = if is_device {
            let media = open(path)?;
            // Both superblocks: one alone is a pool.
            let mut start = vec![0; (2 * PAGE).min(media.bytes()) as usize];
            media.load(0, &mut start);
            if start.iter().any(|&b| b != 0) {
                if !self.force {
                    let found = "data: a pool, or something else".to_owned();
                    return Err(PoolError::new(path, PoolErrorKind::Holds { found }));
                }
                check_unused_pool(path)?;
            }
            Arc::new(media)
        } else {
            allocate(path, self.bytes)?;
            // Whatever fails from here on leaves no half-made pool behind.
            Arc::new(open(path).inspect_err(|_| drop(fs::remove_file(path)))?)
        };
        self.create_on(path, media)
    }

    /// In a new file, or on a block device.
    fn create_on_disk(&self, path: &Path, is_device: bool) -> Result<Pool, PoolError> {
        if !is_device {
            allocate(path, self.bytes)?;
        }
        let media = self.open_empty(path, is_device);
        media
            .and_then(|media| self.create_on(path, Arc::new(media)))
            .inspect_err(|_| {
                // Whatever fails leaves no half-made pool behind.
                if !is_device {
                    drop(fs::remove_file(path));
                }
            })
    }

    /// In other machines' memory, with a new file that says where.
    fn create_on_legs(&self, path: &Path) -> Result<Pool, PoolError> {
        let bytes = self.bytes.next_multiple_of(PAGE);
        let legs = LegsFile::new(&self.legs, bytes, self.copies, self.insecure)
            .map_err(|what| PoolError::new(path, PoolErrorKind::BadLegs { what }))?;
        let text = legs.to_string();
        allocate_with(path, text.len() as u64, |file| {
            (&*file).write_all(text.as_bytes())?;
            file.sync_all()
        })?;
        // Whatever fails leaves no half-made pool behind.
        let mut made = vec![path.to_owned()];
        self.make_disk_legs(&legs, &mut made)
            .and_then(|()| {
                let opened = OpenOptions::new().read(true).write(true).open(path);
                opened.map_err(|e| PoolError::io(path, "opening the pool", e))
            })
            .and_then(|file| LegsMedia::create(path, file, legs, self.force))
            .and_then(|media| self.create_on(path, Arc::new(media)))
            .inspect_err(|_| made.iter().for_each(|path| drop(fs::remove_file(path))))
    }

    /// Makes the files of legs on this machine's disks, and notes them; a device is looked at only.
    fn make_disk_legs(&self, legs: &LegsFile, made: &mut Vec<PathBuf>) -> Result<(), PoolError> {
        let bytes = legs.bytes + LEG_DATA;
        for path in legs.disks() {
            check_place(path)?;
            let device = fs::metadata(path).ok();
            let device = device.filter(|it| it.file_type().is_block_device());
            if let Some(device) = device {
                on_a_known_disk(path, BackingStore::of_device(device.rdev()))?;
                device::open_empty(path, bytes, self.force)?;
                continue;
            }
            allocate(path, bytes)?;
            made.push(path.to_owned());
            let file = fs::File::open(path);
            let file = file.map_err(|e| PoolError::io(path, "opening the leg", e))?;
            on_a_known_disk(path, BackingStore::of(file.as_fd()))?;
        }
        Ok(())
    }

    fn open_empty(&self, path: &Path, is_device: bool) -> Result<DiskMedia, PoolError> {
        if is_device {
            // Before anything on it is given up.
            let found = fs::metadata(path).map_err(|e| PoolError::io(path, "looking at", e))?;
            on_a_disk(path, BackingStore::of_device(found.rdev()))?;
        }
        let file = match is_device {
            true => device::open_empty(path, self.bytes, self.force)?,
            false => OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .map_err(|e| PoolError::io(path, "opening the pool", e))?,
        };
        on_a_disk(path, BackingStore::of(file.as_fd()))?;
        DiskMedia::new(path, file, self.bytes, None)
    }

    /// Makes a pool on `media`, which errors call `path`. What was on it is lost.
    ///
    /// # Errors
    /// [`PoolErrorKind::BadSize`]; [`PoolErrorKind::TooSmall`] if the medium is.
    ///
    /// ```
    /// use forebay_pool::{PoolOptions, media::SimMedia};
    /// use std::sync::Arc;
    /// // Yields what a power cut would leave; with the feature `failpoints`.
    /// let memory = Arc::new(SimMedia::new(1 << 20));
    /// let pool = PoolOptions::new().size(1 << 20).segment_size(64 << 10).create_on("simulated", memory)?;
    /// # Ok::<(), forebay_pool::PoolError>(())
    /// ```
    pub fn create_on(
        &self,
        path: impl AsRef<Path>,
        media: Arc<dyn Media>,
    ) -> Result<Pool, PoolError> {
        let path = path.as_ref();
        let geometry = self.geometry(path)?;
        if media.bytes() < geometry.pool_bytes {
            return Err(PoolError::new(
                path,
                PoolErrorKind::TooSmall {
                    wanted: geometry.pool_bytes,
                    found: media.bytes(),
                },
            ));
        }
        media.set_tables(geometry.data());
        let core = Core {
            path: path.to_owned(),
            superblock: Superblock::new(geometry, self.emulated, media.needs_commit()),
            is_named: has_name(&*media),
            media,
            process: ProcessMark::take(),
            access: PoolAccess::ReadWrite,
        };
        core.prepare(0, geometry.data(), true)?;
        // Superblocks go first and come last: a pool half made, or half remade, is no pool.
        core.zero(0, LANE_TABLE)?;
        core.zero(LANE_TABLE, geometry.data() - LANE_TABLE)?;
        core.tables().format();
        core.superblock.write(&*core.media);
        core.check()?;
        Ok(Pool {
            core: Arc::new(core),
            damage: Vec::new(),
        })
    }

    fn geometry(&self, path: &Path) -> Result<PoolGeometry, PoolError> {
        PoolGeometry::fit(self.bytes, self.segment_bytes, self.lanes)
            .map_err(|kind| PoolError::new(path, kind))
    }
}

/// Makes a file of `bytes` bytes, all allocated and durable.
fn allocate(path: &Path, bytes: u64) -> Result<(), PoolError> {
    allocate_with(path, bytes, |file| write_zeros(file, bytes))
}

/// Makes a file of `bytes` bytes by `fill`, which makes its content durable.
fn allocate_with(
    path: &Path,
    bytes: u64,
    fill: impl FnOnce(&fs::File) -> io::Result<()>,
) -> Result<(), PoolError> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => PoolError::new(
                path,
                PoolErrorKind::Exists {
                    found: describe_existing(path),
                },
            ),
            _ => PoolError::io(path, "creating the pool", e),
        })?;
    let free = rustix::fs::fstatvfs(&file).map_or(0, |found| found.f_bavail * found.f_frsize);
    let zero = || -> io::Result<()> {
        fill(&file)?;
        let parent = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        fs::File::open(parent)?.sync_all()
    };
    zero().map_err(|e| {
        // Nothing is in it yet; the error that matters is the first one.
        drop(fs::remove_file(path));
        match e.kind() {
            io::ErrorKind::StorageFull => PoolError::new(
                path,
                PoolErrorKind::NoRoom {
                    wanted: bytes,
                    free,
                },
            ),
            _ => PoolError::io(path, "allocating the pool", e),
        }
    })
}

/// Looks, and changes nothing.
fn describe_existing(path: &Path) -> String {
    match open_emulated(path).and_then(|media| Superblock::read(&media, path)) {
        Ok(read) => format!("a pool, uuid {}", read.superblock.uuid),
        Err(_) => fs::metadata(path).map_or_else(
            |_| "something unreadable".to_owned(),
            |m| match m.is_dir() {
                true => "a directory, and a pool is a file in one".to_owned(),
                false => format!("a file of {} bytes that is no pool", m.len()),
            },
        ),
    }
}

/// Refuses as a leg also what is no disk of this machine, as far as can be seen: a network's file
/// system may do a killed process's write later.
fn on_a_known_disk(path: &Path, ground: BackingStore) -> Result<(), PoolError> {
    if ground.is_unknown() {
        let what = "its disk of this machine is not known".to_owned();
        return Err(PoolError::new(path, PoolErrorKind::BadLegs { what }));
    }
    on_a_disk(path, ground)
}

/// Refuses a place in which another user could put something else in the place of what root makes
/// there.
fn check_place(path: &Path) -> Result<(), PoolError> {
    let looking = |e| PoolError::io(path, "looking at", e);
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for place in path.ancestors().skip(1) {
        let found = fs::metadata(place).map_err(looking)?;
        // In a sticky directory nobody moves what is another user's; but what is made there may be
        // made by anybody before.
        let is_sticky = found.mode() & 0o1000 != 0 && Some(place) != path.parent();
        if found.uid() != 0 || found.mode() & 0o022 != 0 && !is_sticky {
            let what = format!(
                "others than root may change the directory {}: put the leg into another one, or make the pool as that user",
                place.display()
            );
            return Err(PoolError::new(path, PoolErrorKind::BadLegs { what }));
        }
    }
    Ok(())
}

/// Refuses memory, also below a loop device, a volume, or an array.
fn on_a_disk(path: &Path, ground: BackingStore) -> Result<(), PoolError> {
    match ground.memory.into_iter().next() {
        Some(what) => Err(PoolError::new(path, PoolErrorKind::NotOnADisk { what })),
        None => Ok(()),
    }
}
