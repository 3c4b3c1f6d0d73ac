//! Making a cache: a flash file, or on a device that is blank, and its metadata beside it.

use super::{
    cache_files::{CacheFiles, NamedFlash},
    directory::{CacheDirectory, HeldPath},
    error::SetupError,
    location::{CacheLocation, is_device, name_of, pool_of},
    occupancy::CacheOccupancy,
};
use crate::{control_files::STATUS, descriptor::link_to, home::Homes, page::PAGE_BYTES};
use forebay_flash::{Cache, CacheOptions, CreateOptions, Flash, FlashFile, layout};
use forebay_pool::{
    Pool, PoolGeometry, PoolOptions, disk_signatures,
    media::{map_emulated, write_zeros},
};
use rustix::{fd::OwnedFd, fs::FileType};
use std::{fs::File, io, path::Path, sync::Arc};

/// Segments of the metadata's lane: with three and more a checkpoint holds up no thread.
const SEGMENTS: u16 = 4;
const LANES: u32 = 2;

/// Makes a cache: a flash file of `bytes` bytes, or on so many of a device that is blank, and its
/// metadata beside it.
///
/// # Errors
/// If either is there already; sizes that make no cache; what the operating system says. What was
/// made is removed again.
pub fn create(flash: &Path, bytes: u64) -> Result<CacheOccupancy, SetupError> {
    let on_device = is_device(flash).unwrap_or(false);
    let flash = match on_device {
        true => name_of(flash)?,
        false => flash.to_owned(),
    };
    check_size(bytes)?;
    let place = CacheLocation::between(&flash, &pool_of(&flash));
    let dir = CacheDirectory::of(&flash)?;
    if dir.has(place.pool_path())? {
        return Err(SetupError::PoolLeft {
            pool: place.pool_path().to_owned(),
        });
    }
    let file = match on_device {
        true => {
            let device = dir.hold(&flash)?;
            check_device(device.file()?, &flash, bytes)?;
            device
        }
        false => dir.make(&flash)?,
    };
    fill(&CacheFiles::begin(&place, dir, file, bytes)?, bytes)
}

/// Makes a cache in the two files that were made for it, or on a device.
fn fill(held: &CacheFiles<'_>, bytes: u64) -> Result<CacheOccupancy, SetupError> {
    let flash = held.place().flash();
    let check = |device: &NamedFlash| match held.is_on_device() {
        true => {
            let there = device
                .bytes()
                .map_err(SetupError::io("looking at", flash))?;
            check_contents(&held.flash.file()?.fd, flash, there)
        }
        false => Ok(()),
    };
    let _alone = held.lock()?;
    // Another command may have found them, and made it: then they are that one's.
    if !(held.is_blank()? && held.is_lane_blank()?) {
        return Err(SetupError::InUse {
            flash: flash.to_owned(),
        });
    }
    let made = make_in(held, bytes, check).inspect_err(|_| held.remove_new())?;
    make_status(held);
    Ok(made)
}

/// For a server whose user may write to it, and make no file beside it. Without it only less is
/// said.
pub(crate) fn make_status(held: &CacheFiles<'_>) {
    let _ = held.create_beside(STATUS);
}

/// Makes a cache of `bytes` bytes in these two files, which are there and have nothing: no name in
/// their directory becomes that of another file. Interrupted, it is repeated: the headers come
/// last.
///
/// # Errors
/// As [`create`].
pub(crate) fn create_in(held: &CacheFiles<'_>, bytes: u64) -> Result<CacheOccupancy, SetupError> {
    make_in(held, bytes, |_| Ok(()))
}

/// The same, if `check` finds nothing wrong with the flash file or device, which no other process
/// has.
fn make_in(
    held: &CacheFiles<'_>,
    bytes: u64,
    check: impl FnOnce(&NamedFlash) -> Result<(), SetupError>,
) -> Result<CacheOccupancy, SetupError> {
    let (flash, lane) = (held.place().flash(), held.place().pool_path());
    // Before anything is changed.
    check_size(bytes)?;
    held.check_names()?;
    let file = held.open_flash()?;
    check(&file)?;
    file.set_bytes(bytes)
        .map_err(SetupError::io_of_cache("making the flash cache", flash))?;
    let (options, pool_bytes) = metadata(bytes);
    let emptied = held.open_lane()?;
    (emptied.set_len(0))
        .and_then(|()| write_zeros(&emptied, pool_bytes))
        .map_err(SetupError::io("making the flash cache's metadata", lane))?;
    drop(options.create_on(lane, Arc::new(map_emulated(lane, emptied)?))?);
    begin(file, &held.pool()?, bytes)
}

/// Refuses a size that makes no cache.
fn check_size(bytes: u64) -> Result<(), SetupError> {
    let group_pages = CacheOptions::default().group_pages;
    layout::CacheGeometry::fit(bytes, PAGE_BYTES as u32, files_max(bytes), group_pages)?;
    Ok(())
}

/// Options and size of the pool with the metadata of a cache of `bytes` bytes.
fn metadata(bytes: u64) -> (PoolOptions, u64) {
    let segment_bytes = (bytes / 4096).next_power_of_two().clamp(64 << 10, 4 << 20);
    let pool_bytes = PoolGeometry::bytes_for(u64::from(SEGMENTS), segment_bytes, LANES);
    let options = PoolOptions::new()
        .size(pool_bytes)
        .segment_size(segment_bytes)
        .lanes(LANES)
        .emulated(true);
    (options, pool_bytes)
}

