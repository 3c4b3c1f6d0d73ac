//! What becomes of each file function of the C library for page files. A descriptor of another file costs one load ([`crate::is_cached`]).
//!
//! None of these may be called by a signal handler; InnoDB does no I/O there.

use crate::{
    PAGE_BYTES,
    complain::complain,
    file::{PageFile, RealRead, RealWrite, State, said},
    identity::{self, Known},
    innodb::{self, Pages},
    names,
    session::{self, Session},
    table,
};
use forebay_flash::CachedFile;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::{CStr, OsStr, c_int},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::Arc,
};

/// The path that a descriptor's file has.
///
/// # Errors
/// What the operating system says.
pub fn path_of(fd: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    use rustix::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes())))
}

/// A page file was opened as `fd`, by `path`: from now on its pages may be in the cache.
///
/// # Errors
/// Then it must not be used: its pages may be older than those in the cache, which this process has not got. The reason was said.
pub fn opened(fd: BorrowedFd<'_>, path: &[u8]) -> Result<(), Errno> {
    use rustix::fd::AsRawFd;
    if !names::is_page_file(path) {
        return Ok(());
    }
    // Something else of that name, or a file system that does not tell: then it was never cached.
    let Ok(Some(known)) = identity::of(fd) else {
        return Ok(());
    };
    if session::is_forked() {
        complain(
            "a page file is opened by a child of the server: that is refused, its pages are in its parent's flash cache",
        );
        return Err(Errno::BUSY);
    }
    let session = session::begin()?;
    let _opening = session.opening.lock();
    let of = known.identity;
    let file = match table::find(|file| file.known.identity == of) {
        Some(file) => file,
        None => Arc::new(look_at(session, fd, known)?),
    };
    if matches!(*file.state.read(), State::Plain) {
        return Ok(());
    }
    match table::set(fd.as_raw_fd(), &file) {
        true => Ok(()),
        false => {
            complain("a page file has a descriptor above 65535: that is refused");
            Err(Errno::MFILE)
        }
    }
}

/// What becomes of a page file that is opened for the first time.
fn look_at(session: &Session, fd: BorrowedFd<'_>, known: Known) -> Result<PageFile, Errno> {
    let path = path_of(fd)?;
    let is_system = names::is_system(path.as_os_str().as_bytes());
    if is_system && !session.is_active() {
        session.begin_system(fd, &known, &path).map_err(|why| {
            complain(&format!("{why}. The server is not given its files"));
            Errno::IO
        })?;
    }
    let state = match session.known(known.identity) {
        Some(file) => State::Cached(file),
        None if !session.is_active() => State::Plain,
        None => match first_page(fd, known.bytes) {
            None => State::Undecided,
            Some(Pages::Whole) => session.cached_or_plain(fd, &known, &path),
            Some(pages) => {
                let file = PageFile::new(known, path, is_system, State::Plain);
                file.say_plain(pages);
                return Ok(file);
            }
        },
    };
    Ok(PageFile::new(known, path, is_system, state))
}

/// What page 0 of a file says that the cache does not know. None if there is none yet.
fn first_page(fd: BorrowedFd<'_>, bytes: u64) -> Option<Pages> {
    if bytes < PAGE_BYTES as u64 {
        return None;
    }
    // Without direct I/O, which would want aligned memory, and whatever the descriptor may be used for.
    use rustix::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    // Its system tablespace is known already: no lock is lost by closing this.
    let file = rustix::fs::open(link, flags, Mode::empty()).ok()?;
    let mut start = [0; innodb::LOOKED_AT];
    rustix::io::pread(&file, &mut start, 0).ok()?;
    innodb::pages(&start)
}

/// The file of a descriptor and the session; an error in a child of the process that has it.
fn of(fd: c_int) -> Result<Option<(Arc<PageFile>, &'static Session)>, Errno> {
    let Some(file) = table::file(fd) else {
        return Ok(None);
    };
    if session::is_forked() {
        return Err(Errno::IO);
    }
    Ok(session::current().map(|session| (file, session)))
}

