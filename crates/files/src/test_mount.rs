//! For tests: a mount on a directory of a test's own, until that ends.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::{NamedTempFile, TempDir};

pub(crate) struct Mounted {
    dir: TempDir,
    /// The image that the file system is on, if it is a test's own.
    pub(crate) image: Option<NamedTempFile>,
}

impl Mounted {
    /// A new file system on a loop device, made by these words; none, which is said, where that
    /// cannot be done.
    pub(crate) fn made(words: &[&str]) -> Option<Self> {
        let image = NamedTempFile::new().unwrap();
        image.as_file().set_len(320 << 20).unwrap();
        run(words, &[image.path()])?;
        let mut mounted = Self::by(&["mount", "-o", "loop"], image.path())?;
        mounted.image = Some(image);
        Some(mounted)
    }

    /// Mounts by a program that is given the image and the place; none, which is said, if that
    /// cannot be done.
    pub(crate) fn by(words: &[&str], what: &Path) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        run(words, &[what, dir.path()])?;
        Some(Self { dir, image: None })
    }

    /// A file mounted alone over another one; none, which is said, where that cannot be done.
    pub(crate) fn over(what: &Path, at: &Path) -> Option<FileMount> {
        run(&["mount", "--bind"], &[what, at])?;
        Some(FileMount(at.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// A mounted file.
pub(crate) struct FileMount(PathBuf);

impl Drop for FileMount {
    fn drop(&mut self) {
        run(&["umount", "-l"], &[&self.0]);
    }
}

/// Unmounted whatever becomes of the test.
impl Drop for Mounted {
    fn drop(&mut self) {
        run(&["umount", "-l"], &[self.path()]);
    }
}

fn run(words: &[&str], paths: &[&Path]) -> Option<()> {
    let mut command = Command::new(words[0]);
    let done = command.args(&words[1..]).args(paths).output();
    if done.is_ok_and(|done| done.status.success()) {
        return Some(());
    }
    println!("skipped: {words:?} cannot be done here");
    None
}
