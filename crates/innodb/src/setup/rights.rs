//! The user that a command works as: the cache's owner, never with more rights. docs/durability.md,
//! "Who trusts whom".
//!
//! Who can write to one of a cache's two files can have it name any file as one whose pages it has.
//! Who can write to a data directory can put a guard and copies of pages there that do. So root has
//! a child process open a cache, and do what it says, which is the cache's owner. Of a cache that
//! is root's own that is who has laid the guard, its server's user: what else lies beside the
//! tablespace must be of the same user then.
//!
//! What is opened is what was looked at: it is held meanwhile (`cache_files`), whatever its name
//! leads to by then. By which names root removes something is said in `directory`.

use super::error::SetupError;
use crate::file_kinds::GUARD_FILE;
use forebay_pool::rights::{DistrustReason, acting_user_of, as_user, user};
use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::path::{Path, PathBuf};

pub(super) fn distrusted(path: &Path, why: DistrustReason) -> SetupError {
    let path = path.display();
    SetupError::Distrusted(match why {
        DistrustReason::OthersWrite { owner, mode } => format!(
            "{path} may be written to by others than its owner (mode {mode:03o}), who could have any file of user {owner} written to: nothing was changed. If only the \
             database and its administrators ever could, give it to the server's user: chown, chmod go-w. Then repeat"
        ),
        DistrustReason::OtherUser { owner } => format!(
            "{path} belongs to user {owner}, and is obeyed with the rights of that user alone: run this as that user, or as root"
        ),
    })
}

/// The user that a command writes to this directory as: the one that has laid the guard there; this
/// process's user if there is none.
///
/// # Errors
/// If this process may not act for that user; what the operating system says.
pub(super) fn guardian(dir: &Path) -> Result<u32, SetupError> {
    let path = dir.join(GUARD_FILE);
    match rustix::fs::lstat(&path) {
        Ok(stat) => acting_user_of(stat.st_uid, user()).map_err(|why| distrusted(&path, why)),
        Err(Errno::NOENT) => Ok(user()),
        Err(e) => Err(SetupError::io("looking at", &path)(e.into())),
    }
}

/// The answer of a process that acted for another user.
#[derive(Serialize, Deserialize)]
enum ActingReply<T> {
    Done(T),
    /// [`SetupError::InUse`], which may be tried again.
    InUse(String),
    Failed(String),
}

/// Does `work`, to the file at `path`, in a process that is `acting`: in this one, or a child.
///
/// # Errors
/// Those of `work`; if there can be no such process: then nothing was done.
pub(crate) fn act_as<T: Serialize + DeserializeOwned>(
    acting: u32,
    path: &Path,
    work: impl FnOnce() -> Result<T, SetupError>,
) -> Result<T, SetupError> {
    if acting == user() {
        return work();
    }
    let fail = || SetupError::io("acting for the owner of", path);
    let said = as_user(acting, || {
        let reply = match work() {
            Ok(done) => ActingReply::Done(done),
            Err(SetupError::InUse { flash }) => ActingReply::InUse(flash.display().to_string()),
            Err(error) => ActingReply::Failed(error.to_string()),
        };
        // Of numbers and text: it is JSON in any case.
        serde_json::to_vec(&reply).unwrap_or_default()
    });
    match serde_json::from_slice(&said.map_err(fail())?).map_err(|e| fail()(e.into()))? {
        ActingReply::Done(done) => Ok(done),
        ActingReply::InUse(flash) => Err(SetupError::InUse {
            flash: PathBuf::from(flash),
        }),
        ActingReply::Failed(why) => Err(SetupError::Acting(why)),
    }
}

#[cfg(test)]
mod tests;