/// Reads from a page file.
///
/// # Errors
/// Those of `real`, which reads the file itself; `EIO` if a page cannot be had.
pub fn read(fd: c_int, to: &mut [u8], offset: u64, real: RealRead<'_>) -> Result<usize, Errno> {
    match of(fd)? {
        Some((file, session)) => file.read(session, to, offset, real),
        None => real(to, offset),
    }
}

/// Writes to a page file.
///
/// # Errors
/// Those of `real`, which writes to the file itself; `EIO` if a page cannot be taken.
pub fn write(
    fd: BorrowedFd<'_>,
    from: &[u8],
    offset: u64,
    real: RealWrite<'_>,
) -> Result<usize, Errno> {
    use rustix::fd::AsRawFd;
    match of(fd.as_raw_fd())? {
        Some((file, session)) => file.write(session, fd, from, offset, real),
        None => real(from, offset),
    }
}

/// Syncs a page file.
///
/// # Errors
/// Those of `real`, which syncs the file itself; `EIO` if the cache cannot be.
pub fn sync(fd: c_int, real: &mut dyn FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    match of(fd)? {
        Some((file, session)) => file.sync(session, real),
        None => real(),
    }
}

/// Makes all pages durable that came into the cache before this call, of whichever file.
///
/// # Errors
/// `EIO` if they cannot be.
pub fn sync_all() -> Result<(), Errno> {
    match session::current().filter(|_| !session::is_forked()) {
        Some(session) => session.cache.sync_pages().map_err(|e| said(&e)),
        None => Ok(()),
    }
}

/// Changes a page file's length by `real`.
///
/// # Errors
/// Those of `real`; `EIO` if the cache cannot forget what is cut off.
pub fn truncate(
    fd: c_int,
    bytes: u64,
    real: &mut dyn FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match of(fd)? {
        Some((file, session)) => file.truncate(session, bytes, real),
        None => real(),
    }
}

/// Makes room in a page file, or holes, by `real`.
///
/// # Errors
/// As [`truncate`].
pub fn allocate(
    fd: c_int,
    mode: c_int,
    range: [u64; 2],
    real: &mut dyn FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    /// `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE`, `FALLOC_FL_ZERO_RANGE`.
    const KEEP_SIZE: c_int = 1;
    const PUNCH_HOLE: c_int = 2;
    const ZERO_RANGE: c_int = 16;
    let Some((file, session)) = of(fd)? else {
        return real();
    };
    match mode & !KEEP_SIZE {
        0 => file.changing(real),
        PUNCH_HOLE | ZERO_RANGE => file.punch(session, range, real),
        _ => {
            file.leave(session, "has ranges moved within it")?;
            real()
        }
    }
}

/// Before something is done to a page file that the cache cannot follow: it is plain when this returns.
///
/// # Errors
/// `EIO`: it is the system tablespace, or its pages cannot be written home. Then it must not be done.
pub fn leave(fd: c_int) -> Result<(), Errno> {
    match of(fd)? {
        Some((file, session)) => {
            file.leave(session, "is used in a way that the cache cannot follow")
        }
        None => Ok(()),
    }
}

/// `fd` is about to be closed. The file's home stays open.
pub fn closing(fd: c_int) {
    table::clear(fd);
}

/// `to` is a duplicate of `from`.
pub fn duplicated(from: c_int, to: c_int) {
    if !table::copy(from, to) {
        let _ = leave(from);
    }
}

/// In a forked child: the cache is its parent's.
pub fn forked() {
    session::set_forked();
}

/// The process ends in the orderly way: what it wrote and did not sync is made durable too, and the status is said.
pub fn exiting() {
    let Some(session) = session::current().filter(|_| !session::is_forked()) else {
        return;
    };
    if session.is_active() {
        if let Some(file) = session.cache.files().first()
            && let Err(error) = session.cache.sync(file)
        {
            complain(&error.to_string());
        }
        session.write_status(Vec::new());
    }
}

/// A file whose name is about to be taken away.
pub struct Leaving {
    cached: Arc<CachedFile>,
    _held: OwnedFd,
}

