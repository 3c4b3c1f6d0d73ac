//! Making a pool. docs/pool-format.md, "Superblock".
//!
//! 1. *Refuse* what is there already: a file of that name, or a device that holds data.
//! 2. *Allocate* the file with real zeros, and make it and its name durable.
//! 3. *Erase* both superblocks, then the tables, and write the tables of a pool in which everything is free.
//! 4. *Write* the superblocks.
//!
//! A superblock is what makes a pool, so one that is made only in part is none.

use super::Pool;
use crate::{
    core::Core,
    error::{PoolError, PoolErrorKind},
    layout::{Geometry, LANE_TABLE, PAGE},
    media::{FileMedia, Media, open_dax, open_emulated},
    superblock::Superblock,
};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

/// Sizes of a pool to be made.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Bytes of the pool. A devdax device is taken whole; there this is the bytes used.
    pub bytes: u64,
    /// Bytes of a segment (one buffer): a multiple of 4 KiB, 4 KiB to 64 MiB.
    pub segment_bytes: u64,
    /// Lanes, that is owners at the same time.
    pub lanes: u32,
    /// Make an emulated pool in an ordinary file: it survives a process crash only.
    pub emulated: bool,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            segment_bytes: 8 << 20,
            lanes: 16,
            emulated: false,
        }
    }
}

impl Pool {
    /// Makes a pool at `path`. A file is created there; a devdax device is formatted.
    ///
    /// # Errors
    /// [`PoolErrorKind::Exists`] if anything is there already, [`PoolErrorKind::BadSize`],
    /// [`PoolErrorKind::NotPersistentMemory`] without `emulated`. A file that was made is removed again.
    pub fn create(path: &Path, options: CreateOptions) -> Result<Self, PoolError> {
        let geometry = Geometry::fit(options.bytes, options.segment_bytes, options.lanes)
            .map_err(|kind| PoolError::new(path, kind))?;
        let open = |path: &Path| -> Result<FileMedia, PoolError> {
            if options.emulated {
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
                return Err(PoolError::new(
                    path,
                    PoolErrorKind::Exists {
                        found: "a device that holds data; zero its first 8 KiB to give it up"
                            .into(),
                    },
                ));
            }
            Arc::new(media)
        } else {
            allocate(path, options.bytes)?;
            // Whatever fails from here on leaves no half-made pool behind.
            Arc::new(open(path).inspect_err(|_| drop(fs::remove_file(path)))?)
        };
        Self::format(path, media, geometry, options.emulated)
    }

    /// Formats `media` as a pool of this geometry. Whatever was on it is lost.
    ///
    /// # Errors
    /// [`PoolErrorKind::Truncated`] if the medium is too small.
    pub fn format(
        path: &Path,
        media: Arc<dyn Media>,
        geometry: Geometry,
        emulated: bool,
    ) -> Result<Self, PoolError> {
        if media.bytes() < geometry.pool_bytes {
            return Err(PoolError::new(
                path,
                PoolErrorKind::Truncated {
                    stated: geometry.pool_bytes,
                    found: media.bytes(),
                },
            ));
        }
        let core = Core {
            path: path.to_owned(),
            media,
            superblock: Superblock::new(geometry, emulated),
        };
        core.prepare(0, geometry.data(), true)?;
        // Superblocks go first and come last: a pool half made, or half remade, is no pool.
        core.zero(0, LANE_TABLE);
        core.zero(LANE_TABLE, geometry.data() - LANE_TABLE);
        core.tables().format();
        core.superblock.write(&*core.media);
        Ok(Self {
            core: Arc::new(core),
            damage: Vec::new(),
        })
    }
}

/// Makes a file of `bytes` bytes, all allocated and durable.
fn allocate(path: &Path, bytes: u64) -> Result<(), PoolError> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => PoolError::new(
                path,
                PoolErrorKind::Exists {
                    found: describe_existing(path),
                },
            ),
            _ => PoolError::io(path, "creating the pool", e),
        })?;
    let zero = || -> std::io::Result<()> {
        // Real zeros rather than unwritten extents: no later store may need an allocation.
        use std::io::Write;
        let chunk = vec![0; 1 << 20];
        let mut left = bytes;
        let mut to = &file;
        while left > 0 {
            let now = left.min(chunk.len() as u64);
            to.write_all(&chunk[..usize::try_from(now).unwrap_or(0)])?;
            left -= now;
        }
        file.sync_all()?;
        let parent = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        fs::File::open(parent)?.sync_all()
    };
    zero().map_err(|e| {
        // Nothing is in it yet; the error that matters is the first one.
        drop(fs::remove_file(path));
        PoolError::io(path, "allocating the pool", e)
    })
}

/// Looks, and changes nothing.
fn describe_existing(path: &Path) -> String {
    match open_emulated(path).and_then(|media| Superblock::read(&media, path)) {
        Ok(read) => format!("a pool, uuid {}", read.superblock.uuid),
        Err(_) => fs::metadata(path).map_or_else(
            |_| "something unreadable".to_owned(),
            |m| format!("a file of {} bytes that is no pool", m.len()),
        ),
    }
}
