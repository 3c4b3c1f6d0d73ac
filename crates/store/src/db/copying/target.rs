//! [`CopyTarget`]: the directory that a copy is made in. It has the file `UNFINISHED` until it is
//! complete, and no manifest: an opening refuses it, and says why.

use super::reader_backup::LargeWatch;
use crate::{
    disk::{Disk, DiskFile, above_missing, or_here, replace},
    error::StoreError,
    large_values,
    manifest::{self, ManifestState},
    stats::CopyReport,
};
use rustix::io::Errno;
use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bytes copied at a time: whole pages.
const CHUNK: usize = 1 << 20;
/// Bytes at either end of a file by which it is known again. Segments and records there have their
/// session's number and their own address in their checksums, as tables and large values have
/// checksums of what they hold.
const ENDS: u64 = 64 << 10;

/// A file of the store.
pub(super) enum SourceFile {
    /// By way of the store's disk.
    Disk(PathBuf, Arc<dyn DiskFile>),
    /// A table of the index.
    Table(PathBuf, File),
}

impl SourceFile {
    fn path(&self) -> &Path {
        match self {
            Self::Disk(path, _) | Self::Table(path, _) => path,
        }
    }

    fn read(&self, to: &mut [u8], offset: u64) -> Result<(), StoreError> {
        let read = match self {
            Self::Disk(_, file) => file.read_exact_at(to, offset),
            Self::Table(_, file) => file.read_exact_at(to, offset),
        };
        read.map_err(StoreError::io("reading", self.path()))
    }

    /// Makes what it holds durable: it need not be so by itself. Takes little where it is.
    fn sync(&self) -> Result<(), StoreError> {
        let synced = match self {
            Self::Disk(_, file) => file.sync(),
            Self::Table(_, file) => file.sync_all(),
        };
        synced.map_err(StoreError::io("syncing", self.path()))
    }
}

/// See the module.
pub(super) struct CopyTarget<'a> {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    /// The directory was not there before.
    is_new: bool,
    parts: Vec<&'static str>,
    /// An earlier copy: what has not changed since is linked to that.
    earlier: Option<PathBuf>,
    links: bool,
    pub(super) report: CopyReport,
    /// The copied files, to be verified.
    pub(super) copied: Vec<(&'static str, String)>,
    progress: Option<&'a mut dyn FnMut(&CopyReport)>,
    /// It is that of a reader's look.
    pub(super) watch: Option<LargeWatch>,
}

impl<'a> CopyTarget<'a> {
    /// Makes the directory, or takes an empty one, and marks it as unfinished, durably. It may not
    /// lie in the `store`'s.
    pub(super) fn begin(
        disk: &Arc<dyn Disk>,
        store: &Path,
        dir: &Path,
        earlier: Option<PathBuf>,
    ) -> Result<Self, StoreError> {
        let not_empty = |found: &str| StoreError::NotEmpty {
            dir: dir.to_owned(),
            found: found.to_owned(),
        };
        refuse_below(store, dir)?;
        let failed = |e| StoreError::io("making", dir)(e);
        let to = disk;
        let disk = &**to;
        let is_new = match disk.list(dir) {
            Ok(names) if names.is_empty() => false,
            Ok(names) => return Err(not_empty(&names.join(", "))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => true,
            Err(e) => return Err(StoreError::io("listing", dir)(e)),
        };
        let mark = dir.join(manifest::UNFINISHED);
        let made = match make_dir(disk, dir).and_then(|()| disk.create(&mark)) {
            Ok(made) => made,
            // Another one has begun there meanwhile: nothing of it is undone.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(not_empty(manifest::UNFINISHED));
            }
            Err(e) => {
                if is_new {
                    let _ = fs::remove_dir(dir);
                }
                return Err(failed(e));
            }
        };
        let target = Self {
            disk: Arc::clone(to),
            dir: dir.to_owned(),
            is_new,
            parts: Vec::new(),
            earlier,
            links: false,
            report: CopyReport::default(),
            copied: Vec::new(),
            progress: None,
            watch: None,
        };
        let begin = || {
            // Another one may have begun and ended since the look.
            let names = disk.list(dir)?;
            if names != [manifest::UNFINISHED] {
                return Ok(Some(names.join(", ")));
            }
            made.sync()?;
            disk.sync_dir(dir)?;
            disk.sync_dir(dir.parent().map_or(Path::new("."), or_here))?;
            Ok(None)
        };
        match begin() {
            Ok(None) => Ok(target),
            Ok(Some(others)) => {
                let _ = fs::remove_file(&mark);
                Err(not_empty(&others))
            }
            Err(e) => {
                target.remove();
                Err(failed(e))
            }
        }
    }

