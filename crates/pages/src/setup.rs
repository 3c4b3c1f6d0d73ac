//! Making a cache, looking at it, and emptying it: for the command, while no server has it.
//!
//! A cache has its metadata in a pool of its own beside the flash file, so that one file system has both: each fence there is a sync of that file.

use crate::{
    PAGE_BYTES, find,
    find::HomesError,
    guard::{Found, Guard},
    home::{Homes, reopen},
    identity, names,
};
use forebay_flash::{Cache, CreateOptions, FlashError, FlashFile, Opened, Options, Progress};
use forebay_pool::{
    Geometry, Pool, PoolError, PoolErrorKind, PoolOptions,
    media::{Synced, open_emulated},
};
use rustix::fs::{Mode, OFlags};
use std::{
    collections::BTreeSet,
    io,
    ops::ControlFlow,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Segments of the metadata's lane: with three and more a checkpoint holds up nobody.
const SEGMENTS: u16 = 4;
const LANES: u32 = 2;

/// Why a cache cannot be made, opened, or emptied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// What the operating system says of a file.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What it says.
        #[source]
        source: io::Error,
    },
    /// There is a flash file without its metadata.
    #[error(
        "the flash cache {} has its metadata in {}, which is not there. Without it nobody knows which pages are the newest: bring it back; nothing was changed",
        flash.display(),
        pool.display()
    )]
    NoPool {
        /// The flash file.
        flash: PathBuf,
        /// Where its pool should be.
        pool: PathBuf,
    },
    /// Something of that name is left.
    #[error(
        "{} is there, and the flash file beside it is not: it may be the metadata of a cache that has newer pages than the files. Bring the flash file back; or remove it, if nothing is needed",
        pool.display()
    )]
    PoolLeft {
        /// The pool.
        pool: PathBuf,
    },
    /// Another process has it.
    #[error(
        "the flash cache {} is in use by another process. One process has it at a time: end that one first",
        flash.display()
    )]
    InUse {
        /// The flash file.
        flash: PathBuf,
    },
    /// The data directory is not where it was.
    #[error(
        "{}, whose pages the flash cache has, is not there. If its directory was moved, name it with --data DIR; if it was deleted, so may the flash file be, and its .lane; nothing was changed",
        .0.display()
    )]
    NoData(PathBuf),
    /// A data directory's guard says that it is of another.
    #[error("{0}")]
    Guard(String),
    /// What the cache says.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// What the pool says.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// What looking for the files says.
    #[error(transparent)]
    Homes(#[from] HomesError),
}

impl SetupError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }

    /// True if another process has the cache.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }
}

/// Where the metadata of the cache on this flash file is.
#[must_use]
pub fn pool_of(flash: &Path) -> PathBuf {
    let mut path = flash.as_os_str().to_owned();
    path.push(".lane");
    path.into()
}

/// A cache's two files.
pub struct Place {
    flash: PathBuf,
    pool: PathBuf,
}

impl Place {
    /// Those of the cache on this flash file, which is there.
    ///
    /// # Errors
    /// What the operating system says; [`SetupError::NoPool`].
    pub fn of(flash: &Path) -> Result<Self, SetupError> {
        let flash = flash
            .canonicalize()
            .map_err(SetupError::io("opening the flash cache", flash))?;
        let pool = pool_of(&flash);
        match pool.symlink_metadata() {
            Ok(_) => Ok(Self { flash, pool }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(SetupError::NoPool { flash, pool })
            }
            Err(e) => Err(SetupError::io("opening", &pool)(e)),
        }
    }

    pub(crate) fn flash(&self) -> &Path {
        &self.flash
    }

    fn pool(&self) -> Result<Pool, SetupError> {
        let media = Arc::new(Synced::new(open_emulated(&self.pool)?));
        Ok(PoolOptions::new().open_on(&self.pool, media)?)
    }

    /// Opens the cache.
    pub(crate) fn open(
        &self,
        homes: &Arc<Homes>,
        options: &Options,
    ) -> Result<(Cache, Opened), SetupError> {
        let flash = FlashFile::open(&self.flash)
            .map_err(SetupError::io("opening the flash cache", &self.flash))?;
        let pool = self.pool()?;
        let opened = Cache::open(
            Arc::new(flash),
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
            _ => error.into(),
        })
    }
}

/// What is in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warm {
    /// Pages.
    pub pages: u64,
    /// Pages that are newer than in the files.
    pub dirty: u64,
    /// Slots.
    pub slots: u64,
}

/// Makes a cache: a flash file of `bytes` bytes, and its metadata beside it.
///
/// # Errors
/// If either is there already; sizes that make no cache; what the operating system says. What was made is removed again.
pub fn create(flash: &Path, bytes: u64) -> Result<Warm, SetupError> {
    let pool = pool_of(flash);
    if pool.symlink_metadata().is_ok() {
        return Err(SetupError::PoolLeft { pool });
    }
    let segment_bytes = (bytes / 4096).next_power_of_two().clamp(64 << 10, 4 << 20);
    let pool_bytes = Geometry::bytes_for(u64::from(SEGMENTS), segment_bytes, LANES);
    let file =
        FlashFile::create(flash, bytes).map_err(SetupError::io("making the flash cache", flash))?;
    let made = || -> Result<Warm, SetupError> {
        let options = PoolOptions::new()
            .size(pool_bytes)
            .segment_size(segment_bytes)
            .lanes(LANES)
            .emulated(true);
        drop(options.create(&pool)?);
        let place = Place {
            flash: flash.to_owned(),
            pool: pool.clone(),
        };
        let create = CreateOptions {
            page_bytes: PAGE_BYTES as u32,
            lane_segments: SEGMENTS - 1,
            files_max: files_max(bytes),
            ..CreateOptions::default()
        };
        let homes = Arc::new(Homes::new());
        let cache = Cache::create(
            Arc::new(file),
            homes,
            &place.pool()?,
            &create,
            &Options::default(),
        )?;
        Ok(warm(&cache))
    };
    made().inspect_err(|_| {
        drop(std::fs::remove_file(&pool));
        drop(std::fs::remove_file(flash));
    })
}

