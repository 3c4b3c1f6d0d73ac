//! The data directory of a cache, which is guarded.

use super::error::SetupError;
use crate::{
    descriptor::reopen,
    guard::{self, Found, Guard, Mismatch},
    home::Homes,
    identity, names, naming,
};
use forebay_flash::{Cache, CachedFile};
use rustix::fs::{Mode, OFlags};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The system tablespace that the cache knows, open, with its guard in place.
pub(super) fn find_guarded(
    flash: &Path,
    cache: &Cache,
    homes: &Homes,
    given: &[PathBuf],
) -> Result<Option<(std::fs::File, PathBuf)>, SetupError> {
    let files = cache.files();
    let is_system = |file: &&Arc<CachedFile>| names::is_system(file.name().as_bytes());
    let Some(system) = files.iter().find(is_system) else {
        return Ok(None);
    };
    let registered = naming::path_of(system);
    // A snapshot that is named goes before what it was made of, which has the same identity.
    let mut dirs = given.to_vec();
    dirs.extend(registered.parent().map(Path::to_owned));
    for dir in dirs {
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
        guard::claim(&tablespace, &path, flash).map_err(SetupError::Guard)?;
        let of = (cache.owner(), Some(cache.epochs()));
        let found = Guard::find(&dir, &tablespace, system.id().identity, of)
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
            found => {
                let mismatch = match found {
                    Found::Mismatch(mismatch) => mismatch,
                    _ => Mismatch::WrittenSince,
                };
                let newer = cache.stats().dirty_pages;
                return Err(SetupError::Guard(mismatch.told(&path, flash, newer)));
            }
        }
    }
    Err(SetupError::NoData(registered))
}
