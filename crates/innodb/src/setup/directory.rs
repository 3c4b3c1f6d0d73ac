//! The directory of a cache's files, held: looks, removals and new files are in that one, wherever
//! the path to it leads by then.
//!
//! Between any two system calls of a command of root's the cache's owner may be able to rename the
//! directory, or one above it, and to put a link in its place. So it may have anything else there
//! by the names of the cache's files. Hence no path is followed a second time, and a name goes with
//! root's own rights only in a directory that is root's alone: there it stays that of what was
//! looked at. In any other a process removes it that is the cache's owner.
//!
//! What remains:
//!
//! * `unlinkat` is by name, also just after what has the name was compared with what is held. Gone
//!   by it is at most what the cache's owner may remove anyway; of a cache that is root's own, in a
//!   directory in which another user may change names, a name in that directory.
//! * A path through another user's directories may lead to another cache from the beginning. That
//!   one is ended and removed only if it has nothing, and no process has it, as if it had been
//!   named.

use super::{error::SetupError, rights::act_as};
use crate::{
    control_files,
    descriptor::link_to,
    resize_note::{ResizeNote, note_of},
};
use forebay_pool::rights::user;
use rustix::{
    fd::OwnedFd,
    fs::{
        AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchown, fstat, openat, readlinkat, statat,
        unlinkat,
    },
    io::Errno,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Permission of the group, and of all others, to write: in a directory, to change names.
const OTHERS_WRITE: u32 = 0o022;
const HOLD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// A file that is only held, which needs no right to it and waits for nothing.
pub(super) struct HeldPath {
    pub fd: OwnedFd,
    pub stat: Stat,
}

impl HeldPath {
    fn of(fd: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&fd)?;
        Ok(Self { fd, stat })
    }

    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    fn is(&self, other: &Stat) -> bool {
        (self.stat.st_dev, self.stat.st_ino) == (other.st_dev, other.st_ino)
    }
}

/// A name in a directory.
pub(super) struct DirectoryEntry {
    path: PathBuf,
    /// The file, or link, that has the name itself.
    pub named: HeldPath,
    /// The target, if it is a link; none if that is to nothing.
    pub far: Option<HeldPath>,
    /// It was made by this process.
    pub is_new: bool,
}

impl DirectoryEntry {
    pub fn is_link(&self) -> bool {
        self.named.kind() == FileType::Symlink
    }

    /// The file that is opened by this name.
    ///
    /// # Errors
    /// It is a link to nothing.
    pub fn file(&self) -> Result<&HeldPath, SetupError> {
        let file = match self.is_link() {
            true => self.far.as_ref(),
            false => Some(&self.named),
        };
        file.ok_or_else(|| SetupError::io("opening", &self.path)(Errno::NOENT.into()))
    }
}

/// See the module's head.
pub(super) struct CacheDirectory {
    held: OwnedFd,
    path: PathBuf,
    is_roots: bool,
}

impl CacheDirectory {
    /// That of the file at `path`.
    ///
    /// # Errors
    /// What the operating system says; so for all methods here.
    pub fn of(path: &Path) -> Result<Self, SetupError> {
        let path = control_files::directory_of(path);
        let fail = |e: Errno| SetupError::io("opening", path)(e.into());
        let held = rustix::fs::open(path, HOLD | OFlags::DIRECTORY, Mode::empty()).map_err(fail)?;
        let stat = fstat(&held).map_err(fail)?;
        Ok(Self {
            held,
            path: path.to_owned(),
            is_roots: stat.st_uid == 0 && stat.st_mode & OTHERS_WRITE == 0,
        })
    }

    /// The same, that a link in `other` leads to: as good as who may make one there.
    pub fn by_link_in(self, other: &Self) -> Self {
        let is_roots = self.is_roots && other.is_roots;
        Self { is_roots, ..self }
    }

    /// True if root alone may change a name in it.
    pub fn is_roots(&self) -> bool {
        self.is_roots
    }

    /// Holds the entry with this name.
    pub fn hold(&self, path: &Path) -> Result<DirectoryEntry, SetupError> {
        let fail = |e: Errno| SetupError::io("opening", path)(e.into());
        let open = |name: &OsStr, flags| {
            openat(&self.held, name, HOLD | flags, Mode::empty()).and_then(HeldPath::of)
        };
        let named = open(name_of(path), OFlags::NOFOLLOW).map_err(fail)?;
        let far = match named.kind() {
            FileType::Symlink => {
                // What this link says: another one may have the name by now.
                let to = readlinkat(&named.fd, "", Vec::new()).map_err(fail)?;
                match open(OsStr::from_bytes(to.as_bytes()), OFlags::empty()) {
                    Err(Errno::NOENT | Errno::NOTDIR) => None,
                    far => Some(far.map_err(fail)?),
                }
            }
            _ => None,
        };
        Ok(DirectoryEntry {
            path: path.to_owned(),
            named,
            far,
            is_new: false,
        })
    }

