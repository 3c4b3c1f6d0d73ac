//! The identity of a page file that the program names; without one the file is refused.

use crate::{
    complain::{complain, complain_again},
    descriptor::path_of,
    identity::{self, KnownFile},
    session,
};
use rustix::{fd::BorrowedFd, io::Errno};

/// Identifies the open page file of this path. None if it can be in no cache.
pub(super) fn who_is(file: BorrowedFd<'_>, path: &[u8]) -> Result<Option<KnownFile>, Errno> {
    let knows_inode = || {
        let inode = rustix::fs::fstat(file)?.st_ino;
        let files = session::current().map(|session| session.cache.files());
        let files = files.unwrap_or_default();
        Ok(files.iter().any(|file| file.id().identity.inode == inode))
    };
    identity::of_page_file(identity::of(file), knows_inode).inspect_err(|errno| {
        complain_again(&format!(
            "looking at {}: {errno}. It is refused: its pages may be older than the flash cache's",
            String::from_utf8_lossy(path)
        ));
    })
}

/// A page file can be in no cache. Of one whose file system does not say when it was born that is
/// said, once for all of them.
pub(super) fn say_unborn(file: BorrowedFd<'_>) {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    static SAID: AtomicBool = AtomicBool::new(false);
    if matches!(identity::of(file), Err(Errno::OPNOTSUPP)) && !SAID.swap(true, Relaxed) {
        let path = path_of(file).unwrap_or_default();
        complain(&format!(
            "{} stays plain, and so does every page file like it: their file system does not say when a file was born, and the flash cache does not know them. Nothing protects \
             their pages from being torn: keep innodb_doublewrite on",
            path.display()
        ));
    }
}
