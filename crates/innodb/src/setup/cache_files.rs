//! A cache's two files, held with their directory: a command opens, writes and removes the files
//! that it has looked at, wherever their names lead by then.

use super::{
    blank_headers::{has_blank_headers, start_of},
    directory::{CacheDirectory, DirectoryEntry},
    error::SetupError,
    location::CacheLocation,
    rights::{act_as, distrusted},
};
use crate::{
    control_files::{beside, socket_of},
    descriptor::{check_names, link_to, reopen},
    home::Homes,
};
use forebay_flash::{Cache, CacheOptions, Flash, FlashFile};
use forebay_pool::{
    Pool,
    media::map_emulated,
    rights::{acting_user, acting_user_of, user},
};
use rustix::{
    fd::OwnedFd,
    fs::{FileType, FlockOperation, flock},
    io::Errno,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{fs::File, io, path::Path, sync::Arc};

/// See the module's head; and the cache's owner, as which it is used.
pub(crate) struct CacheFiles<'a> {
    pub(super) place: &'a CacheLocation,
    pub(super) dir: CacheDirectory,
    pub(super) flash: DirectoryEntry,
    pub(super) lane: DirectoryEntry,
    pub(super) owner: u32,
}

impl<'a> CacheFiles<'a> {
    /// # Errors
    /// What the operating system says; if others than its owner may write to one of the two, or
    /// this process may not act for its owner.
    pub(crate) fn of(place: &'a CacheLocation) -> Result<Self, SetupError> {
        let dir = CacheDirectory::of(place.flash())?;
        let (flash, lane) = (dir.hold(place.flash())?, dir.hold(place.pool_path())?);
        let mut held = Self {
            place,
            dir,
            flash,
            lane,
            owner: user(),
        };
        held.owner = held.owner_of_both()?;
        Ok(held)
    }

    /// Makes the metadata of a cache on this flash file, which is new, or device: an empty file,
    /// once the flash file has its length. As this process's user, since what the two are is known.
    /// What fails is followed by the flash file's removal.
    pub(super) fn begin(
        place: &'a CacheLocation,
        dir: CacheDirectory,
        flash: DirectoryEntry,
        bytes: u64,
    ) -> Result<Self, SetupError> {
        let made = || -> Result<DirectoryEntry, SetupError> {
            if flash.is_new {
                let file = FlashFile::open(&link_to(&flash.named.fd));
                file.and_then(|file| file.set_bytes(bytes))
                    .map_err(SetupError::io_of_cache("making", place.flash()))?;
            }
            dir.make(place.pool_path())
        };
        let lane = made().inspect_err(|_| remove_new(&dir, &flash, place.flash()))?;
        Ok(Self {
            place,
            dir,
            flash,
            lane,
            owner: user(),
        })
    }

    /// Removes the files that were made.
    pub(super) fn remove_new(&self) {
        remove_new(&self.dir, &self.lane, self.place.pool_path());
        remove_new(&self.dir, &self.flash, self.place.flash());
    }

    fn owner_of_both(&self) -> Result<u32, SetupError> {
        let own = user();
        let (path, pool) = (self.place.flash(), self.place.pool_path());
        let flash = &self.flash.file()?.stat;
        // A device is root's as a rule, and who may write to all of it is not kept from anything
        // here.
        let of_flash = match self.kind()? {
            FileType::BlockDevice => acting_user_of(flash.st_uid, own),
            // The name had none when it was asked for.
            _ if self.flash.is_link() => {
                return Err(SetupError::Distrusted(format!(
                    "{} has become a link meanwhile: nothing was changed. Look where it leads to, and repeat this",
                    path.display()
                )));
            }
            _ => acting_user(flash, own),
        };
        let of_flash = of_flash.map_err(|why| distrusted(path, why))?;
        let of_lane = match &self.lane.file() {
            Ok(lane) => acting_user(&lane.stat, own).map_err(|why| distrusted(pool, why))?,
            // A link to nothing says nothing.
            Err(_) => own,
        };
        match (of_flash, of_lane) {
            (one, other) if one == own && other == own => Ok(self.owner_of_links()),
            (one, other) if one == own || one == other => Ok(other),
            (one, other) if other == own => Ok(one),
            _ => Err(SetupError::Distrusted(format!(
                "{} and {} belong to two users, and each could have the files of the other written to: nothing was changed. Give both to the server's user (chown)",
                path.display(),
                pool.display()
            ))),
        }
    }

    /// The user that files of root's are used as: another user, in whose directory they are, may
    /// have put them together to a cache by links.
    fn owner_of_links(&self) -> u32 {
        let mut links = [&self.flash, &self.lane].into_iter();
        let of_another = links.find(|entry| entry.is_link() && entry.named.stat.st_uid != 0);
        match of_another {
            Some(link) if user() == 0 && !self.dir.is_roots() => link.named.stat.st_uid,
            _ => user(),
        }
    }

    /// The kind of the flash file.
    fn kind(&self) -> Result<FileType, SetupError> {
        Ok(self.flash.file()?.kind())
    }

    pub(crate) fn place(&self) -> &CacheLocation {
        self.place
    }

    pub(crate) fn is_on_device(&self) -> bool {
        matches!(self.kind(), Ok(FileType::BlockDevice))
    }

    /// Does `work` in a process that is the cache's owner: in this one, or a child.
    ///
    /// # Errors
    /// Those of `work`; if there can be no such process.
    pub(crate) fn as_owner<T: Serialize + DeserializeOwned>(
        &self,
        work: impl FnOnce() -> Result<T, SetupError>,
    ) -> Result<T, SetupError> {
        act_as(self.owner, self.place.flash(), work)
    }

