//! The functions that name a page file: they unlink, rename or truncate it.

use super::identify::who_is;
use crate::{
    closed_files,
    complain::{complain_again, complain_of, said},
    descriptor::path_of,
    environment,
    file::{PageFile, PageRoute},
    file_kinds, foreign_programs, identity, recorded_names, session, table,
};
use forebay_flash::CachedFile;
use parking_lot::MutexGuard;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::{CStr, CString},
    os::unix::ffi::OsStrExt,
    sync::Arc,
};

/// A name that is about to be taken away. Until this is gone no file becomes known: one that did,
/// by this name, would be missed at the next start.
struct LeavingName {
    file: Option<NamedPageFile>,
    _opening: Option<MutexGuard<'static, ()>>,
}

/// A page file that the cache knows, by its name.
struct NamedPageFile {
    cached: Arc<CachedFile>,
    held: OwnedFd,
    /// It has no other name.
    is_last: bool,
}

impl LeavingName {
    /// Notes that the name goes of what `find` finds, before the kernel takes it.
    fn noted(path: &CStr, find: impl FnOnce() -> Option<NamedPageFile>) -> Self {
        let session = session::current().filter(|_| file_kinds::is_page_file(path.to_bytes()));
        let Some(session) = session.filter(|_| !session::is_forked()) else {
            return Self {
                file: None,
                _opening: None,
            };
        };
        let opening = session.opening.lock();
        let file = find();
        if let Some(file) = &file {
            note(recorded_names::leaves(&session.cache, &file.cached));
        }
        Self {
            file,
            _opening: Some(opening),
        }
    }

    /// It is in no directory any more, [durably](renamed): the cache forgets it. The tombstone
    /// comes after the kernel's: a file that is gone is known by that, and one that is not keeps
    /// its pages. Of a file with other names it is only noted that no server needs it where it was.
    fn gone(self) {
        let file = self.file.as_ref().filter(|file| file.is_last);
        let (Some(session), Some(file)) = (session::current(), file) else {
            return;
        };
        let id = file.cached.id();
        if let Some(file) = table::find(|file| file.known.identity == id.identity) {
            *file.state.write() = PageRoute::Plain;
        }
        match session.forget(&file.cached) {
            Ok(()) => session.homes.detach(id),
            // Its slots are written to a file that is in no directory.
            Err(error) => complain_of("", &error),
        }
    }

    /// The kernel left it where it is.
    fn stays(self) {
        if let (Some(session), Some(file)) = (session::current(), &self.file)
            && let Ok(path) = path_of(file.held.as_fd())
        {
            note(recorded_names::is_at(&session.cache, &file.cached, &path));
        }
    }
}

/// Tells of a note that failed: the next start would look for the file elsewhere, or miss it.
fn note(noted: Result<(), forebay_flash::FlashError>) {
    if let Err(error) = noted {
        complain_of("noting where a page file is: ", &error);
    }
}

/// The page file of this name, if the cache knows it.
fn named(dir: BorrowedFd<'_>, path: &CStr) -> Option<NamedPageFile> {
    if !environment::is_configured()
        || !file_kinds::is_page_file(path.to_bytes())
        || session::is_forked()
    {
        return None;
    }
    let session = session::current()?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::openat(dir, path, flags, Mode::empty()).ok()?;
    let known = identity::of(&held).ok()??;
    Some(NamedPageFile {
        cached: session.known(known.identity)?,
        held,
        is_last: known.links == 1,
    })
}

/// Unlinks a file by `real`.
///
/// # Errors
/// Those of `real`; `EBUSY`: this process is no server, and the cache has newer pages.
pub fn unlink(
    dir: BorrowedFd<'_>,
    path: &CStr,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    foreign_programs::check(path.to_bytes())?;
    let leaving = LeavingName::noted(path, || named(dir, path));
    take_name(leaving, &[(dir, path)], real)
}

