//! More page files than the cache has room for, or than a process may have open: those that the
//! server has closed are let go of.
//!
//! A file that the cache knows takes a place in its metadata, and a descriptor, that of its home. A
//! server has more tables than it has open at a time (`innodb_open_files`). So before one more file
//! becomes known, and there is hardly room, of the files that no descriptor of the program's leads
//! to, those of which flash has the fewest newer pages are let go of: these go home, and the cache
//! forgets them. One that is opened again is a new one. docs/flash-tier.md, "More files than there
//! is room for".

use super::CacheSession;
use crate::{complain::complain_once, descriptor::descriptors_max, file_kinds, table};
use forebay_flash::{CachedFile, FlashError};
use rustix::io::Errno;
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

/// Why a file is not known to the cache.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnregisteredFile {
    /// There is no room for it, until the server closes others.
    #[error(
        "{0}. The server is told that too many files are open, and closes others where it can. Each page file that is in use takes two descriptors: allow it more of them \
         (open_files_limit, LimitNOFILE), or have it keep fewer open (innodb_open_files)"
    )]
    Full(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl From<Errno> for UnregisteredFile {
    fn from(errno: Errno) -> Self {
        let why = format!("opening it once more: {errno}");
        match errno {
            Errno::MFILE => Self::Full(why),
            _ => Self::Failed(why),
        }
    }
}

impl From<FlashError> for UnregisteredFile {
    fn from(error: FlashError) -> Self {
        match error {
            FlashError::TooManyFiles(_) => Self::Full(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

impl CacheSession {
    /// Before one more file becomes known. The caller has `opening`: no file is opened meanwhile.
    pub(crate) fn make_room(&self) {
        let known = self.registered.lock().len();
        // The other half of the descriptors is the program's own.
        let most = (self.cache.files_max() as usize).min(descriptors_max() / 2);
        if known + SPARE < most {
            return;
        }
        self.let_go_of_closed();
    }

    /// The cache has a place for one more file that is being made, beside those that are: each
    /// takes its place when its page 0 is written, which is too late to refuse it.
    ///
    /// # Errors
    /// [`UnregisteredFile::Full`]. The caller has `opening`.
    pub(crate) fn has_place(&self) -> Result<(), UnregisteredFile> {
        let most = self.cache.files_max();
        let taken = self.registered.lock().len() + table::undecided();
        match taken < most as usize {
            true => Ok(()),
            false => Err(FlashError::TooManyFiles(most).into()),
        }
    }

    fn let_go_of_closed(&self) {
        let open = table::open();
        let known: Vec<Arc<CachedFile>> = self.registered.lock().values().cloned().collect();
        let is_closed = |file: &Arc<CachedFile>| {
            // The system tablespace carries the guard.
            !open.contains(&file.id().identity) && !file_kinds::is_system(file.name().as_bytes())
        };
        let mut closed: Vec<_> = known.into_iter().filter(is_closed).collect();
        if closed.is_empty() {
            return;
        }
        closed.sort_by_cached_key(|file| (self.cache.newer_pages_of(file), file.id().number));
        closed.truncate(AT_ONCE);
        let mut pages = 0;
        let few = closed.iter().take_while(|file| {
            pages += self.cache.newer_pages_of(file);
            pages <= PAGES_AT_ONCE
        });
        let few = few.count().max(1);
        closed.truncate(few);
        // Where it fails each file is brought home on its own: one whose pages cannot be, or whose
        // home takes none, stays, and no other one with it.
        let _ = self.cache.bring_files_home(&closed);
        for file in closed {
            table::remove(file.id().identity);
            match self.let_go(&file) {
                // No lock of the program's on it is lost by that: it has it not open.
                Ok(()) => self.homes.detach(file.id()),
                Err(error) => complain_once(&format!(
                    "{}, which is closed, stays in the cache: {error}",
                    file.name()
                )),
            }
        }
    }
}
