//! More page files than the cache has room for, or than a process may have open: those that the
//! server has closed are let go of.
//!
//! A file that the cache knows takes a place in its metadata, and a descriptor, that of its home. A
//! server has more tables than it has open at a time (`innodb_open_files`). So before one more file
//! becomes known, and there is hardly room, files are let go of to which no descriptor of the
//! program leads. Those of which flash has the fewest newer pages are first: these go home, and the
//! cache forgets them. One that is opened again is a new one. docs/flash-tier.md, "More files than
//! there is room for".

use crate::{
    complain::complain_once,
    descriptor::descriptors_max,
    file::PageFile,
    file_kinds,
    session::{CacheSession, UnregisteredFile},
    table,
};
use forebay_flash::{CachedFile, FlashError};
use std::sync::Arc;

/// Files that are let go of at a time: the queue is looked through once for what goes home of all
/// of them.
const AT_ONCE: usize = 32;
/// Pages that go home for it, unless the first file has more: nothing is opened or removed
/// meanwhile.
const PAGES_AT_ONCE: u64 = 1024;
/// Places that are kept free: a file is known when its first page is written, which may be after
/// others were opened.
const SPARE: usize = 16;

/// Before one more file becomes known. The caller has `opening`: no file is opened meanwhile.
pub(crate) fn make_room(session: &CacheSession) {
    let known = session.known_files().len();
    // The other half of the descriptors is the program's own.
    let most = (session.cache.files_max() as usize).min(descriptors_max() / 2);
    if known + SPARE < most {
        return;
    }
    let_go_of_closed(session);
}

/// The cache has a place for one more file that is being made, beside those that are: each
/// takes its place when its page 0 is written, which is too late to refuse it.
///
/// # Errors
/// [`UnregisteredFile::Full`]. The caller has `opening`.
pub(crate) fn has_place(session: &CacheSession) -> Result<(), UnregisteredFile> {
    let most = session.cache.files_max();
    let taken = session.known_files().len() + table::undecided();
    match taken < most as usize {
        true => Ok(()),
        false => Err(FlashError::TooManyFiles(most).into()),
    }
}

fn let_go_of_closed(session: &CacheSession) {
    let open = table::open();
    let known = session.known_files();
    let is_closed = |file: &Arc<CachedFile>| {
        // The system tablespace carries the guard.
        !open.contains(&file.id().identity) && !file_kinds::is_system(file.name().as_bytes())
    };
    let mut closed: Vec<_> = known.into_iter().filter(is_closed).collect();
    if closed.is_empty() {
        return;
    }
    closed.sort_by_cached_key(|file| (session.cache.newer_pages_of(file), file.id().number));
    closed.truncate(AT_ONCE);
    let mut pages = 0;
    let few = closed.iter().take_while(|file| {
        pages += session.cache.newer_pages_of(file);
        pages <= PAGES_AT_ONCE
    });
    let few = few.count().max(1);
    closed.truncate(few);
    // Where it fails each file is brought home on its own: one whose pages cannot be, or whose
    // home takes none, stays, and no other one with it.
    let _ = session.cache.bring_files_home(&closed);
    for file in closed {
        table::remove(file.id().identity);
        match session.let_go(&file) {
            // No lock of the program's on it is lost by that: it has it not open.
            Ok(()) => session.homes.detach(file.id()),
            Err(error) => complain_once(&format!(
                "{}, which is closed, stays in the cache: {error}",
                file.name()
            )),
        }
    }
}

/// Closes the home of a file that became plain, if no descriptor leads to it: then the program has
/// no lock on it.
pub(crate) fn close_left(file: &PageFile, session: &CacheSession) {
    let is_closed = || !table::open().contains(&file.known.identity);
    if let Some(id) = file.take_left(is_closed) {
        session.homes.detach(id);
    }
}
