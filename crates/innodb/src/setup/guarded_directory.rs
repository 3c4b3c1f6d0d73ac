//! The data directory of a cache, which is guarded.

use super::{
    cache_files::CacheFiles,
    error::SetupError,
    rights::{act_as, guardian},
};
use crate::{
    descriptor::{check_owner, reopen},
    file_kinds,
    guard::{self, ActiveGuard, FoundGuard, Mismatch},
    home::Homes,
    identity, recorded_names,
};
use forebay_flash::{Cache, CachedFile};
use forebay_pool::rights::user;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
    io::Errno,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The system tablespace that the cache knows, if it knows one.
fn system_of(cache: &Cache) -> Option<Arc<CachedFile>> {
    let mut files = cache.files().into_iter();
    files.find(|file| file_kinds::is_system(file.name().as_bytes()))
}

/// The error if its presence at `path` cannot be told, so that it must not be taken for deleted.
fn unseen(path: &Path, errno: Errno) -> SetupError {
    let error = io::Error::from(errno);
    let remedy = match errno {
        Errno::ACCESS | Errno::PERM => format!(
            "It is looked for with the rights of the flash cache's user {}, who may not enter the directories above it: let that user in (chmod, chgrp), or give \
             the flash file and its .lane to the user of the data directory (chown)",
            user()
        ),
        _ => "Mend that, and repeat this".to_owned(),
    };
    let what = format!("{error}. {remedy}; nothing was changed");
    SetupError::io("looking for", path)(io::Error::new(error.kind(), what))
}

/// It, only held, in one of the `given` directories or where it was; and its path there.
fn find_system(
    flash: &Path,
    system: &CachedFile,
    given: &[PathBuf],
) -> Result<(OwnedFd, PathBuf), SetupError> {
    let registered = recorded_names::path_of(system);
    let mut other = None;
    // A snapshot that is named goes before what it was made of, which has the same identity.
    let dirs = given.iter().map(PathBuf::as_path);
    for dir in dirs.chain(registered.parent()) {
        let path = dir.join(std::ffi::OsStr::from_bytes(file_kinds::SYSTEM));
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let held = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(held) => held,
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            Err(errno) => return Err(unseen(&path, errno)),
        };
        let known =
            identity::of(&held).map_err(|e| SetupError::io("looking at", &path)(e.into()))?;
        match known {
            Some(known) if known.identity == system.id().identity => return Ok((held, path)),
            Some(_) if other.is_none() => other = Some(path),
            _ => {}
        }
    }
    Err(match other {
        Some(system) => SetupError::OtherData {
            system,
            flash: flash.to_owned(),
        },
        None => SetupError::NoData(registered),
    })
}

/// Does `work` with the cache, in a process that is its owner. A cache of root's own says as whom
/// its data directory is written to: that user's process gets it open.
///
/// # Errors
/// Those of `work`, and of opening the cache; if there can be no such process.
pub(crate) fn with_cache<T: Serialize + DeserializeOwned>(
    files: &CacheFiles<'_>,
    given: &[PathBuf],
    work: impl FnOnce(&Cache, &Arc<Homes>) -> Result<T, SetupError>,
) -> Result<T, SetupError> {
    let flash = files.place().flash();
    if files.owner != user() {
        return files.as_owner(|| with_cache(files, given, work));
    }
    let homes = Arc::new(Homes::new());
    let cache = files.open(&homes)?;
    let writer = match system_of(&cache) {
        Some(system) => {
            let (_, path) = find_system(flash, &system, given)?;
            guardian(path.parent().unwrap_or(Path::new("/")))?
        }
        None => user(),
    };
    if writer == user() {
        return work(&cache, &homes);
    }
    // One process has it at a time.
    drop((cache, homes));
    let open = (files.open_flash()?, files.open_lane()?);
    act_as(writer, flash, || {
        let homes = Arc::new(Homes::new());
        work(&files.open_in(open, &homes)?, &homes)
    })
}

/// The system tablespace that the cache knows, open, with its guard in place.
pub(super) fn find_guarded(
    flash: &Path,
    cache: &Cache,
    homes: &Homes,
    given: &[PathBuf],
) -> Result<Option<(std::fs::File, PathBuf)>, SetupError> {
    let Some(system) = system_of(cache) else {
        return Ok(None);
    };
    let (held, path) = find_system(flash, &system, given)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let tablespace =
        reopen(&held, false).map_err(|e| SetupError::io("opening", &path)(e.into()))?;
    guard::claim(&tablespace, &path, flash).map_err(SetupError::Guard)?;
    let of = (cache.owner(), Some(cache.epochs()));
    let found = ActiveGuard::find(dir, &tablespace, system.id().identity, of)
        .map_err(SetupError::io("looking at the guard of", &path))?;
    match found {
        FoundGuard::Here(mut guard) => {
            check_owner(guard.file(), user())
                .and_then(|()| guard.complete(&tablespace))
                .map_err(SetupError::io("guarding", &path))?;
            homes.guard(system.id(), guard);
            Ok(Some((tablespace, path)))
        }
        // It was lifted, and the power was cut then.
        FoundGuard::None if cache.stats().dirty_pages == 0 => Ok(None),
        found => {
            let mismatch = match found {
                FoundGuard::Mismatch(mismatch) => mismatch,
                _ => Mismatch::WrittenSince,
            };
            let newer = cache.stats().dirty_pages;
            Err(SetupError::Guard(mismatch.told(&path, flash, newer)))
        }
    }
}
