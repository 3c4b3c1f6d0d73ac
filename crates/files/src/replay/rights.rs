//! With whose rights a recovery does its work: those of the lane's owner, never more
//! ([`forebay_pool::rights`]).
//!
//! Who can write to a pool can forge any lane in it, so a lane's owner is the owner of the pool's
//! file.

use crate::FilesError;
use forebay_pool::{
    Pool,
    rights::{DistrustReason, Rights},
};

/// Those that lanes of this pool are recovered with.
///
/// # Errors
/// If a user without these rights could have written what is in it.
pub(super) fn to(pool: &Pool) -> Result<Rights, FilesError> {
    let Some(fd) = pool.descriptor() else {
        // Memory of this process alone.
        return Ok(Rights::Own);
    };
    let stat = rustix::fs::fstat(fd).map_err(FilesError::errno(format!(
        "looking at {}",
        pool.path().display()
    )))?;
    Rights::of(&stat, rustix::process::geteuid().as_raw())
        .map_err(|why| FilesError::Config(format!("{} {}", pool.path().display(), told(why))))
}

fn told(why: DistrustReason) -> String {
    match why {
        DistrustReason::OthersWrite { owner, mode } => format!(
            "may be written to by others than its owner (mode {mode:03o}), who could have a recovery write anything to any file of \
             user {owner}: nothing of it is recovered. If only the database and its administrators ever could: chmod go-w, then recover again"
        ),
        DistrustReason::OtherUser { owner } => format!(
            "belongs to user {owner}, and its lanes are recovered with the rights of that user: run the recovery as that user, or as root"
        ),
    }
}

/// Does `work` with these rights.
///
/// # Errors
/// If they cannot be taken: then nothing was done.
pub(super) fn exercise<T: Send>(
    rights: Rights,
    work: impl FnOnce() -> T + Send,
) -> Result<T, FilesError> {
    let taken = rights.exercise(work);
    taken.map_err(FilesError::io("taking the rights of the pool's owner"))
}
