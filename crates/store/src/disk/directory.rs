//! [`HeldDirectory`]: a directory that is held open, so that it stays the same one whatever its name leads to later.
//!
//! A path is resolved anew with every call: after a `chdir`, or once the directory was renamed and
//! another one made in its place, it leads elsewhere. So a store opens each of its directories
//! once, and reaches every file in it by that descriptor and a bare name.
//!
//! lsm-tree opens its tables by path. It is given one that leads through the descriptor
//! ([`HeldDirectory::path_through`]).

use crate::error::StoreError;
use forebay_pool::media::ProcessMark;
use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, linkat, mkdirat, openat, renameat, statat,
        unlinkat,
    },
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

/// A directory that is held open.
#[derive(Debug)]
pub(crate) struct HeldDirectory {
    /// What it was called when it was opened: for messages only.
    path: PathBuf,
    /// The same from the root on, as long as nothing is moved.
    absolute: PathBuf,
    file: File,
    /// Device and inode.
    identity: (u64, u64),
    /// Who opened it: a forked child changes nothing in it.
    process: ProcessMark,
}

impl HeldDirectory {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// What the operating system says; so for all methods here.
    pub(crate) fn open(path: &Path) -> io::Result<Arc<Self>> {
        Self::open_at(CWD, path, path, absolute(path))
    }

    /// The directory that `open` is an open file of, called `path`.
    pub(crate) fn of(open: &File, path: &Path) -> io::Result<Arc<Self>> {
        Self::open_at(open, Path::new("."), path, absolute(path))
    }

    /// Opens the directory `name` in this one.
    pub(crate) fn open_below(&self, name: &Path) -> io::Result<Arc<Self>> {
        let (path, absolute) = (self.path.join(name), self.absolute.join(name));
        Self::open_at(&self.file, name, &path, absolute)
    }

    /// The same, made if there is none.
    pub(crate) fn make_below(&self, name: &Path) -> io::Result<Arc<Self>> {
        match mkdirat(&self.file, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.open_below(name),
            Err(error) => Err(error.into()),
        }
    }

    fn open_at(
        at: impl AsFd,
        name: &Path,
        path: &Path,
        absolute: PathBuf,
    ) -> io::Result<Arc<Self>> {
        let name = match name.as_os_str().is_empty() {
            true => Path::new("."),
            false => name,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = File::from(openat(at, name, flags, Mode::empty())?);
        let found = file.metadata()?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            absolute,
            file,
            identity: (found.dev(), found.ino()),
            process: ProcessMark::take(),
        }))
    }

    /// False in a child that was forked from the process that opened it.
    pub(crate) fn is_own(&self) -> bool {
        self.process.is_here()
    }

    /// Whatever a destructor that runs in a forked child is about to do, the files are the
    /// parent's.
    fn check_process(&self) -> io::Result<()> {
        match self.is_own() {
            true => Ok(()),
            false => Err(io::Error::other(StoreError::Forked)),
        }
    }

    /// Its path when it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An open file of its own on this directory, to lock it by.
    pub(crate) fn to_lock(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.file, ".", flags, Mode::empty())?))
    }

    /// Opens the file `name`; if `flags` make it, for its user only.
    pub(crate) fn open_file(&self, name: &Path, flags: OFlags) -> io::Result<File> {
        if flags.intersects(OFlags::RDWR | OFlags::WRONLY | OFlags::CREATE) {
            self.check_process()?;
        }
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.file, name, flags | OFlags::CLOEXEC, mode)?;
        Ok(File::from(file))
    }

    /// Everything in the file `name`.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut file = self.open_file(Path::new(name), OFlags::RDONLY)?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Length of the file `name`, bytes.
    pub(crate) fn length_of(&self, name: &str) -> io::Result<u64> {
        let found = statat(&self.file, name, AtFlags::empty())?;
        Ok(found.st_size.unsigned_abs())
    }

    /// Renames a file within the directory, replacing any that has the name.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename_to(from, self, to)
    }

    /// Renames a file into another directory.
    pub(crate) fn rename_to(&self, from: &Path, there: &Self, to: &Path) -> io::Result<()> {
        self.check_process()?;
        Ok(renameat(&self.file, from, &there.file, to)?)
    }

    /// Gives a file a second name, in another directory.
    pub(crate) fn link_to(&self, from: &Path, there: &Self, to: &Path) -> io::Result<()> {
        self.check_process()?;
        Ok(linkat(&self.file, from, &there.file, to, AtFlags::empty())?)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &Path) -> io::Result<()> {
        self.check_process()?;
        Ok(unlinkat(&self.file, name, AtFlags::empty())?)
    }

    /// The names in it, in order.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.file)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            let is_link = matches!(&*name, "." | "..");
            if !is_link || entry.file_type() != FileType::Directory {
                names.push(name.into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Bytes of the file system that it is on, as far as that says.
    pub(crate) fn file_system_bytes(&self) -> Option<u64> {
        let found = rustix::fs::fstatvfs(&self.file).ok()?;
        let bytes = found.f_blocks.saturating_mul(found.f_frsize);
        (bytes > 0).then_some(bytes)
    }

    /// Makes the names in it durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// A path to the file `name` for code that takes nothing else: through the descriptor; without
    /// /proc by the directory's name, as long as that leads here.
    ///
    /// # Errors
    /// Neither leads here.
    pub(crate) fn path_through(&self, name: &Path) -> io::Result<PathBuf> {
        let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let mut ways = [by_descriptor.as_path(), &self.absolute].into_iter();
        let leads_here = |way: &&Path| {
            let found = statat(CWD, *way, AtFlags::empty());
            found.is_ok_and(|found| (found.st_dev, found.st_ino) == self.identity)
        };
        let way = ways.find(leads_here).ok_or_else(|| {
            io::Error::other("the directory was moved, and /proc, by which it is still found, is not mounted; mount /proc, or put the directory back")
        })?;
        Ok(way.join(name))
    }
}

/// The path from the root on, as it leads there now.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_are_made_in_the_held_directory_wherever_it_went() {
        let base = tempfile::tempdir().unwrap();
        let (here, moved) = (base.path().join("here"), base.path().join("moved"));
        fs::create_dir(&here).unwrap();
        let held = HeldDirectory::open(&here).unwrap();
        fs::rename(&here, &moved).unwrap();
        fs::create_dir(&here).unwrap();
        let below = held.make_below(Path::new("below")).unwrap();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        below.open_file(Path::new("a"), flags).unwrap();
        below.rename(Path::new("a"), Path::new("b")).unwrap();
        assert_eq!(below.names().unwrap(), ["b"]);
        assert!(moved.join("below/b").exists());
        let through = below.path_through(Path::new("c")).unwrap();
        fs::write(through, b"text").unwrap();
        assert_eq!(below.read("c").unwrap(), b"text");
        assert_eq!(below.length_of("c").unwrap(), 4);
        below.remove(Path::new("b")).unwrap();
        assert!(!moved.join("below/b").exists() && moved.join("below/c").exists());
        assert_eq!(fs::read_dir(&here).unwrap().count(), 0);
    }
}
