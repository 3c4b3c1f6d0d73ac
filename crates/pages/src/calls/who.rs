//! Who a page file is that the program names, or it is refused.

use crate::{
    complain::complain,
    identity::{self, Known},
    session,
};
use rustix::{fd::BorrowedFd, io::Errno};

/// Who the open page file of this path is. None if it can be in no cache.
pub(super) fn who_is(file: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Known>, Errno> {
    let knows_inode = || {
        let inode = rustix::fs::fstat(file)?.st_ino;
        let files = session::current().map(|session| session.cache.files());
        let files = files.unwrap_or_default();
        Ok(files.iter().any(|file| file.id().identity.inode == inode))
    };
    identity::of_page_file(identity::of(file), knows_inode).inspect_err(|errno| {
        complain(&format!(
            "looking at {}: {errno}. It is refused: what it has may be older than what the flash cache has",
            String::from_utf8_lossy(path)
        ));
    })
}