/// Makes a blank flash file or device and a new pool a cache.
fn begin(
    flash: impl Flash + 'static,
    pool: &Pool,
    bytes: u64,
) -> Result<CacheOccupancy, SetupError> {
    let create = CreateOptions {
        page_bytes: PAGE_BYTES as u32,
        lane_segments: SEGMENTS - 1,
        files_max: files_max(bytes),
        ..CreateOptions::default()
    };
    let homes = Arc::new(Homes::new());
    let cache = Cache::create(
        Arc::new(flash),
        homes,
        pool,
        &create,
        &CacheOptions::default(),
    )?;
    Ok(CacheOccupancy::of(&cache))
}

/// Refuses what is no device, or is in use, holds something, or has less than so many bytes.
fn check_device(held: &HeldPath, path: &Path, bytes: u64) -> Result<(), SetupError> {
    let invalid = |what| invalid(path, what);
    if held.kind() != FileType::BlockDevice {
        return Err(invalid(
            "it is no device any more. Nothing was changed".to_owned(),
        ));
    }
    let device = FlashFile::open(&link_to(&held.fd)).map_err(|e| {
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
    check_contents(&held.fd, path, there)
}

/// Refuses a device of so many bytes that holds something.
fn check_contents(held: &OwnedFd, path: &Path, there: u64) -> Result<(), SetupError> {
    let found = File::open(link_to(held)).and_then(|file| disk_signatures::find(&file, there));
    let found = found.map_err(SetupError::io("looking at", path))?;
    if found.is_empty() {
        return Ok(());
    }
    Err(invalid(
        path,
        format!(
            "it holds {}. If nothing of that is needed, give it up by wipefs --all, and by blkdiscard -z or zeros over its first MiB. Nothing was changed",
            disk_signatures::words(&found)
        ),
    ))
}

fn invalid(path: &Path, what: String) -> SetupError {
    let error = io::Error::new(io::ErrorKind::InvalidInput, what);
    SetupError::io("making a flash cache on", path)(error)
}

/// Files that a cache of this size may know, for a KiB of flash each: of a small one, too, more
/// than a server has open at a time.
fn files_max(bytes: u64) -> u32 {
    const SMALL: u64 = 4096;
    let files = (bytes / (64 << 10)).min(SMALL).max(bytes / (256 << 10));
    u32::try_from(files).unwrap_or(u32::MAX).clamp(256, 1 << 16)
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixtures::{Two, flash_place},
        *,
    };
    use crate::setup::look;
    use std::{fs, ops::ControlFlow};

    const BYTES: u64 = 8 << 20;

    /// A cache whose two files are made, and no more.
    fn begun(place: &CacheLocation) -> CacheFiles<'_> {
        let dir = CacheDirectory::of(place.flash()).unwrap();
        let file = dir.make(place.flash()).unwrap();
        CacheFiles::begin(place, dir, file, BYTES).unwrap()
    }

    #[test]
    fn a_cache_is_made_in_the_held_directory_whatever_its_path() {
        let two = Two::new();
        let flash = two.at("x").join("f");
        let place = CacheLocation::between(&flash, &pool_of(&flash));
        let dir = CacheDirectory::of(&flash).unwrap();
        two.swap();
        let file = dir.make(&flash).unwrap();
        create_in(&CacheFiles::begin(&place, dir, file, BYTES).unwrap(), BYTES).unwrap();
        assert_eq!(fs::read_dir(two.at("other")).unwrap().count(), 0);
        look(&two.at("y").join("f")).unwrap();
    }

    #[test]
    fn a_half_made_cache_is_made_once_it_is_given_a_size_again() {
        let two = Two::new();
        let flash = two.at("x").join("f");
        drop(begun(&CacheLocation::between(&flash, &pool_of(&flash))));
        let refused = look(&flash).unwrap_err();
        assert!(matches!(refused, SetupError::Unmade { .. }), "{refused}");
        crate::resize(&flash, BYTES, &[], |_| ControlFlow::Continue(())).unwrap();
        look(&flash).unwrap();
    }

    #[test]
    fn one_that_another_command_has_made_meanwhile_is_that_ones() {
        let two = Two::new();
        let flash = two.at("x").join("f");
        let place = CacheLocation::between(&flash, &pool_of(&flash));
        let held = begun(&place);
        crate::resize(&flash, BYTES, &[], |_| ControlFlow::Continue(())).unwrap();
        assert!(fill(&held, BYTES).unwrap_err().is_in_use());
        look(&flash).unwrap();
    }

    #[test]
    fn a_blank_file_in_a_devices_place_is_made_no_cache() {
        let two = Two::new();
        let path = two.at("x").join("image");
        fs::write(&path, vec![0; 16 << 20]).unwrap();
        let held = CacheDirectory::of(&path).unwrap().hold(&path).unwrap();
        let refused = check_device(held.file().unwrap(), &path, BYTES).unwrap_err();
        assert!(refused.to_string().contains("no device"), "{refused}");
    }

    #[test]
    fn a_cache_that_cannot_be_made_leaves_only_what_was_there() {
        let (dir, flash) = flash_place();
        create(&flash, 4096).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::write(pool_of(&flash), "kept").unwrap();
        let refused = create(&flash, BYTES).unwrap_err();
        assert!(matches!(refused, SetupError::PoolLeft { .. }), "{refused}");
        fs::rename(pool_of(&flash), &flash).unwrap();
        create(&flash, BYTES).unwrap_err();
        assert_eq!(fs::read_to_string(&flash).unwrap(), "kept");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