impl Leaving {
    /// It is in no directory any more, [durably](renamed): the cache forgets it. The tombstone comes after the kernel's: a file that is gone is known by that,
    /// and one that is not keeps its pages.
    pub fn gone(self) {
        let Some(session) = session::current() else {
            return;
        };
        let _opening = session.opening.lock();
        let id = self.cached.id();
        if let Some(file) = table::find(|file| file.known.identity == id.identity) {
            *file.state.write() = State::Plain;
        }
        match session.forget(&self.cached) {
            Ok(()) => session.homes.detach(id),
            // Its slots are written to a file that nobody sees.
            Err(error) => complain(&error.to_string()),
        }
    }
}

/// The page file of this name, if the cache knows it and this is its only name.
fn named(dir: BorrowedFd<'_>, path: &CStr) -> Option<Leaving> {
    if !session::is_configured() || !names::is_page_file(path.to_bytes()) || session::is_forked() {
        return None;
    }
    let session = session::current()?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::openat(dir, path, flags, Mode::empty()).ok()?;
    let known = identity::of(&held).ok()??;
    let cached = session.known(known.identity).filter(|_| known.links == 1)?;
    Some(Leaving {
        cached,
        _held: held,
    })
}

/// Before a file is unlinked.
#[must_use]
pub fn unlinking(dir: BorrowedFd<'_>, path: &CStr) -> Option<Leaving> {
    named(dir, path)
}

/// Before `to` is taken by another file, which was `from`: none if both are the same.
#[must_use]
pub fn renaming(from: (BorrowedFd<'_>, &CStr), to: (BorrowedFd<'_>, &CStr)) -> Option<Leaving> {
    let replaced = named(to.0, to.1)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let moved = rustix::fs::openat(from.0, from.1, flags, Mode::empty()).ok()?;
    let moved = identity::of(&moved).ok()??;
    (moved.identity != replaced.cached.id().identity).then_some(replaced)
}

/// After page files got these names, or lost them: makes that durable. A server whose page files are really synced gets that from its syncs; without them its
/// checkpoints would overtake the file system, and a power cut bring a file back of which the cache has forgotten the pages, or an old name.
///
/// # Errors
/// Of a directory's sync.
pub fn renamed(names: &[(BorrowedFd<'_>, &CStr)]) -> Result<(), Errno> {
    use rustix::fd::AsRawFd;
    if !session::is_configured() || session::is_forked() {
        return Ok(());
    }
    let mut last = None;
    let mut all = Ok(());
    for (dir, path) in names {
        let bytes = path.to_bytes();
        if !names::is_page_file(bytes) {
            continue;
        }
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
            complain(&format!(
                "syncing the directory of {}: {errno}",
                String::from_utf8_lossy(bytes)
            ));
        });
        all = all.and(synced);
    }
    all
}

/// Before a page file is opened with `O_TRUNC`: what the cache has of it is forgotten.
///
/// # Errors
/// `EIO` if it cannot be.
pub fn truncating(dir: BorrowedFd<'_>, path: &CStr) -> Result<(), Errno> {
    truncate_path(dir, path, 0, &mut || Ok(()))
}

/// Truncates a file by name, by `real`.
///
/// # Errors
/// As [`truncate`].
pub fn truncate_path(
    dir: BorrowedFd<'_>,
    path: &CStr,
    bytes: u64,
    real: &mut dyn FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    if !session::is_configured() || !names::is_page_file(path.to_bytes()) {
        return real();
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Ok(held) = rustix::fs::openat(dir, path, flags, Mode::empty()) else {
        return real();
    };
    let Ok(Some(known)) = identity::of(held.as_fd()) else {
        return real();
    };
    let session = session::begin()?;
    let Some(cached) = session.known(known.identity) else {
        return real();
    };
    let of = known.identity;
    let file = table::find(|file| file.known.identity == of);
    let file = match file {
        Some(file) => file,
        None => {
            let path = path_of(held.as_fd())?;
            let is_system = names::is_system(path.as_os_str().as_bytes());
            Arc::new(PageFile::new(known, path, is_system, State::Cached(cached)))
        }
    };
    file.truncate(session, bytes, real)
}