/// Renames `from` to `to` by `real`; a file of that name loses it.
///
/// # Errors
/// As [`unlink`].
pub fn rename(
    from: (BorrowedFd<'_>, &CStr),
    to: (BorrowedFd<'_>, &CStr),
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    foreign_programs::check(from.1.to_bytes())?;
    foreign_programs::check(to.1.to_bytes())?;
    let leaving = LeavingName::noted(to.1, || replaced(from, to));
    take_name(leaving, &[from, to], real)
}

/// Takes a name away, which is noted, by `real`, which changes these.
fn take_name(
    leaving: LeavingName,
    names: &[(BorrowedFd<'_>, &CStr)],
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    if let Err(errno) = real() {
        leaving.stays();
        return Err(errno);
    }
    // If that fails the file may be back after a power cut: it keeps its pages.
    if renamed(names).is_ok() {
        leaving.gone();
    }
    Ok(())
}

/// The page file that loses its name; none if both are the same.
fn replaced(from: (BorrowedFd<'_>, &CStr), to: (BorrowedFd<'_>, &CStr)) -> Option<NamedPageFile> {
    let replaced = named(to.0, to.1)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let moved = rustix::fs::openat(from.0, from.1, flags, Mode::empty()).ok()?;
    let moved = identity::of(&moved).ok()??;
    (moved.identity != replaced.cached.id().identity).then_some(replaced)
}

/// After page files got these names, or lost them: makes that durable. A server whose page files
/// are really synced gets that from its syncs. Without them its checkpoints would overtake the file
/// system: a power cut would bring back an old name, or a file whose pages the cache has forgotten.
///
/// # Errors
/// Of a directory's sync.
fn renamed(names: &[(BorrowedFd<'_>, &CStr)]) -> Result<(), Errno> {
    use rustix::fd::AsRawFd;
    if !environment::is_configured() || session::is_forked() {
        return Ok(());
    }
    let mut last = None;
    let mut all = Ok(());
    for (dir, path) in names {
        let bytes = path.to_bytes();
        if !file_kinds::is_page_file(bytes) {
            continue;
        }
        note_name(*dir, path);
        let parent = match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(0) => &b"/"[..],
            Some(end) => &bytes[..end],
            None => &b"."[..],
        };
        let place = (dir.as_raw_fd(), parent);
        if last.replace(place) == Some(place) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(*dir, parent, flags, Mode::empty());
        let synced = opened.and_then(rustix::fs::fsync).inspect_err(|errno| {
            complain_again(&format!(
                "syncing the directory of {}: {errno}",
                String::from_utf8_lossy(bytes)
            ));
        });
        all = all.and(synced);
    }
    all
}

/// If the file that has this name now is one that the cache knows, it knows it by this name from
/// now on.
fn note_name(dir: BorrowedFd<'_>, path: &CStr) {
    if let (Some(file), Some(session)) = (named(dir, path), session::current())
        && let Ok(path) = path_of(file.held.as_fd())
    {
        note(recorded_names::is_at(&session.cache, &file.cached, &path));
    }
}

/// Before the description of a table is made that is to be exported (`FLUSH TABLES … FOR EXPORT`),
/// `t.cfg` beside `t.ibd`. The server has written the table's pages, and changes none until the
/// export ends; meanwhile the user copies the file past the cache. So the file has everything
/// first.
///
/// # Errors
/// `EIO` if it has not: then there is nothing to be copied.
pub fn exporting(dir: BorrowedFd<'_>, path: &CStr) -> Result<(), Errno> {
    let Some(table) = path.to_bytes().strip_suffix(b".cfg") else {
        return Ok(());
    };
    let Ok(tablespace) = CString::new([table, b".ibd"].concat()) else {
        return Ok(());
    };
    match (named(dir, &tablespace), session::current()) {
        (Some(file), Some(session)) => {
            let brought = session.cache.bring_home(&file.cached, 0, u32::MAX);
            brought.map_err(|e| said(&e))
        }
        _ => Ok(()),
    }
}

/// Before a file is opened with these `flags`: with `O_TRUNC` the cache forgets its pages of it.
/// Once it is open, [`opened`](super::opened) is told the same flags.
///
/// # Errors
/// `EIO` if it cannot be.
pub fn truncating(dir: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> Result<(), Errno> {
    match flags.contains(OFlags::TRUNC) {
        true => truncate_path(dir, path, 0, &mut || Ok(())),
        false => Ok(()),
    }
}

/// Truncates a file by name, by `real`.
///
/// # Errors
/// As [`truncate`](super::truncate).
pub fn truncate_path(
    dir: BorrowedFd<'_>,
    path: &CStr,
    bytes: u64,
    real: &mut dyn FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    if !environment::is_configured() || !file_kinds::is_page_file(path.to_bytes()) {
        return real();
    }
    if environment::foreign().is_some() {
        foreign_programs::check(path.to_bytes())?;
        return real();
    }
    if session::is_forked() {
        return Err(Errno::BUSY);
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let held = match rustix::fs::openat(dir, path, flags, Mode::empty()) {
        Ok(held) => held,
        Err(Errno::NOENT) => return real(),
        // What keeps us from looking at it keeps `real` from changing it, but for want of
        // descriptors or memory: then it must not.
        Err(errno) => return Err(errno),
    };
    let Some(known) = who_is(held.as_fd(), path.to_bytes())? else {
        return real();
    };
    let session = session::begin()?;
    // Meanwhile it is not let go of.
    let _opening = session.opening.lock();
    let Some(cached) = session.known(known.identity) else {
        return real();
    };
    let of = known.identity;
    let file = table::find(|file| file.known.identity == of);
    let file = match file {
        Some(file) => file,
        None => {
            let path = path_of(held.as_fd())?;
            let is_system = file_kinds::is_system(path.as_os_str().as_bytes());
            Arc::new(PageFile::new(
                known,
                path,
                is_system,
                PageRoute::Cached(cached),
            ))
        }
    };
    let truncated = file.truncate(session, bytes, real);
    // It may have become plain without being open.
    closed_files::close_left(&file, session);
    truncated
}
