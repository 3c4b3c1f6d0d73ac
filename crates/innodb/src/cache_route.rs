//! Decides if the pages of a file go through the cache: when it is opened, and once more when its
//! page 0 is written, which names its kind. docs/flash-tier.md, "Page files".

use crate::{
    cache_thread, closed_files,
    complain::{complain_again, complain_once},
    descriptor::path_of,
    file::{PageFile, PageRoute},
    file_kinds,
    identity::{self, KnownFile},
    page::PAGE_BYTES,
    page_layout::{self, PageLayout},
    session::{CacheSession, UnregisteredFile},
};
use forebay_pool::with_room;
use parking_lot::RwLockUpgradableReadGuard;
use rustix::{
    fd::{AsRawFd, BorrowedFd},
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{os::unix::ffi::OsStrExt, path::Path};

/// Decides the route of a page file that is opened for the first time.
pub(crate) fn on_open(
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
            closed_files::make_room(session);
            let pages = first_page(fd, known.bytes).inspect_err(|errno| {
                complain_once(&format!(
                    "reading {}: {errno}. It is not opened",
                    path.display()
                ));
            });
            match pages? {
                None => match closed_files::has_place(session) {
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

/// The layout on page 0 of a file that the cache does not know. None if there is none yet.
fn first_page(fd: BorrowedFd<'_>, bytes: u64) -> Result<Option<PageLayout>, Errno> {
    if bytes < PAGE_BYTES as u64 {
        return Ok(None);
    }
    // Without direct I/O, which would want aligned memory, and whatever the descriptor may be used
    // for.
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    // Its system tablespace is known already: no lock is lost by closing this.
    let file = rustix::fs::open(link, flags, Mode::empty())?;
    let mut start = [0; page_layout::LOOKED_AT];
    rustix::io::pread(&file, &mut start, 0)?;
    Ok(page_layout::pages(&start))
}

/// Before a write: the written page 0 decides the file's route, also if it was decided before.
pub(crate) fn before_write(
    file: &PageFile,
    session: &CacheSession,
    fd: BorrowedFd<'_>,
    from: &[u8],
    offset: u64,
) -> Result<(), Errno> {
    if offset != 0 {
        return Ok(());
    }
    let Some(pages) = page_layout::pages(from) else {
        return Ok(());
    };
    // A file becomes known while none is opened, or loses its name.
    let is_new = matches!(&*file.state.read(), PageRoute::Undecided);
    let _opening = is_new.then(|| session.opening.lock());
    if is_new && matches!(pages, PageLayout::Whole) && session.is_active() {
        closed_files::make_room(session);
    }
    let state = file.state.upgradable_read();
    match (&*state, pages) {
        (PageRoute::Cached(_), PageLayout::Whole) | (PageRoute::Plain, _) => Ok(()),
        (PageRoute::Cached(_), _) => {
            drop(state);
            file.leave(session, "is compressed from now on")
        }
        (PageRoute::Undecided, PageLayout::Whole) if session.is_active() => {
            let mut state = RwLockUpgradableReadGuard::upgrade(state);
            *state = register(file, session, fd)?;
            Ok(())
        }
        (PageRoute::Undecided, pages) => {
            file.say_plain(pages);
            *RwLockUpgradableReadGuard::upgrade(state) = PageRoute::Plain;
            Ok(())
        }
    }
}

/// Lets the cache know the file, by its descriptor: it may have been renamed since it was
/// opened, as a table that is rebuilt is before its page 0 is written. Without room for it
/// nothing is written: it would not be protected from torn pages.
fn register(
    file: &PageFile,
    session: &CacheSession,
    fd: BorrowedFd<'_>,
) -> Result<PageRoute, Errno> {
    let path = match identity::of(fd) {
        Ok(Some(now)) if now.identity == file.known.identity => {
            path_of(fd).map_err(|errno| errno.to_string())
        }
        Ok(_) => Err("it is another file now".to_owned()),
        Err(errno) => Err(errno.to_string()),
    };
    match path {
        Ok(path) => cached_or_plain(session, fd, &file.known, &path),
        Err(why) => Ok(say_unprotected(&file.path, &why)),
    }
}

/// Registers a file that is open as `fd`. If it cannot be, that is said, and it is plain.
///
/// # Errors
/// `EMFILE` if there is no room for it: then the program must close others first.
fn cached_or_plain(
    session: &CacheSession,
    fd: BorrowedFd<'_>,
    known: &KnownFile,
    path: &Path,
) -> Result<PageRoute, Errno> {
    match session.register(fd, known, path) {
        Ok(file) => Ok(PageRoute::Cached(file)),
        Err(why @ UnregisteredFile::Full(_)) => Err(say_full(path, &why)),
        Err(why) => Ok(say_unprotected(path, &why.to_string())),
    }
}

/// Says that there is no room for a file, and what the program gets.
fn say_full(path: &Path, why: &UnregisteredFile) -> Errno {
    complain_once(&format!("{} is not used: {why}", path.display()));
    Errno::MFILE
}

/// Says that the cache cannot know a file, which is plain then.
fn say_unprotected(path: &Path, why: &str) -> PageRoute {
    complain_once(&format!(
        "{} stays plain, and is not protected from torn pages by the flash cache: {why}",
        path.display()
    ));
    PageRoute::Plain
}
