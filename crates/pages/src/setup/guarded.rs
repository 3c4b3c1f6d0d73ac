//! The data directory of a cache, which is guarded.

use super::error::SetupError;
use crate::{
    descriptor::reopen,
    guard::{Found, Guard},
    home::Homes,
    identity, names,
};
use forebay_flash::Cache;
use rustix::fs::{Mode, OFlags};
use std::{
    collections::BTreeSet,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The system tablespace that the cache knows, open, with its guard in place.
pub(super) fn find_guarded(
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
