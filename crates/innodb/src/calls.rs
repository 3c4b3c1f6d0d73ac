//! What becomes of each file function of the C library for page files. A descriptor of another file
//! costs one load ([`crate::is_cached`]).
//!
//! None of these may be called by a signal handler; InnoDB does no I/O there.

mod by_name;
mod identify;

pub use by_name::{
    LeavingName, exporting, renamed, renaming, truncate_path, truncating, unlinking,
};

use crate::{
    PAGE_BYTES, cache_thread,
    complain::{complain_again, complain_of, complain_once, said},
    descriptor::path_of,
    file::{PageFile, PageRoute, RealRead, RealWrite, cached_or_plain, say_full},
    file_kinds, foreign_programs,
    identity::KnownFile,
    page_layout::{self, PageLayout},
    session::{self, CacheSession},
    table,
};
use forebay_pool::with_room;
use identify::{say_unborn, who_is};
use rustix::{
    fd::BorrowedFd,
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{ffi::c_int, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

/// A page file was opened as `fd`, by `path`: from now on its pages may be in the cache.
///
/// # Errors
/// Then it must not be used: its pages may be older than those in the cache, which this process has
/// not got. The reason was said.
pub fn opened(fd: BorrowedFd<'_>, path: &[u8]) -> Result<(), Errno> {
    use rustix::fd::AsRawFd;
    if !file_kinds::is_page_file(path) {
        return Ok(());
    }
    if session::other().is_some() {
        return foreign_programs::check(path);
    }
    let Some(known) = who_is(fd, path)? else {
        say_unborn(fd);
        return Ok(());
    };
    if session::is_forked() {
        complain_again(
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
    if matches!(*file.state.read(), PageRoute::Plain) && !file.has_left() {
        return Ok(());
    }
    let flags = rustix::fs::fcntl_getfl(fd).inspect_err(|errno| {
        complain_again(&format!("how {} was opened: {errno}", file.path.display()));
    })?;
    if flags.contains(OFlags::DSYNC) {
        file.set_write_through();
    }
    match table::set(fd.as_raw_fd(), &file) {
        true => Ok(()),
        false => {
            complain_again("a page file has a descriptor above 65535: that is refused");
            Err(Errno::MFILE)
        }
    }
}

/// What becomes of a page file that is opened for the first time.
fn look_at(
    session: &'static CacheSession,
    fd: BorrowedFd<'_>,
    known: KnownFile,
) -> Result<PageFile, Errno> {
    let path = path_of(fd)?;
    let is_system = file_kinds::is_system(path.as_os_str().as_bytes());
    if is_system && !session.is_active() {
        with_room(|| begin_system(session, fd, &known, &path)).map_err(|why| {
            complain_again(&format!("{why}. The server is not given its files"));
            Errno::IO
        })?;
    }
    let state = match session.known(known.identity) {
        Some(file) => PageRoute::Cached(file),
        None if !session.is_active() => {
            session.say_unserved();
            PageRoute::Plain
        }
        None => {
            session.make_room();
            let pages = first_page(fd, known.bytes).inspect_err(|errno| {
                complain_once(&format!(
                    "reading {}: {errno}. It is not opened",
                    path.display()
                ));
            });
            match pages? {
                None => match session.has_place() {
                    Ok(()) => PageRoute::Undecided,
                    Err(why) => return Err(say_full(&path, &why)),
                },
                Some(PageLayout::Whole) => cached_or_plain(session, fd, &known, &path)?,
                Some(pages) => {
                    let file = PageFile::new(known, path, is_system, PageRoute::Plain);
                    file.say_plain(pages);
                    return Ok(file);
                }
            }
        }
    };
    Ok(PageFile::new(known, path, is_system, state))
}

/// The session begins with the system tablespace, and its thread as soon as pages may come in: not
/// while the data directory is made.
fn begin_system(
    session: &'static CacheSession,
    fd: BorrowedFd<'_>,
    known: &KnownFile,
    path: &Path,
) -> Result<(), String> {
    session.begin_system(fd, known, path)?;
    match session.is_active() {
        true => cache_thread::start(session),
        false => Ok(()),
    }
}

/// What page 0 of a file says that the cache does not know. None if there is none yet.
fn first_page(fd: BorrowedFd<'_>, bytes: u64) -> Result<Option<PageLayout>, Errno> {
    if bytes < PAGE_BYTES as u64 {
        return Ok(None);
    }
    // Without direct I/O, which would want aligned memory, and whatever the descriptor may be used
    // for.
    use rustix::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    // Its system tablespace is known already: no lock is lost by closing this.
    let file = rustix::fs::open(link, flags, Mode::empty())?;
    let mut start = [0; page_layout::LOOKED_AT];
    rustix::io::pread(&file, &mut start, 0)?;
    Ok(page_layout::pages(&start))
}

/// The file of a descriptor and the session; an error in a child of the process that has it.
fn of(fd: c_int) -> Result<Option<(Arc<PageFile>, &'static CacheSession)>, Errno> {
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

/// Makes all pages durable that came into the cache before this call, of whichever file; with the
/// policy *through* at home as well.
///
/// # Errors
/// `EIO` if they cannot be: then there must be no checkpoint that passes them.
pub fn sync_all() -> Result<(), Errno> {
    match session::current().filter(|_| !session::is_forked()) {
        Some(session) => session.cache.sync_all().map_err(|e| said(&e)),
        None => Ok(()),
    }
}

/// A page file was opened as `fd` with `O_TRUNC`, after [`truncating`]: it has nothing from now on.
///
/// # Errors
/// `EIO` if its length cannot be found out: then it must not be used.
pub fn truncated(fd: c_int) -> Result<(), Errno> {
    match of(fd)? {
        Some((file, session)) => file.truncated(session),
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

/// Before something is done to a page file that the cache cannot follow: it is plain when this
/// returns.
///
/// # Errors
/// `EIO`: it is the system tablespace, or its pages cannot be written home. Then it must not be
/// done.
pub fn leave(fd: c_int) -> Result<(), Errno> {
    match of(fd)? {
        Some((file, session)) => {
            file.leave(session, "is used in a way that the cache cannot follow")
        }
        None => Ok(()),
    }
}

/// `fd` is about to be closed. The file's home stays open, unless the file is plain and no other
/// descriptor leads to it.
pub fn closing(fd: c_int) {
    let last = match session::is_forked() {
        true => None,
        false => table::file(fd).zip(session::current()),
    };
    table::clear(fd);
    if let Some((file, session)) = last {
        file.close_left(session);
    }
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

/// The process ends in the orderly way: what it wrote and did not sync is made durable too, and the
/// status is said.
pub fn exiting() {
    let Some(session) = session::current().filter(|_| !session::is_forked()) else {
        return;
    };
    if session.is_active() {
        if let Some(file) = session.cache.files().first()
            && let Err(error) = session.cache.sync(file)
        {
            complain_of("", &error);
        }
        session.turn_epoch();
        session.write_status(Vec::new());
    }
}
