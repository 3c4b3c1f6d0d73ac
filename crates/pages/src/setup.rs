//! Making a cache, looking at it, and emptying it: for the command, while no server has it.
//!
//! A cache has its metadata in a pool of its own beside the flash file, so that one file system has both: each fence there is a sync of that file.

mod error;
mod guarded;

pub use error::SetupError;
pub use guarded::give_up;

use crate::{PAGE_BYTES, copies::Copies, find, home::Homes};
use forebay_flash::{
    Cache, CreateOptions, Flash, FlashError, FlashFile, Opened, Options, Progress,
};
use forebay_pool::{
    Geometry, Pool, PoolErrorKind, PoolOptions, contents,
    media::{Synced, open_emulated},
};
use guarded::find_guarded;
use std::{
    collections::BTreeSet,
    fs::File,
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Segments of the metadata's lane: with three and more a checkpoint holds up nobody.
const SEGMENTS: u16 = 4;
const LANES: u32 = 2;

/// Where the metadata of the cache on this flash file is.
#[must_use]
pub fn pool_of(flash: &Path) -> PathBuf {
    let mut path = flash.as_os_str().to_owned();
    path.push(".lane");
    path.into()
}

/// The whole name of a flash file or device, beside which its metadata is. Of a device that is the name it was given by: a link to it in a directory where
/// files stay.
fn name_of(flash: &Path) -> Result<PathBuf, SetupError> {
    let fail = |e| SetupError::io("opening the flash cache", flash)(e);
    let whole = flash.canonicalize().map_err(fail)?;
    if !is_device(&whole).map_err(fail)? {
        return Ok(whole);
    }
    let dir = flash.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new(".")).canonicalize().map_err(fail)?;
    /// tmpfs, which /dev is as well.
    const IN_MEMORY: i64 = 0x0102_1994;
    if rustix::fs::statfs(&dir).is_ok_and(|found| found.f_type == IN_MEMORY) {
        return Err(SetupError::InDev {
            flash: flash.to_owned(),
        });
    }
    Ok(dir.join(flash.file_name().unwrap_or_default()))
}

fn is_device(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt;
    Ok(path.metadata()?.file_type().is_block_device())
}

/// A cache's two files.
pub struct Place {
    flash: PathBuf,
    pool: PathBuf,
}

impl Place {
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
            Err(e) => Err(SetupError::io("opening", &pool)(e)),
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

    /// A device that another process has, or a file system.
    fn busy(&self, source: io::Error) -> SetupError {
        match source.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) {
            true => SetupError::InUse {
                flash: self.flash.clone(),
            },
            false => SetupError::io("opening the flash cache", &self.flash)(source),
        }
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
        let flash = FlashFile::open(&self.flash).map_err(|e| self.busy(e))?;
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

/// Makes a cache: a flash file of `bytes` bytes, or on so many of a device that is blank, and its metadata beside it.
///
/// # Errors
/// If either is there already; sizes that make no cache; what the operating system says. What was made is removed again.
pub fn create(flash: &Path, bytes: u64) -> Result<Warm, SetupError> {
    let on_device = is_device(flash).unwrap_or(false);
    let name = if on_device {
        name_of(flash)?
    } else {
        flash.to_owned()
    };
    let flash = name.as_path();
    let pool = pool_of(flash);
    if pool.symlink_metadata().is_ok() {
        return Err(SetupError::PoolLeft { pool });
    }
    let segment_bytes = (bytes / 4096).next_power_of_two().clamp(64 << 10, 4 << 20);
    let pool_bytes = Geometry::bytes_for(u64::from(SEGMENTS), segment_bytes, LANES);
    let file = match on_device {
        true => blank_device(flash, bytes)?,
        false => FlashFile::create(flash, bytes)
            .map_err(SetupError::io("making the flash cache", flash))?,
    };
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
        if !on_device {
            drop(std::fs::remove_file(flash));
        }
    })
}

/// So many bytes of a device that is not in use and holds nothing.
fn blank_device(path: &Path, bytes: u64) -> Result<FlashFile, SetupError> {
    let invalid = |what: String| {
        SetupError::io("making a flash cache on", path)(io::Error::new(
            io::ErrorKind::InvalidInput,
            what,
        ))
    };
    let device = FlashFile::open(path).map_err(|e| {
        match e.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) {
            true => invalid(
                "it is in use: mounted, or part of an array or a volume group. Nothing was changed"
                    .to_owned(),
            ),
            false => SetupError::io("opening", path)(e),
        }
    })?;
    let there = device.bytes().map_err(SetupError::io("looking at", path))?;
    if there < bytes {
        return Err(invalid(format!(
            "it has {there} bytes, and {bytes} were asked for"
        )));
    }
    let found = File::open(path).and_then(|file| contents::find(&file, there));
    let found = found.map_err(SetupError::io("looking at", path))?;
    if !found.is_empty() {
        return Err(invalid(format!(
            "it holds {}. If nothing of that is needed, give it up by wipefs --all, and by blkdiscard -z or zeros over its first MiB. Nothing was changed",
            contents::words(&found)
        )));
    }
    Ok(device.shortened(bytes))
}

/// Refuses a size that makes no cache.
pub(crate) fn check_size(bytes: u64) -> Result<(), SetupError> {
    let group = Options::default().group_pages;
    forebay_flash::layout::Geometry::fit(bytes, PAGE_BYTES as u32, files_max(bytes), group)?;
    Ok(())
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
    /// Pages that a crash may have torn, and whose files were not found.
    pub not_found: u64,
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
    flush_open(&place, &cache, &homes, data, progress)
}

/// See [`flush`], with a cache that is open.
pub(crate) fn flush_open(
    place: &Place,
    cache: &Cache,
    homes: &Arc<Homes>,
    data: &[PathBuf],
    progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Flushing, SetupError> {
    let roots: BTreeSet<PathBuf> = data.iter().cloned().collect();
    let guarded = find_guarded(cache, homes, roots.clone())?;
    if let Some((_, path)) = &guarded {
        let data = path.parent().unwrap_or(Path::new("/"));
        find::attach_all(cache, homes, data, roots, None)?;
        let copies = Copies::new(data, cache.owner());
        copies.restore(cache, homes).map_err(SetupError::io(
            "writing pages again that a crash may have torn in",
            data,
        ))?;
        homes.keep_copies(copies);
    }
    let flushed = cache.flush(progress)?;
    let mut flushing = Flushing {
        pages: flushed.pages,
        complete: flushed.complete,
        ..Flushing::default()
    };
    if !flushed.complete {
        return Ok(flushing);
    }
    if !flushed.lost.is_empty() {
        return Err(SetupError::Lost {
            flash: place.flash().to_owned(),
            pages: flushed.lost,
        });
    }
    let _ = cache.empty(|_| ControlFlow::Continue(()))?;
    // Everything that was in the guard file is there durably: the cache is empty.
    if let (Some((tablespace, path)), Some(guard)) = (guarded, homes.take_guard()) {
        guard
            .lift(&tablespace)
            .map_err(SetupError::io("lifting the guard of", &path))?;
        let data = path.parent().unwrap_or(Path::new("/"));
        Copies::new(data, cache.owner())
            .remove()
            .map_err(SetupError::io("removing the copies of pages in", data))?;
        flushing.lifted.push(path);
    }
    for file in cache.files() {
        cache.drop_file(&file)?;
    }
    Ok(flushing)
}
