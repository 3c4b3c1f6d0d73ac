//! A data directory's place when the cache was used last, and its place now: it may have been
//! moved, or be a snapshot beside the one it was made of.
//!
//! A snapshot of a file system has each file with the identity that it has in the original. So a
//! file that is found where it was may be the original's, and nothing of the snapshot's cache must
//! be written there.

use super::held_homes::{HomesError, hold};
use crate::file_kinds;
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

pub(super) struct MovedDirectory<'a> {
    /// The earlier path of the system tablespace, as it is registered.
    pub(super) was: &'a Path,
    /// Its path now.
    pub(super) is: &'a Path,
    /// There is another one where it was, of the same identity: the original.
    has_original: bool,
}

impl<'a> MovedDirectory<'a> {
    pub(super) fn new(was: &'a Path, is: &'a Path) -> Result<Self, HomesError> {
        let system = OsStr::from_bytes(file_kinds::SYSTEM);
        let has_original = was != is
            && match (hold(&was.join(system)), hold(&is.join(system))?) {
                (Ok(Some((_, there))), Some((_, here))) => {
                    there.identity == here.identity && there.key != here.key
                }
                _ => false,
            };
        Ok(Self {
            was,
            is,
            has_original,
        })
    }

    /// Possible places of a file that was at `path`: in the data directory's place now, first.
    pub(super) fn places(&self, path: &Path) -> Vec<PathBuf> {
        let mut places = Vec::new();
        if self.was != self.is
            && let Ok(rest) = path.strip_prefix(self.was)
        {
            places.push(self.is.join(rest));
        }
        if !self.is_originals(path) {
            places.push(path.to_owned());
        }
        places
    }

    /// True if what is at `path` may be the original's.
    fn is_originals(&self, path: &Path) -> bool {
        self.has_original && !path.starts_with(self.is)
    }
}