    /// Complete files of the store are linked, where that is possible.
    pub(super) fn linking(mut self) -> Self {
        self.links = true;
        self
    }

    /// Tells `progress` how far it is.
    pub(super) fn telling(mut self, progress: &'a mut dyn FnMut(&CopyReport)) -> Self {
        self.progress = Some(progress);
        self
    }

    /// It is a copy of a reader's look, beside the owner.
    pub(super) fn watching(mut self, watch: Option<LargeWatch>) -> Self {
        self.watch = watch;
        self
    }

    /// True if what is copied is to be read again and checked.
    pub(super) fn is_verified(&self) -> bool {
        !self.links
    }

    /// Makes a directory in it.
    pub(super) fn make_dir(&mut self, part: &'static str) -> Result<(), StoreError> {
        let dir = self.dir.join(part);
        self.parts.push(part);
        self.disk
            .create_dir(&dir)
            .map_err(StoreError::io("creating", &dir))
    }

    /// Takes over a file that is not written to any more, of which `bytes` are needed.
    pub(super) fn add(
        &mut self,
        part: &'static str,
        name: &str,
        source: &SourceFile,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let to = self.dir.join(part).join(name);
        let known = (self.earlier.as_ref()).map(|earlier| earlier.join(part).join(name));
        let known = match known {
            Some(known) if self.is_known(&known, source, bytes)? => Some(known),
            _ => None,
        };
        let from = known.or_else(|| self.links.then(|| source.path().to_owned()));
        if let Some(from) = from {
            if self.links {
                source.sync()?;
            }
            match self.disk.link(&from, &to) {
                Ok(()) => {
                    self.count(bytes, false);
                    return Ok(());
                }
                Err(e) if is_impossible(&e) => {}
                Err(e) => return Err(StoreError::io("linking", &to)(e)),
            }
        }
        self.copy(part, name, bytes, |chunk, offset| {
            source.read(chunk, offset)
        })
    }

    /// Takes over a large value's file.
    pub(super) fn add_large(
        &mut self,
        name: &str,
        (path, file, bytes): (PathBuf, Arc<dyn DiskFile>, u64),
    ) -> Result<(), StoreError> {
        let source = SourceFile::Disk(path, file);
        self.add(large_values::DIR, name, &source, bytes)
    }

