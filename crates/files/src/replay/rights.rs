//! The user that a recovery works as: the lane's owner, never with more rights
//! ([`forebay_pool::rights`]).
//!
//! Who can write to a pool can forge any lane in it, so a lane's owner is the owner of the pool's
//! file. Root recovers another user's pool in a child process that is this user.

use super::{LaneReport, RecoverOptions, find::LearnedPlaces, recover_own};
use crate::{FilesError, sys};
use forebay_pool::{
    Pool, PoolOptions, PoolPersistence,
    rights::{DistrustReason, acting_user, as_user, user},
};
use std::fs::File;

/// The user that lanes of this pool are recovered as.
///
/// # Errors
/// If a user with fewer rights could have written what is in it.
pub(super) fn to(pool: &Pool) -> Result<u32, FilesError> {
    let Some(fd) = pool.descriptor() else {
        // Memory of this process alone.
        return Ok(user());
    };
    let stat = rustix::fs::fstat(fd).map_err(FilesError::errno(format!(
        "looking at {}",
        pool.path().display()
    )))?;
    acting_user(&stat, user())
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

/// Recovers the pool in a process that is `owner`.
///
/// # Errors
/// Those of the recovery; if there can be no such process, or it is killed.
pub(super) fn recover_as(
    owner: u32,
    pool: &Pool,
    options: &RecoverOptions,
) -> Result<Vec<LaneReport>, FilesError> {
    let learned = LearnedPlaces::of(pool);
    let failed = || {
        FilesError::io(format!(
            "recovering {} for its owner",
            pool.path().display()
        ))
    };
    let said = as_user(owner, || {
        let recovered = open_again(pool).and_then(|pool| recover_own(&pool, options, &learned));
        // Of strings and numbers: it is text in any case.
        serde_json::to_vec(&recovered.map_err(|error| error.to_string())).unwrap_or_default()
    });
    let recovered: Result<Vec<LaneReport>, String> =
        serde_json::from_slice(&said.map_err(failed())?).map_err(|e| failed()(e.into()))?;
    recovered.map_err(FilesError::Config)
}

/// The same file by another descriptor, as this process's user may open it: a child has no part in
/// its parent's pool.
fn open_again(pool: &Pool) -> Result<Pool, FilesError> {
    let path = pool.path();
    let link = pool.descriptor().map(sys::link_of).unwrap_or_default();
    let file = File::options().read(true).write(true).open(link);
    let file = file.map_err(FilesError::io(format!("opening {}", path.display())))?;
    let emulated = pool.durability() == PoolPersistence::ProcessCrash;
    Ok(PoolOptions::new()
        .emulated(emulated)
        .lost_legs(pool.lost_legs())
        .open_file(path, file)?)
}
