//! Making a cache: a flash file, or on a device that is blank, and its metadata beside it.

use super::{
    error::SetupError,
    held::Held,
    place::{Place, is_device, name_of, pool_of},
    rights::exercise,
    warm::Warm,
};
use crate::{PAGE_BYTES, beside::beside, home::Homes};
use forebay_flash::{Cache, CreateOptions, Flash, FlashFile, Options, layout};
use forebay_pool::{
    Geometry, Pool, PoolOptions, contents,
    media::{map_emulated, write_zeros},
};
use std::{fs::File, io, path::Path, sync::Arc};

/// Segments of the metadata's lane: with three and more a checkpoint holds up no thread.
const SEGMENTS: u16 = 4;
const LANES: u32 = 2;
/// Ending of the name of a cache's status.
const STATUS: &str = ".status";

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
    let file = match on_device {
        true => blank_device(flash, bytes)?,
        false => FlashFile::create(flash, bytes)
            .map_err(SetupError::io_of_cache("making the flash cache", flash))?,
    };
    let made = || -> Result<Warm, SetupError> {
        drop(metadata(bytes).0.create(&pool)?);
        let warm = begin(file, &Place::between(flash, &pool).pool()?, bytes)?;
        // For a server whose user may write to it, and make no file beside it. Without it only less is said.
        let _ = File::create_new(beside(flash, STATUS));
        Ok(warm)
    };
    made().inspect_err(|_| {
        drop(std::fs::remove_file(&pool));
        if !on_device {
            drop(std::fs::remove_file(flash));
        }
    })
}

/// Makes a cache of `bytes` bytes in these two files, which are there and have nothing: no name in their directory becomes that of another file. Interrupted, it
/// is repeated: the headers come last.
///
/// # Errors
/// As [`create`].
pub(crate) fn create_in(held: &Held<'_>, bytes: u64) -> Result<Warm, SetupError> {
    let (flash, lane) = (held.place().flash(), held.place().pool_path());
    // Before anything is changed.
    let group_pages = Options::default().group_pages;
    layout::Geometry::fit(bytes, PAGE_BYTES as u32, files_max(bytes), group_pages)?;
    let warm = exercise(held.rights, flash, || {
        held.check_names()?;
        let file = held.open_flash()?;
        file.set_bytes(bytes)
            .map_err(SetupError::io("making the flash cache", flash))?;
        let (options, pool_bytes) = metadata(bytes);
        let emptied = held.open_lane()?;
        (emptied.set_len(0))
            .and_then(|()| write_zeros(&emptied, pool_bytes))
            .map_err(SetupError::io("making the flash cache's metadata", lane))?;
        drop(options.create_on(lane, Arc::new(map_emulated(lane, emptied)?))?);
        begin(file, &held.open_pool()?, bytes)
    })?;
    // As above.
    let _ = held.create_beside(STATUS);
    Ok(warm)
}

/// How the pool with the metadata of a cache of `bytes` bytes is made, and how many bytes it has.
fn metadata(bytes: u64) -> (PoolOptions, u64) {
    let segment_bytes = (bytes / 4096).next_power_of_two().clamp(64 << 10, 4 << 20);
    let pool_bytes = Geometry::bytes_for(u64::from(SEGMENTS), segment_bytes, LANES);
    let options = PoolOptions::new()
        .size(pool_bytes)
        .segment_size(segment_bytes)
        .lanes(LANES)
        .emulated(true);
    (options, pool_bytes)
}

/// Makes a blank flash file or device and a new pool a cache.
fn begin(flash: impl Flash + 'static, pool: &Pool, bytes: u64) -> Result<Warm, SetupError> {
    let create = CreateOptions {
        page_bytes: PAGE_BYTES as u32,
        lane_segments: SEGMENTS - 1,
        files_max: files_max(bytes),
        ..CreateOptions::default()
    };
    let homes = Arc::new(Homes::new());
    let cache = Cache::create(Arc::new(flash), homes, pool, &create, &Options::default())?;
    Ok(Warm::of(&cache))
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
            false => SetupError::io_of_cache("opening", path)(e),
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

/// Files that a cache of this size may know, for a KiB of flash each: of a small one, too, more than a server has open at a time.
fn files_max(bytes: u64) -> u32 {
    const SMALL: u64 = 4096;
    let files = (bytes / (64 << 10)).min(SMALL).max(bytes / (256 << 10));
    u32::try_from(files).unwrap_or(u32::MAX).clamp(256, 1 << 16)
}
