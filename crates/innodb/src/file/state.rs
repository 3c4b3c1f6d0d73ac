//! What becomes of a page file's pages.

use crate::{
    complain::complain_once,
    identity::KnownFile,
    session::{CacheSession, UnregisteredFile},
};
use forebay_flash::CachedFile;
use rustix::{fd::BorrowedFd, io::Errno};
use std::{path::Path, sync::Arc};

/// What becomes of them.
#[derive(Clone)]
pub(crate) enum PageRoute {
    /// It is being made: its page 0 will say.
    Undecided,
    /// They go through the cache.
    Cached(Arc<CachedFile>),
    /// They do not.
    Plain,
}

/// Registers a file that is open as `fd`. If it cannot be, that is said, and it is plain.
///
/// # Errors
/// `EMFILE` if there is no room for it: then the program must close others first.
pub(crate) fn cached_or_plain(
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
pub(crate) fn say_full(path: &Path, why: &UnregisteredFile) -> Errno {
    complain_once(&format!("{} is not used: {why}", path.display()));
    Errno::MFILE
}

/// Says that the cache cannot know a file, which is plain then.
pub(crate) fn say_unprotected(path: &Path, why: &str) -> PageRoute {
    complain_once(&format!(
        "{} stays plain, and is not protected from torn pages by the flash cache: {why}",
        path.display()
    ));
    PageRoute::Plain
}
