//! Marks of files ([`void_marks`]) that void a lane's records, from when the pool took nothing any
//! more.

use super::{decide::RecoverySituation, find::FoundFile};
use crate::void_marks;
use rustix::io::Errno;
use std::path::Path;
use uuid::Uuid;

/// A file's mark of the lane's records.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FileMark {
    Nothing,
    /// None is needed.
    Void,
    /// A sync of the file failed.
    Failed,
}

/// The file's mark of the records that the lane of `owner` has of it.
///
/// # Errors
/// Its attributes cannot be read, though there may be some that are heeded.
pub(super) fn said_in(
    found: &FoundFile,
    owner: Uuid,
    situation: &RecoverySituation<'_>,
) -> Result<FileMark, Errno> {
    let FoundFile::Here(seen) = found else {
        return Ok(FileMark::Nothing);
    };
    let read = || match () {
        () if void_marks::is_marked(seen, owner)? => Ok(FileMark::Void),
        () if void_marks::is_failed(seen, owner)? => Ok(FileMark::Failed),
        () => Ok(FileMark::Nothing),
    };
    match read() {
        // A pool that is memory takes what is to be said, but for one that is damaged.
        Err(_) if !situation.on_disk || situation.options.force => Ok(FileMark::Nothing),
        said => said,
    }
}

/// In words: the reason that nothing is done with a file.
pub(super) fn untold(path: &Path, errno: Errno) -> String {
    format!(
        "the extended attributes of {} cannot be read: {errno}. They tell if the pool's disk failed while the file was in use. Remedy that (as a user who may \
         read it), then recover again; `forebay recover --force` writes the pool's records all the same",
        path.display()
    )
}

/// In words: the reason that a file gets none of the lane's records of it.
pub(super) fn newer(path: &Path) -> String {
    format!(
        "{} was synced when the pool's disk had failed, and the program went on without the pool: the pool's writes of it are older, and are dropped",
        path.display()
    )
}