    /// True if something has this name.
    pub fn has(&self, path: &Path) -> Result<bool, SetupError> {
        match statat(&self.held, name_of(path), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(SetupError::io("looking at", path)(e.into())),
        }
    }

    /// Makes an empty file of this name, which is not there yet, durably, for this process's
    /// user alone.
    pub fn make(&self, path: &Path) -> Result<DirectoryEntry, SetupError> {
        let made = || -> io::Result<HeldPath> {
            let found = HeldPath::of(self.new_file(path, 0o600)?)?;
            let synced = File::open(link_to(&self.held)).and_then(|dir| dir.sync_all());
            // The error that matters is this one.
            synced.inspect_err(|_| drop(self.unlink_found(name_of(path), Some(&found))))?;
            Ok(found)
        };
        Ok(DirectoryEntry {
            path: path.to_owned(),
            named: made().map_err(SetupError::io_of_cache("making", path))?,
            far: None,
            is_new: true,
        })
    }

    fn new_file(&self, path: &Path, mode: u32) -> Result<OwnedFd, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(&self.held, name_of(path), flags, Mode::from_raw_mode(mode))
    }

    /// The small files beside the flash file that have one of these endings.
    pub fn beside(&self, flash: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, SetupError> {
        let here = link_to(&self.held).join(name_of(flash));
        let found =
            control_files::all(&here, endings).map_err(SetupError::io("looking beside", flash))?;
        let named = found.iter().map(|file| self.path.join(name_of(file)));
        Ok(named.collect())
    }

    /// Removes this name, if it is there, and still that of the file found, if that is given: true
    /// if it is gone by this.
    ///
    /// # Errors
    /// Something else has the name by now; `owner`, whose the cache is, may not remove it.
    pub fn unlink(
        &self,
        path: &Path,
        found: Option<&HeldPath>,
        owner: u32,
    ) -> Result<bool, SetupError> {
        self.change(path, owner, "removing", || {
            match self.unlink_found(name_of(path), found) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
                unlinked => unlinked.map(|()| true),
            }
        })
    }

    fn unlink_found(&self, name: &OsStr, found: Option<&HeldPath>) -> io::Result<()> {
        if let Some(found) = found {
            let there = statat(&self.held, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if !found.is(&there) {
                return Err(io::Error::other(
                    "something else has that name by now, and is left. Look at it, and repeat this",
                ));
            }
        }
        Ok(unlinkat(&self.held, name, AtFlags::empty())?)
    }

    /// Makes an empty file of this name, which is not there yet, for the user to whom `of` belongs.
    pub fn create(&self, path: &Path, of: &Stat, owner: u32) -> Result<(), SetupError> {
        self.change(path, owner, "making", || {
            let file = self.new_file(path, 0o644)?;
            if of.st_uid != user() {
                let (user, group) = (Uid::from_raw(of.st_uid), Gid::from_raw(of.st_gid));
                fchown(&file, Some(user), Some(group))?;
            }
            Ok(())
        })
    }

    /// Nothing is begun any more with the cache on this flash file, durably.
    pub fn forget_resize(&self, flash: &Path, owner: u32) -> Result<(), SetupError> {
        let here = link_to(&self.held).join(name_of(flash));
        let note = note_of(flash);
        self.change(&note, owner, "removing", || ResizeNote::forget(&here))
    }

    /// Changes a name in it by `work`: as root where root alone may, else as the cache's `owner`.
    fn change<T: Serialize + DeserializeOwned>(
        &self,
        path: &Path,
        owner: u32,
        doing: &'static str,
        work: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, SetupError> {
        let acting = match self.is_roots && user() == 0 {
            true => 0,
            false => owner,
        };
        let is_other = acting != user();
        act_as(acting, path, || {
            work().map_err(|e| {
                SetupError::io(doing, path)(match is_other {
                    true => refused(e),
                    false => e,
                })
            })
        })
    }
}

/// Says more where the cache's owner was refused what root began.
fn refused(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    let what = format!(
        "{error}. It is done with the rights of the cache's user {}, since not root alone may change names there. Make the directory that user's (chown), or root's alone \
         (chown root; chmod go-w), and repeat this",
        user()
    );
    io::Error::new(error.kind(), what)
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}
