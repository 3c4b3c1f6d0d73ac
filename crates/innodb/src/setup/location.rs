//! The location of a cache: its flash file, and its pool.
//!
//! A cache has its metadata in a pool of its own beside the flash file, so that one file system has
//! both: each fence there is a sync of that file.

use super::{blank_headers::is_ended, error::SetupError};
use crate::{
    control_files::{beside, directory_of},
    home::Homes,
    page::PAGE_BYTES,
};
use forebay_flash::{Cache, CacheOptions, Flash, FlashError, FlashFile, OpenedCache};
use forebay_pool::{
    Pool, PoolError, PoolErrorKind, PoolOptions,
    media::{FileMedia, SyncedFile, open_emulated, volatile},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The path of the metadata of the cache on this flash file.
#[must_use]
pub fn pool_of(flash: &Path) -> PathBuf {
    beside(flash, ".lane")
}

/// The whole name of a flash file or device, beside which its metadata is. Of a device that is the
/// name it was given by: a link to it in a directory where files stay.
pub(super) fn name_of(flash: &Path) -> Result<PathBuf, SetupError> {
    let fail = |e| SetupError::io_of_cache("opening the flash cache", flash)(e);
    let whole = flash.canonicalize().map_err(fail)?;
    if !is_device(&whole).map_err(fail)? {
        return Ok(whole);
    }
    let dir = directory_of(flash).canonicalize().map_err(fail)?;
    if rustix::fs::statfs(&dir).is_ok_and(|found| volatile(&found).is_some()) {
        return Err(SetupError::InDev {
            flash: flash.to_owned(),
        });
    }
    Ok(dir.join(flash.file_name().unwrap_or_default()))
}

pub(super) fn is_device(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt;
    Ok(path.metadata()?.file_type().is_block_device())
}

/// A cache's two files.
pub struct CacheLocation {
    flash: PathBuf,
    pool: PathBuf,
}

impl CacheLocation {
    /// Those of the cache on this flash file or device, which is there.
    ///
    /// # Errors
    /// What the operating system says; [`SetupError::NoPool`], [`SetupError::InDev`].
    pub fn of(flash: &Path) -> Result<Self, SetupError> {
        let flash = name_of(flash)?;
        let pool = pool_of(&flash);
        match pool.symlink_metadata() {
            Ok(_) => Ok(Self { flash, pool }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(SetupError::NoPool { flash, pool })
            }
            Err(e) => Err(SetupError::io_of_cache("opening", &pool)(e)),
        }
    }

    /// A flash file with a pool that is not, or not yet, beside it.
    pub(crate) fn between(flash: &Path, pool: &Path) -> Self {
        Self {
            flash: flash.to_owned(),
            pool: pool.to_owned(),
        }
    }

    /// The flash file.
    #[must_use]
    pub fn flash(&self) -> &Path {
        &self.flash
    }

    /// The path of its metadata.
    pub(crate) fn pool_path(&self) -> &Path {
        &self.pool
    }

    /// Its headers are blank.
    pub(crate) fn unmade(&self) -> SetupError {
        SetupError::Unmade {
            flash: self.flash.clone(),
            pool: self.pool.clone(),
        }
    }

    /// A device that another process has, or a file system.
    pub(super) fn busy(&self, source: io::Error) -> SetupError {
        match source.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) {
            true => SetupError::InUse {
                flash: self.flash.clone(),
            },
            false => SetupError::io_of_cache("opening the flash cache", &self.flash)(source),
        }
    }

    /// Opens its pool.
    pub(super) fn pool(&self) -> Result<Pool, SetupError> {
        self.pool_on(open_emulated(&self.pool).map_err(|e| self.denied(e))?)
    }

    /// Metadata that this user may not open.
    fn denied(&self, error: PoolError) -> SetupError {
        match error.kind {
            PoolErrorKind::Io { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                SetupError::io_of_cache("opening", &self.pool)(source)
            }
            _ => error.into(),
        }
    }

    /// Opens its pool, which is mapped.
    pub(super) fn pool_on(&self, media: FileMedia) -> Result<Pool, SetupError> {
        let media = Arc::new(SyncedFile::new(media));
        Ok(PoolOptions::new().open_on(&self.pool, media)?)
    }

    /// Opens the cache for a program that uses page files, as that opens any file.
    pub(crate) fn open(
        &self,
        homes: &Arc<Homes>,
        options: &CacheOptions,
    ) -> Result<(Cache, OpenedCache), SetupError> {
        self.open_in(self.open_flash()?, homes, options)
    }

    /// Opens its flash file.
    pub(crate) fn open_flash(&self) -> Result<FlashFile, SetupError> {
        FlashFile::open(&self.flash).map_err(|e| self.busy(e))
    }

    /// The same as [`Self::open`], of which the flash file is open.
    pub(crate) fn open_in(
        &self,
        flash: FlashFile,
        homes: &Arc<Homes>,
        options: &CacheOptions,
    ) -> Result<(Cache, OpenedCache), SetupError> {
        self.open_on(Arc::new(flash), || self.pool(), homes, options)
    }

    /// Opens the cache in these two files.
    pub(super) fn open_on(
        &self,
        flash: Arc<dyn Flash>,
        pool: impl FnOnce() -> Result<Pool, SetupError>,
        homes: &Arc<Homes>,
        options: &CacheOptions,
    ) -> Result<(Cache, OpenedCache), SetupError> {
        // Looked at only if it is no cache: why.
        let unmade = |error| match is_ended(&self.flash, &self.pool) {
            Ok(true) => self.unmade(),
            _ => error,
        };
        let pool = pool().map_err(unmade)?;
        let opened = Cache::open(
            flash,
            Arc::clone(homes) as Arc<dyn forebay_flash::Home>,
            &pool,
            PAGE_BYTES as u32,
            options,
        );
        opened.map_err(|error| match &error {
            FlashError::Pool(pool) if matches!(pool.kind, PoolErrorKind::InUse { .. }) => {
                SetupError::InUse {
                    flash: self.flash.clone(),
                }
            }
            _ => unmade(error.into()),
        })
    }
}
