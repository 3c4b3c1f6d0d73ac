//! With whose rights a command works: those of the user whose cache it is, never more. docs/durability.md, "Who trusts whom".
//!
//! Who can write to one of a cache's two files can have it name any file as one whose pages it has, and who can write to a data directory can put a guard
//! and copies of pages there that do. So root opens a cache, and does what it says, in a thread with the rights of its owner. Of a cache that is root's
//! own that is who has laid the guard, its server's user: what else lies beside the tablespace must be of the same user then.
//!
//! What is opened is what was looked at: it is held meanwhile, whatever its name leads to by then.

use super::{error::SetupError, place::Place};
use crate::{
    descriptor::{link_to, reopen},
    guard::GUARD_FILE,
    home::Homes,
};
use forebay_flash::{Cache, Flash, FlashFile, Options};
use forebay_pool::{
    Pool,
    media::map_emulated,
    rights::{Distrust, Rights, user},
};
use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};
use std::{io, path::Path, sync::Arc};

/// A cache's two files, held, and the rights with which it is used.
pub(crate) struct Held<'a> {
    place: &'a Place,
    flash: OwnedFd,
    lane: OwnedFd,
    rights: Rights,
}

impl<'a> Held<'a> {
    /// # Errors
    /// What the operating system says; if others than its owner may write to one of the two, or its owner's rights cannot be had.
    pub(crate) fn of(place: &'a Place) -> Result<Self, SetupError> {
        let (path, pool) = (place.flash(), place.pool_path());
        let (flash, of_flash) = hold(path)?;
        let (lane, of_lane) = hold(pool)?;
        // A device is root's as a rule, and who may write to all of it is not kept from anything here.
        let flash_rights = match FileType::from_raw_mode(of_flash.st_mode) {
            FileType::BlockDevice => Rights::of_owner(of_flash.st_uid, user()),
            _ => Rights::of(&of_flash, user()),
        };
        let flash_rights = flash_rights.map_err(|why| distrusted(path, why))?;
        let lane_rights = Rights::of(&of_lane, user()).map_err(|why| distrusted(pool, why))?;
        let rights = match (flash_rights, lane_rights) {
            (Rights::Own, one) | (one, Rights::Own) => one,
            (one, other) if one == other => one,
            _ => {
                return Err(SetupError::Distrusted(format!(
                    "{} and {} belong to two users, and each could have the files of the other written to: nothing was changed. Give both to the server's user (chown)",
                    path.display(),
                    pool.display()
                )));
            }
        };
        Ok(Self {
            place,
            flash,
            lane,
            rights,
        })
    }

    /// Opens the cache: it, and the rights with which everything is done that it says.
    pub(crate) fn open(&self, homes: &Arc<Homes>) -> Result<(Cache, Rights), SetupError> {
        let (cache, _) = exercise(self.rights, self.place.flash(), || {
            let file = FlashFile::open(&link_to(&self.flash)).map_err(|e| self.place.busy(e))?;
            let flash = Named {
                file,
                name: self.place.flash().display().to_string(),
            };
            let options = Options::default();
            (self.place).open_on(Arc::new(flash), || self.open_pool(), homes, &options)
        })?;
        Ok((cache, self.rights))
    }

    /// Opens its metadata alone.
    pub(crate) fn pool(&self) -> Result<Pool, SetupError> {
        exercise(self.rights, self.place.pool_path(), || self.open_pool())
    }

    /// Those with which everything is done that it says.
    pub(super) fn rights(&self) -> Rights {
        self.rights
    }

    fn open_pool(&self) -> Result<Pool, SetupError> {
        let path = self.place.pool_path();
        let lane = reopen(&self.lane, false);
        let lane = lane.map_err(|e| SetupError::io("opening", path)(e.into()))?;
        self.place.pool_on(map_emulated(path, lane)?)
    }
}

/// Those of the owner of this file.
///
/// # Errors
/// As [`Held::of`].
pub(crate) fn rights_to(path: &Path) -> Result<Rights, SetupError> {
    let (_, stat) = hold(path)?;
    Rights::of(&stat, user()).map_err(|why| distrusted(path, why))
}

/// What is at `path`, a link to it or not: only held, which needs no right to it and waits for nothing.
fn hold(path: &Path) -> Result<(OwnedFd, Stat), SetupError> {
    let fail = |e: Errno| SetupError::io("opening", path)(e.into());
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let held = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
    let stat = rustix::fs::fstat(&held).map_err(fail)?;
    Ok((held, stat))
}

fn distrusted(path: &Path, why: Distrust) -> SetupError {
    let path = path.display();
    SetupError::Distrusted(match why {
        Distrust::OthersWrite { owner, mode } => format!(
            "{path} may be written to by others than its owner (mode {mode:03o}), who could have any file of user {owner} written to: nothing was changed. If only the \
             database and its administrators ever could, give it to the server's user: chown, chmod go-w. Then repeat"
        ),
        Distrust::OtherUser { owner } => format!(
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

/// A flash file that was opened by what is held of it, with the name that its user knows it by.
struct Named {
    file: FlashFile,
    name: String,
}

impl Flash for Named {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(to, offset)
    }

    fn write_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(from, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.file.set_bytes(bytes)
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests;
