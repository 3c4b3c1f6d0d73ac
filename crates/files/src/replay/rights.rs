//! With whose rights a recovery does its work: those of the lane's owner, never more. docs/durability.md, "Who trusts whom".
//!
//! Who can write to a pool can forge any lane in it, so a lane's owner is the owner of the pool's file. A recovering process that may do more than
//! that one (root) works on the files in a thread that may not.

use crate::{FilesError, sys};
use forebay_pool::Pool;
use rustix::fs::Stat;
use std::thread;

/// Group of a user that the system does not know.
const NO_GROUP: u32 = 65_534;
/// Permission of the group, and of all others, to write.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Whose rights a recovery has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// The recovering process's own.
    Own,
    /// Those of this user.
    Of(u32),
}

impl Rights {
    /// Those that lanes of this pool are recovered with.
    ///
    /// # Errors
    /// If a user without these rights could have written what is in it.
    pub(super) fn to(pool: &Pool) -> Result<Self, FilesError> {
        let Some(fd) = pool.descriptor() else {
            // Memory of this process alone.
            return Ok(Self::Own);
        };
        let stat = rustix::fs::fstat(fd).map_err(FilesError::errno(format!(
            "looking at {}",
            pool.path().display()
        )))?;
        Self::of(&stat, rustix::process::geteuid().as_raw())
            .map_err(|why| FilesError::Config(format!("{} {why}", pool.path().display())))
    }

    fn of(pool: &Stat, user: u32) -> Result<Self, String> {
        let (owner, mode) = (pool.st_uid, pool.st_mode);
        if mode & OTHERS_WRITE != 0 || (user == 0 && mode & GROUP_WRITES != 0) {
            return Err(format!(
                "may be written to by others than its owner (mode {:03o}), who could have a recovery write anything to any file of \
                 user {owner}: nothing of it is recovered. If only the database and its administrators ever could: chmod go-w, then recover again",
                mode & 0o777
            ));
        }
        match user {
            0 if owner != 0 => Ok(Self::Of(owner)),
            _ if owner == user || owner == 0 => Ok(Self::Own),
            _ => Err(format!(
                "belongs to user {owner}, and its lanes are recovered with the rights of that user: run the recovery as that user, or as root"
            )),
        }
    }

    /// Does `work` with these rights.
    ///
    /// # Errors
    /// If they cannot be taken: then nothing was done.
    pub(super) fn exercise<T: Send>(
        self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, FilesError> {
        let Self::Of(user) = self else {
            return Ok(work());
        };
        let (group, groups) = sys::groups_of(user).unwrap_or((NO_GROUP, Vec::new()));
        let doing = || format!("recovering with the rights of user {user}");
        thread::scope(|scope| {
            let working = thread::Builder::new()
                .name("recovery".into())
                .spawn_scoped(scope, || {
                    sys::take_rights(user, group, &groups).map(|()| work())
                })
                .map_err(FilesError::io(doing()))?;
            match working.join() {
                Ok(done) => done.map_err(FilesError::errno(doing())),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(owner: u32, mode: u32, user: u32) -> Result<Rights, String> {
        let file = tempfile::tempfile().unwrap();
        let mut stat = rustix::fs::fstat(&file).unwrap();
        (stat.st_uid, stat.st_mode) = (owner, mode);
        Rights::of(&stat, user)
    }

    #[test]
    fn a_pool_is_recovered_with_the_rights_of_its_owner_and_no_more() {
        assert_eq!(rights(0, 0o600, 0), Ok(Rights::Own));
        assert_eq!(rights(7, 0o600, 0), Ok(Rights::Of(7)));
        assert_eq!(rights(7, 0o600, 7), Ok(Rights::Own));
        // The administrator's device, say, with a group of its own.
        assert_eq!(rights(0, 0o660, 7), Ok(Rights::Own));
        assert!(rights(8, 0o600, 7).unwrap_err().contains("user 8"));
    }

    #[test]
    fn a_pool_that_anybody_may_write_to_is_not_recovered() {
        for user in [0, 7] {
            assert!(rights(7, 0o602, user).unwrap_err().contains("chmod go-w"));
        }
        assert!(rights(0, 0o620, 0).unwrap_err().contains("chmod go-w"));
    }
}
