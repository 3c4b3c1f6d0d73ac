//! File functions of the C library, for page files. A descriptor of another file costs one load
//! ([`crate::is_cached`]).
//!
//! None of these may be called by a signal handler; InnoDB does no I/O there.

mod by_name;
mod identify;

pub use by_name::{exporting, rename, truncate_path, truncating, unlink};

use crate::{
    cache_route, closed_files,
    complain::{complain_again, complain_of, said},
    environment,
    file::{PageFile, PageRoute, RealRead, RealWrite},
    file_kinds, foreign_programs,
    session::{self, CacheSession},
    table,
};
use identify::{say_unborn, who_is};
use rustix::{
    fd::{AsRawFd, BorrowedFd},
    fs::{OFlags, SeekFrom},
    io::Errno,
};
use std::{ffi::c_int, sync::Arc};

/// `O_DSYNC`, which `O_SYNC` has, too. `OFlags::DSYNC` is `O_SYNC`: a file that was opened with
/// `O_DSYNC` does not have all of it.
const EACH_WRITE_SYNCED: OFlags = OFlags::from_bits_retain(0o10000);

/// A file was opened as `fd`, by `path` with these `flags`: if it is a page file, its pages may be
/// in the cache from now on. With `O_TRUNC`, which [`truncating`] came before, it has nothing.
///
/// # Errors
/// Then it must not be used: its pages may be older than those in the cache, which this process has
/// not got, or its length cannot be found out. The reason was said.
pub fn opened(fd: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<(), Errno> {
    know_opened(fd, path)?;
    match of(fd.as_raw_fd())? {
        Some((file, session)) if flags.contains(OFlags::TRUNC) => file.truncated(session),
        _ => Ok(()),
    }
}

fn know_opened(fd: BorrowedFd<'_>, path: &[u8]) -> Result<(), Errno> {
    if !file_kinds::is_page_file(path) {
        return Ok(());
    }
    if environment::foreign().is_some() {
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
        None => Arc::new(cache_route::on_open(session, fd, known)?),
    };
    if matches!(*file.state.read(), PageRoute::Plain) && !file.has_left() {
        return Ok(());
    }
    let flags = rustix::fs::fcntl_getfl(fd).inspect_err(|errno| {
        complain_again(&format!("how {} was opened: {errno}", file.path.display()));
    })?;
    if flags.contains(EACH_WRITE_SYNCED) {
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

/// Reads from a page file at its position, which moves on.
///
/// # Errors
/// As [`read`]; those of `lseek`.
pub fn read_on(fd: BorrowedFd<'_>, to: &mut [u8], real: RealRead<'_>) -> Result<usize, Errno> {
    let at = rustix::fs::tell(fd)?;
    let bytes = read(fd.as_raw_fd(), to, at, real)?;
    if bytes > 0 {
        // It was there a moment ago.
        let _ = rustix::fs::seek(fd, SeekFrom::Start(at + bytes as u64));
    }
    Ok(bytes)
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
    match of(fd.as_raw_fd())? {
        Some((file, session)) => {
            cache_route::before_write(&file, session, fd, from, offset)?;
            file.write(session, from, offset, real)
        }
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
        closed_files::close_left(&file, session);
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
    forebay_pool::sockets::close_private();
}

/// The process ends in the orderly way: its unsynced writes are made durable too, and the status is
/// written.
pub fn exiting() {
    let Some(session) = session::current().filter(|_| !session::is_forked()) else {
        return;
    };
    if session.is_active() {
        session.end();
        if let Some(file) = session.cache.files().first()
            && let Err(error) = session.cache.sync(file)
        {
            complain_of("", &error);
        }
        session.turn_epoch();
        session.write_status(Vec::new());
    }
}
