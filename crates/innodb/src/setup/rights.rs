//! With whose rights a command works: those of the user whose cache it is, never more.
//! docs/durability.md, "Who trusts whom".
//!
//! Who can write to one of a cache's two files can have it name any file as one whose pages it has,
//! and who can write to a data directory can put a guard and copies of pages there that do. So root
//! opens a cache, and does what it says, in a thread with the rights of its owner. Of a cache that
//! is root's own that is who has laid the guard, its server's user: what else lies beside the
//! tablespace must be of the same user then.
//!
//! What is opened is what was looked at: it is held meanwhile (`cache_files`), whatever its name
//! leads to by then. By which names root removes something is said in `directory`.

use super::error::SetupError;
use crate::file_kinds::GUARD_FILE;
use forebay_pool::rights::{DistrustReason, Rights, user};
use rustix::io::Errno;
use std::path::Path;

pub(super) fn distrusted(path: &Path, why: DistrustReason) -> SetupError {
    let path = path.display();
    SetupError::Distrusted(match why {
        DistrustReason::OthersWrite { owner, mode } => format!(
            "{path} may be written to by others than its owner (mode {mode:03o}), who could have any file of user {owner} written to: nothing was changed. If only the \
             database and its administrators ever could, give it to the server's user: chown, chmod go-w. Then repeat"
        ),
        DistrustReason::OtherUser { owner } => format!(
            "{path} belongs to user {owner}, and what it says is done with the rights of that user: run this as that user, or as root"
        ),
    })
}

/// The rights of who has laid the guard in this directory; the thread's own if there is none.
///
/// # Errors
/// If they cannot be had; what the operating system says.
pub(super) fn to_guarded(dir: &Path) -> Result<Rights, SetupError> {
    let path = dir.join(GUARD_FILE);
    match rustix::fs::lstat(&path) {
        Ok(stat) => Rights::of_owner(stat.st_uid, user()).map_err(|why| distrusted(&path, why)),
        Err(Errno::NOENT) => Ok(Rights::Own),
        Err(e) => Err(SetupError::io("looking at", &path)(e.into())),
    }
}

/// Does `work` with these rights, to what is at `path`.
///
/// # Errors
/// Those of `work`; if the rights cannot be taken: then nothing was done.
pub(crate) fn exercise<T: Send>(
    rights: Rights,
    path: &Path,
    work: impl FnOnce() -> Result<T, SetupError> + Send,
) -> Result<T, SetupError> {
    let fail = SetupError::io("taking the rights of the owner of", path);
    rights.exercise(work).map_err(fail)?
}

#[cfg(test)]
mod tests;
