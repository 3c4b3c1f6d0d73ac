//! Caches that tests of several modules make, swap and move.

use super::{create, pool_of};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A directory, and where a cache may be made in it.
pub(crate) fn flash_place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let flash = dir.path().join("f");
    (dir, flash)
}

/// The same with a cache of so many bytes.
pub(crate) fn made_cache(bytes: u64) -> (TempDir, PathBuf) {
    let (dir, flash) = flash_place();
    create(&flash, bytes).unwrap();
    (dir, flash)
}

/// Two directories, `x` and `other`.
pub(crate) struct Two(TempDir);

impl Two {
    pub(crate) fn new() -> Self {
        let two = Self(tempfile::tempdir().unwrap());
        for name in ["x", "other"] {
            fs::create_dir(two.at(name)).unwrap();
        }
        two
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// As their owner does while a command of root's is at it: the path to `x`, which is `y` from
    /// now on, leads to `other`.
    pub(crate) fn swap(&self) {
        fs::rename(self.at("x"), self.at("y")).unwrap();
        symlink(self.at("other"), self.at("x")).unwrap();
    }
}

/// Another directory, with the metadata of the cache on this flash file, which becomes a link to
/// it.
pub(crate) fn move_lane(flash: &Path) -> (TempDir, PathBuf) {
    let other = tempfile::tempdir().unwrap();
    let real = other.path().join("lane");
    fs::copy(pool_of(flash), &real).unwrap();
    fs::remove_file(pool_of(flash)).unwrap();
    symlink(&real, pool_of(flash)).unwrap();
    (other, real)
}
