//! Giving up a cache that is lost.

use super::{
    cache_files::CacheFiles,
    error::SetupError,
    flush::FlushOutcome,
    location::CacheLocation,
    rights::{act_as, guardian},
};
use crate::{
    descriptor::{check_owner, reopen},
    doublewrite::{DoublewriteFile, RestoredPages},
    file_kinds, find,
    guard::{self, ActiveGuard, FoundGuard, standing},
    home::Homes,
    identity,
};
use forebay_flash::Identity;
use forebay_pool::rights::user;
use rustix::fs::{Mode, OFlags};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The cache of these data directories is lost: their guards are lifted, and the servers may be
/// started with the pages in their files. Pages that only the cache had are lost; those that were
/// on their way home around it are written again, so that none is torn. It is done as the user who
/// has laid the guard.
///
/// # Errors
/// If a cache is there after all, or no directory is guarded; what the operating system says.
pub fn give_up(data: &[PathBuf]) -> Result<FlushOutcome, SetupError> {
    let mut flushing = FlushOutcome {
        complete: true,
        ..FlushOutcome::default()
    };
    for dir in data {
        let path = dir.join(std::ffi::OsStr::from_bytes(file_kinds::SYSTEM));
        let dir =
            guard::beside_system(dir).map_err(SetupError::io("looking for the guard of", &path))?;
        if let Some(saved) = act_as(guardian(&dir)?, &dir, || lift_lost(&dir, &path, data))? {
            flushing.pages += saved.pages;
            flushing.not_found += saved.not_found;
            flushing.lifted.push(path);
        }
    }
    Ok(flushing)
}

/// Lifts the guard in `dir` of the system tablespace at `path`, whose cache is lost. None if that
/// is no regular file.
fn lift_lost(
    dir: &Path,
    path: &Path,
    data: &[PathBuf],
) -> Result<Option<RestoredPages>, SetupError> {
    let io = |doing| SetupError::io(doing, path);
    let found = standing(dir).map_err(io("looking at the guard of"))?;
    let guarded = match found {
        Some(guarded) if guarded.is_its_own => guarded,
        found => return Err(nothing_to_lift(path, found.is_some())),
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let held = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| io("opening")(e.into()))?;
    let known = identity::of(&held).map_err(|e| io("looking at")(e.into()))?;
    let tablespace = reopen(&held, false).map_err(|e| io("opening")(e.into()))?;
    let Some(known) = known else { return Ok(None) };
    guard::claim(&tablespace, path, &guarded.flash).map_err(SetupError::Guard)?;
    check_lost(&guarded.flash, dir, known.identity)?;
    let found = ActiveGuard::find(dir, &tablespace, known.identity, (guarded.cache, None))
        .map_err(io("looking at the guard of"))?;
    let FoundGuard::Here(mut guard) = found else {
        return Err(SetupError::Guard(format!(
            "{} was written to without its flash cache: nothing is in its guard that it needs. Remove {} if it is in the way",
            path.display(),
            dir.join(file_kinds::GUARD_FILE).display()
        )));
    };
    check_owner(guard.file(), user())
        .and_then(|()| guard.complete(&tablespace))
        .map_err(io("guarding"))?;
    let copies = DoublewriteFile::new(dir, guarded.cache).of_user(user());
    let left = copies
        .left()
        .map_err(io("looking at the copies of pages beside"))?;
    let files = find::look_through(&data.iter().cloned().collect(), &left.files())?;
    let saved = left
        .save(&files, (known.identity, &guard))
        .map_err(io("writing pages again that a crash may have torn beside"))?;
    guard
        .lift(&tablespace)
        .map_err(io("lifting the guard of"))?;
    copies
        .remove()
        .map_err(io("removing the copies of pages beside"))?;
    Ok(Some(saved))
}

/// No guard of its own is over the system tablespace at `path`, though that `is_copy` of one with a
/// guard.
fn nothing_to_lift(path: &Path, is_copy: bool) -> SetupError {
    let why = match is_copy {
        true => {
            "is a copy of a guarded one, and the guard is not its own. Bring the original back, or restore a backup"
        }
        false => "is not guarded by a flash cache: there is nothing to give up",
    };
    SetupError::Guard(format!("{} {why}. Nothing was changed", path.display()))
}

/// Refuses to give up a cache that is there and knows the tablespace `of`, or of which that cannot
/// be told.
fn check_lost(flash: &Path, dir: &Path, of: Identity) -> Result<(), SetupError> {
    let unreadable = |error: SetupError| {
        let remedy = "move it and its .lane away, and repeat this";
        unknown(dir, &error.to_string(), remedy)
    };
    let place = match CacheLocation::of(flash) {
        Err(SetupError::NoPool { .. }) => return Ok(()),
        Err(SetupError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return match ActiveGuard::has_whole(flash) {
                true => Ok(()),
                false => Err(unknown(
                    dir,
                    "its path is too long for the guard, which has its beginning",
                    "restore a backup of the data",
                )),
            };
        }
        place => place.map_err(unreadable)?,
    };
    let knows_it = CacheFiles::of(&place).and_then(|files| {
        files.as_owner(|| {
            let cache = files.open(&Arc::new(Homes::new()))?;
            Ok(cache.files().iter().any(|file| file.id().identity == of))
        })
    });
    // It has been emptied for another data directory.
    if !knows_it.map_err(unreadable)? {
        return Ok(());
    }
    Err(SetupError::Guard(format!(
        "the flash cache {0} of {1} is there. Bring its pages home: forebay flash flush --flash {0}; if it is broken for good, move it away first. Nothing was changed",
        flash.display(),
        dir.display()
    )))
}

fn unknown(dir: &Path, why: &str, remedy: &str) -> SetupError {
    SetupError::Guard(format!(
        "the flash cache of {} may still be there: {why}. If it is lost for good, {remedy}. Nothing was changed",
        dir.display()
    ))
}