/// Files that a cache of this size may know: a KiB of flash each.
fn files_max(bytes: u64) -> u32 {
    u32::try_from(bytes / (256 << 10))
        .unwrap_or(u32::MAX)
        .clamp(256, 1 << 16)
}

fn warm(cache: &Cache) -> Warm {
    let stats = cache.stats();
    Warm {
        pages: stats.pages,
        dirty: stats.dirty_pages,
        slots: stats.slots,
    }
}

/// What is in the cache on this flash file.
///
/// # Errors
/// Whatever keeps a server from using it.
pub fn look(flash: &Path) -> Result<Warm, SetupError> {
    let homes = Arc::new(Homes::new());
    let (cache, _) = Place::of(flash)?.open(&homes, &Options::default())?;
    Ok(warm(&cache))
}

/// What a flush did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flushing {
    /// Pages written to the files.
    pub pages: u64,
    /// System tablespaces whose guard was lifted.
    pub lifted: Vec<PathBuf>,
    /// False if the caller stopped it.
    pub complete: bool,
}

/// Writes everything home, empties the cache, and lifts the guard: the server may be started without Forebay. What is interrupted goes on where it was.
/// `data` are directories to look for files in, beside those where they were.
///
/// # Errors
/// See [`SetupError`]; nothing that the cache has is lost.
pub fn flush(
    flash: &Path,
    data: &[PathBuf],
    progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Flushing, SetupError> {
    let homes = Arc::new(Homes::new());
    let place = Place::of(flash)?;
    let (cache, _) = place.open(&homes, &Options::default())?;
    let roots: BTreeSet<PathBuf> = data.iter().cloned().collect();
    let guarded = find_guarded(&cache, &homes, roots.clone())?;
    if let Some((_, path)) = &guarded {
        let data = path.parent().unwrap_or(Path::new("/"));
        find::attach_all(&cache, &homes, data, roots, None)?;
    }
    let emptied = cache.empty(progress)?;
    let mut flushing = Flushing {
        pages: emptied.pages,
        complete: emptied.complete,
        lifted: Vec::new(),
    };
    if !emptied.complete {
        return Ok(flushing);
    }
    // Everything that was in the guard file is there durably: the cache is empty.
    if let (Some((tablespace, path)), Some(guard)) = (guarded, homes.take_guard()) {
        guard
            .lift(&tablespace)
            .map_err(SetupError::io("lifting the guard of", &path))?;
        flushing.lifted.push(path);
    }
    for file in cache.files() {
        cache.drop_file(&file)?;
    }
    Ok(flushing)
}

/// The system tablespace that the cache knows, open, with its guard in place.
fn find_guarded(
    cache: &Cache,
    homes: &Homes,
    mut roots: BTreeSet<PathBuf>,
) -> Result<Option<(std::fs::File, PathBuf)>, SetupError> {
    let files = cache.files();
    let is_system = |name: &str| names::is_system(name.as_bytes());
    let Some(system) = files.iter().find(|file| is_system(file.name())) else {
        return Ok(None);
    };
    roots.extend(Path::new(system.name()).parent().map(Path::to_owned));
    for dir in roots {
        let path = dir.join(std::ffi::OsStr::from_bytes(names::SYSTEM));
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(held) = rustix::fs::open(&path, flags, Mode::empty()) else {
            continue;
        };
        let known =
            identity::of(&held).map_err(|e| SetupError::io("looking at", &path)(e.into()))?;
        if known.is_none_or(|known| known.identity != system.id().identity) {
            continue;
        }
        let tablespace =
            reopen(&held, false).map_err(|e| SetupError::io("opening", &path)(e.into()))?;
        let found = Guard::find(&dir, &tablespace, system.id().identity, cache.owner())
            .map_err(SetupError::io("looking at the guard of", &path))?;
        match found {
            Found::Here(mut guard) => {
                guard
                    .complete(&tablespace)
                    .map_err(SetupError::io("guarding", &path))?;
                homes.guard(system.id(), guard);
                return Ok(Some((tablespace, path)));
            }
            // It was lifted, and the power was cut then.
            Found::None if cache.stats().dirty_pages == 0 => return Ok(None),
            Found::None | Found::Mismatch(_) => {
                return Err(SetupError::Guard(format!(
                    "{} was written to without the flash cache, which has {} newer pages: it was restored from a backup, or its guard was removed. Put the data directory back as \
                     it was; nothing was changed",
                    path.display(),
                    cache.stats().dirty_pages
                )));
            }
        }
    }
    Err(SetupError::NoData(PathBuf::from(system.name())))
}
