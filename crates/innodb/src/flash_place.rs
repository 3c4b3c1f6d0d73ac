//! The directory of the flash file that this process has open, held: files made and removed beside
//! the flash file are that cache's own.
//!
//! The directory may have another name by now, or something may be mounted over it, and its path
//! then leads to another cache, which another server may have. Nothing is done there.
//! docs/flash-tier.md, "The control socket".

use crate::{
    control_files::directory_of,
    descriptor::{hold, link_to},
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{FileType, Stat, fstat, stat},
    io::Errno,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// The identity that tells a flash file from another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlashIdentity {
    /// Device and inode.
    File(u64, u64),
    /// The number of a device, which may get another node.
    Device(u64),
}

impl FlashIdentity {
    /// # Errors
    /// What the operating system says.
    pub(crate) fn of(flash: impl AsFd) -> Result<Self, Errno> {
        fstat(flash).map(|stat| Self::told(&stat))
    }

    fn told(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Self::Device(stat.st_rdev),
            _ => Self::File(stat.st_dev, stat.st_ino),
        }
    }
}

/// See the module's head.
pub(crate) struct FlashPlace {
    _dir: OwnedFd,
    flash: PathBuf,
}

impl FlashPlace {
    /// That of the flash file at `path`, if it is this one.
    ///
    /// # Errors
    /// It is another one, or none; what the operating system says.
    pub(crate) fn hold(path: &Path, is: FlashIdentity) -> io::Result<Self> {
        let elsewhere = |why: &str| {
            io::Error::other(format!(
                "{} {why} the flash cache that this process has open: its directory was moved, or something is mounted over it. Nothing is done there. Bring it back to that path",
                path.display()
            ))
        };
        let gone = |errno| match errno {
            Errno::NOENT | Errno::NOTDIR => elsewhere("is not there, or no path to"),
            errno => errno.into(),
        };
        let dir = hold(directory_of(path)).map_err(gone)?;
        // By what is held, as everything beside it: without /proc nothing is.
        let flash = link_to(&dir).join(path.file_name().unwrap_or_default());
        match FlashIdentity::told(&stat(&flash).map_err(gone)?) == is {
            true => Ok(Self { _dir: dir, flash }),
            false => Err(elsewhere("is not")),
        }
    }

    /// The flash file's path, by the directory that is held: as long as this is.
    pub(crate) fn flash(&self) -> &Path {
        &self.flash
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::fixtures::Two;
    use std::fs::{self, File};

    #[test]
    fn a_path_that_leads_to_another_file_is_no_flash_place() {
        let dirs = Two::new();
        let path = dirs.at("x/f");
        for name in ["x/f", "other/f"] {
            fs::write(dirs.at(name), name).unwrap();
        }
        let is = FlashIdentity::of(File::open(&path).unwrap()).unwrap();
        let place = FlashPlace::hold(&path, is).unwrap();
        dirs.swap();
        assert_eq!(fs::read_to_string(place.flash()).unwrap(), "x/f");
        let why = |path: &Path| FlashPlace::hold(path, is).err().unwrap().to_string();
        assert!(why(&path).contains("is not the flash cache"));
        fs::remove_file(dirs.at("other/f")).unwrap();
        assert!(why(&path).contains("is not there"));
        FlashPlace::hold(&dirs.at("y/f"), is).unwrap();
    }
}