    /// True if the earlier copy's file is the store's, as its length and its ends tell.
    fn is_known(&self, known: &Path, source: &SourceFile, bytes: u64) -> Result<bool, StoreError> {
        let failed = |e| StoreError::io("reading", known)(e);
        let file = match self.disk.open(known) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(failed(e)),
        };
        if file.len().map_err(failed)? != bytes {
            return Ok(false);
        }
        let length = usize::try_from(bytes.min(ENDS)).unwrap_or(0);
        let (mut ours, mut theirs) = (vec![0; length], vec![0; length]);
        for offset in [0, bytes - bytes.min(ENDS)] {
            source.read(&mut ours, offset)?;
            file.read_exact_at(&mut theirs, offset).map_err(failed)?;
            if ours != theirs {
                return Ok(false);
            }
        }
        // It may have been copied there, and not synced.
        file.sync().map_err(StoreError::io("syncing", known))?;
        Ok(true)
    }

    /// Makes a file of so many bytes, which `read` gives for each offset, durably.
    pub(super) fn copy(
        &mut self,
        part: &'static str,
        name: &str,
        bytes: u64,
        mut read: impl FnMut(&mut [u8], u64) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let path = self.dir.join(part).join(name);
        let failed = |e| StoreError::io("writing", &path)(e);
        let file = self.disk.create(&path).map_err(failed)?;
        let mut chunk = Vec::new();
        let mut at = 0;
        while at < bytes {
            chunk.resize(
                usize::try_from(bytes - at).map_or(CHUNK, |n| n.min(CHUNK)),
                0,
            );
            read(&mut chunk, at)?;
            file.write_all_at(&chunk, at).map_err(failed)?;
            at += chunk.len() as u64;
            self.report.done_bytes += chunk.len() as u64;
            self.tell();
        }
        file.sync().map_err(failed)?;
        self.report.done_bytes -= bytes;
        self.count(bytes, true);
        self.copied.push((part, name.to_owned()));
        Ok(())
    }

    /// Writes a small file, durably.
    pub(super) fn write(
        &mut self,
        part: &'static str,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let path = self.dir.join(part).join(name);
        let write = || {
            let file = self.disk.create(&path)?;
            file.write_all_at(bytes, 0)?;
            file.sync()
        };
        write().map_err(StoreError::io("writing", &path))
    }

    fn count(&mut self, bytes: u64, copied: bool) {
        self.report.files += 1;
        self.report.done_bytes += bytes;
        if copied {
            self.report.copied_files += 1;
            self.report.copied_bytes += bytes;
        }
        self.tell();
    }

    fn tell(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress(&self.report);
        }
    }

    /// A file that is not needed after all.
    pub(super) fn forget(&mut self, part: &'static str, name: &str) {
        // It may not have been begun. If it stays, it is one that nothing leads to.
        let _ = self.disk.remove(&self.dir.join(part).join(name));
        self.copied
            .retain(|copied| *copied != (part, name.to_owned()));
    }

    /// Makes the names of all files durable.
    pub(super) fn sync_parts(&self) -> Result<(), StoreError> {
        let parts = self.parts.iter().map(|part| self.dir.join(part));
        for dir in parts.chain([self.dir.clone()]) {
            self.disk
                .sync_dir(&dir)
                .map_err(StoreError::io("syncing", &dir))?;
        }
        Ok(())
    }

    /// Makes it a store, in one step, and then removes the mark.
    pub(super) fn finish(&self, state: &ManifestState) -> Result<(), StoreError> {
        let path = self.dir.join(manifest::NAME);
        let text = state.encode(&path)?;
        forebay_pool::failpoint!("store:copy-manifest");
        replace(&*self.disk, &path, text.as_bytes()).map_err(StoreError::io("writing", &path))?;
        forebay_pool::failpoint!("store:copy-named");
        let mark = self.dir.join(manifest::UNFINISHED);
        // Beside a manifest it says nothing any more.
        let removed = self.disk.remove(&mark);
        let synced = removed.and_then(|()| self.disk.sync_dir(&self.dir));
        synced.map_err(StoreError::io("removing", &mark))
    }

    /// Removes what was made. What stays is no store, and says so.
    pub(super) fn remove(&self) {
        let parts = self.parts.iter().copied();
        let names = parts.chain([manifest::TEMPORARY]).map(str::to_owned);
        // If that fails, the mark stays: an opening refuses the directory, and the next backup
        // removes it.
        if discard(&self.dir, names.collect()).is_ok() && self.is_new {
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// Refuses what lies in the store's directory, in which it would be neither a store nor the
/// store's.
pub(super) fn refuse_below(store: &Path, dir: &Path) -> Result<(), StoreError> {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let is_there = absolute
        .ancestors()
        .find_map(|above| above.canonicalize().ok());
    match (is_there, store.canonicalize()) {
        (Some(there), Ok(store)) if there.starts_with(&store) => Err(StoreError::NotEmpty {
            dir: store,
            found: format!("a store; put {} beside it", dir.display()),
        }),
        _ => Ok(()),
    }
}

/// Makes a directory and those above it, durably.
pub(super) fn make_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let above = above_missing(dir);
    disk.create_dir(dir)?;
    above.into_iter().try_for_each(|above| disk.sync_dir(above))
}

/// Empties a directory that has the mark: of its manifest first, so that it is no store, of the
/// mark last, so that what a cut leaves can be told. `names` are the files and directories in it.
pub(super) fn discard(dir: &Path, names: Vec<String>) -> io::Result<()> {
    let gone = |removed: io::Result<()>| match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    let held = File::open(dir)?;
    gone(fs::remove_file(dir.join(manifest::NAME)))?;
    held.sync_all()?;
    for name in names {
        if name == manifest::UNFINISHED {
            continue;
        }
        let path = dir.join(name);
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => gone(fs::remove_dir_all(&path))?,
            _ => gone(fs::remove_file(&path))?,
        }
    }
    held.sync_all()?;
    gone(fs::remove_file(dir.join(manifest::UNFINISHED)))
}

/// True if the error says that the two names cannot be of one file.
fn is_impossible(error: &io::Error) -> bool {
    let never = [
        Errno::XDEV,
        Errno::PERM,
        Errno::MLINK,
        Errno::OPNOTSUPP,
        Errno::NOSYS,
    ];
    error.kind() == io::ErrorKind::Unsupported
        || Errno::from_io_error(error).is_some_and(|errno| never.contains(&errno))
}
