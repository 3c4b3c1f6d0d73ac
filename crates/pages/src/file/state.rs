//! What becomes of a page file's pages.

use crate::{complain::complain_once, identity::Known, session::Session};
use forebay_flash::CachedFile;
use rustix::fd::BorrowedFd;
use std::{path::Path, sync::Arc};

/// What becomes of them.
#[derive(Clone)]
pub(crate) enum State {
    /// It is being made: its page 0 will say.
    Undecided,
    /// They go through the cache.
    Cached(Arc<CachedFile>),
    /// They do not.
    Plain,
}

/// Registers a file that is open as `fd`. If it cannot be, that is said, and it is plain.
pub(super) fn cached_or_plain(
    session: &Session,
    fd: BorrowedFd<'_>,
    known: &Known,
    path: &Path,
) -> State {
    match session.register(fd, known, path) {
        Ok(file) => State::Cached(file),
        Err(why) => say_unprotected(path, &why.to_string()),
    }
}

/// Says that the cache cannot know a file, which is plain then.
pub(crate) fn say_unprotected(path: &Path, why: &str) -> State {
    complain_once(&format!(
        "{} stays plain, and is not protected from torn pages by the flash cache: {why}",
        path.display()
    ));
    State::Plain
}