    /// Opens the cache, for its owner.
    pub(crate) fn open(&self, homes: &Arc<Homes>) -> Result<Cache, SetupError> {
        self.open_in((self.open_flash()?, self.open_lane()?), homes)
    }

    /// Opens the cache in its two files, which are open.
    pub(super) fn open_in(
        &self,
        (flash, lane): (NamedFlash, File),
        homes: &Arc<Homes>,
    ) -> Result<Cache, SetupError> {
        let pool = || self.pool_in(lane);
        let options = CacheOptions::default();
        let (cache, _) = (self.place).open_on(Arc::new(flash), pool, homes, &options)?;
        Ok(cache)
    }

    /// Opens its metadata alone, for its owner.
    pub(crate) fn pool(&self) -> Result<Pool, SetupError> {
        self.pool_in(self.open_lane()?)
    }

    fn pool_in(&self, lane: File) -> Result<Pool, SetupError> {
        let media = map_emulated(self.place.pool_path(), lane)?;
        self.place.pool_on(media)
    }

    /// True if it is a file or device whose headers are blank: the cache was ended, or not made to
    /// the end. Anything else is not opened, and makes no one wait.
    pub(crate) fn is_blank(&self) -> Result<bool, SetupError> {
        match self.kind()? {
            FileType::RegularFile | FileType::BlockDevice => {
                has_blank_headers(&self.flash.file()?.fd)
                    .map_err(SetupError::io_of_cache("looking at", self.place.flash()))
            }
            _ => Ok(false),
        }
    }

    /// True if the metadata's superblocks are blank, or not there yet.
    pub(crate) fn is_lane_blank(&self) -> Result<bool, SetupError> {
        let start = start_of(&self.lane.file()?.fd);
        let start = start.map_err(SetupError::io_of_cache(
            "looking at",
            self.place.pool_path(),
        ))?;
        Ok(start.iter().all(|&byte| byte == 0))
    }

    /// Refuses to write to files that have other names as well, with root's own rights.
    pub(super) fn check_names(&self) -> Result<(), SetupError> {
        let files = [
            (&self.flash, self.place.flash()),
            (&self.lane, self.place.pool_path()),
        ];
        files.into_iter().try_for_each(|(entry, path)| {
            check_names(&entry.file()?.fd, path).map_err(SetupError::io("writing", path))
        })
    }

    /// Keeps other commands from making a cache in these files, and from removing them, until the
    /// returned lock is gone. Of a device that is not kept.
    ///
    /// # Errors
    /// [`SetupError::InUse`].
    pub(crate) fn lock(&self) -> Result<Option<File>, SetupError> {
        if !matches!(self.kind()?, FileType::RegularFile) {
            return Ok(None);
        }
        let path = self.place.flash();
        let fail = |e: Errno| SetupError::io_of_cache("locking", path)(e.into());
        let file = reopen(&self.flash.file()?.fd, false).map_err(fail)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Err(SetupError::InUse {
                flash: path.to_owned(),
            }),
            Err(e) => Err(fail(e)),
        }
    }

    /// Makes an empty file beside them, which is their owner's, if there is none of that name.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn create_beside(&self, ending: &str) -> Result<(), SetupError> {
        let path = beside(self.place.flash(), ending);
        (self.dir).create(&path, &self.flash.file()?.stat, self.owner)
    }

    /// Forgets, durably, a resize that a server which is gone has begun.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn forget_resize(&self) -> Result<(), SetupError> {
        self.dir.forget_resize(self.place.flash(), self.owner)
    }

    /// The control socket beside them, only held; none if there is none. That of another user than
    /// the owner is none of theirs, also root's: the owner may not connect to it.
    ///
    /// # Errors
    /// What the operating system says; [`SetupError::Distrusted`].
    pub(crate) fn socket(&self) -> Result<Option<OwnedFd>, SetupError> {
        let path = socket_of(self.place.flash());
        let named = match self.dir.hold(&path) {
            Ok(found) => found.named,
            Err(SetupError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let user = named.stat.st_uid;
        match named.kind() == FileType::Socket && user == self.owner {
            true => Ok(Some(named.fd)),
            false => Err(SetupError::Distrusted(format!(
                "{} is no socket, or one of user {user}, not of the cache's user {}: it is not used. If the server runs as user {user}, give the cache to that one (chown), or start \
                 the server as the other; else remove this, and the server listens there again within seconds",
                path.display(),
                self.owner
            ))),
        }
    }

    pub(super) fn open_flash(&self) -> Result<NamedFlash, SetupError> {
        let path = link_to(&self.flash.file()?.fd);
        Ok(NamedFlash {
            file: FlashFile::open(&path).map_err(|e| self.place.busy(e))?,
            name: self.place.flash().display().to_string(),
        })
    }

    pub(super) fn open_lane(&self) -> Result<File, SetupError> {
        let lane = reopen(&self.lane.file()?.fd, false);
        lane.map_err(|e| SetupError::io_of_cache("opening", self.place.pool_path())(e.into()))
    }
}

/// Removes a file that was made. Nothing is in it yet: the error that matters is another one.
fn remove_new(dir: &CacheDirectory, file: &DirectoryEntry, path: &Path) {
    if file.is_new {
        let _ = dir.unlink(path, Some(&file.named), user());
    }
}

/// A flash file that was opened by its held descriptor, with the name that its user knows it by.
pub(super) struct NamedFlash {
    file: FlashFile,
    name: String,
}

impl Flash for NamedFlash {
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
