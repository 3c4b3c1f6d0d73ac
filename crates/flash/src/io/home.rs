//! Home files of the operating system.

use super::{Home, HomePage, workers::Workers};
use crate::file::FileId;
use forebay_pool::rewrite::RewrittenFile;
use parking_lot::RwLock;
use std::{
    collections::HashMap,
    fs::File,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// Writes fewer than this are not worth threads.
const PARALLEL_MIN: usize = 4;

struct AttachedFile {
    file: File,
    /// Bytes of the file that are known to be durable.
    durable: AtomicU64,
    /// After a failed sync the same bytes over the same pages of the page cache do not become
    /// durable.
    rewritten: RewrittenFile,
}

impl AttachedFile {
    fn sync(&self) -> io::Result<()> {
        self.rewritten.sync(&self.file, File::sync_data)
    }
}

/// Open files by their number. Each batch is written by several threads, in order: a disk array is
/// as fast as it has requests.
pub struct HomeFiles {
    files: RwLock<HashMap<u32, Arc<AttachedFile>>>,
    workers: Workers,
}

impl HomeFiles {
    /// None yet, and at most `in_flight` writes and syncs at a time.
    #[must_use]
    pub fn new(in_flight: usize) -> Self {
        Self {
            files: RwLock::default(),
            workers: Workers::new(in_flight),
        }
    }

    /// `file`, open for writing, is the home of `id`.
    pub fn attach(&self, id: FileId, file: File) {
        let attached = AttachedFile {
            file,
            durable: AtomicU64::new(0),
            rewritten: RewrittenFile::default(),
        };
        self.files.write().insert(id.number, Arc::new(attached));
    }

    /// Forgets and closes it. Nothing of it is dirty any more.
    pub fn detach(&self, id: FileId) {
        self.files.write().remove(&id.number);
    }

    fn file(&self, id: FileId) -> io::Result<Arc<AttachedFile>> {
        self.files
            .read()
            .get(&id.number)
            .cloned()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the home file is not attached"))
    }

    fn write_one(&self, page: &HomePage<'_>) -> Result<(), (FileId, io::Error)> {
        self.file(page.file)
            .and_then(|home| home.rewritten.write(&home.file, page.bytes, page.offset))
            .map_err(|e| (page.file, e))
    }
}

impl Home for HomeFiles {
    fn durable_bytes(&self, file: FileId) -> io::Result<u64> {
        let home = self.file(file)?;
        let bytes = home.file.metadata()?.len();
        if bytes != home.durable.load(Relaxed) {
            home.sync()?;
            home.durable.store(bytes, Relaxed);
        }
        Ok(bytes)
    }

    fn write(&self, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        if pages.len() < PARALLEL_MIN || self.workers.is_one() {
            return pages.iter().try_for_each(|page| self.write_one(page));
        }
        let (written, failed) = (AtomicUsize::new(0), OnceLock::new());
        self.workers.each(pages.len(), &|at| {
            if failed.get().is_some() {
                return;
            }
            match self.write_one(&pages[at]) {
                Ok(()) => _ = written.fetch_add(1, Relaxed),
                Err(e) => _ = failed.set(e),
            }
        });
        match failed.into_inner() {
            Some(failed) => Err(failed),
            None if written.into_inner() < pages.len() => Err((pages[0].file, ended())),
            None => Ok(()),
        }
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        self.file(file)?.sync()
    }

    fn sync_files(&self, files: &[FileId]) -> Vec<io::Result<()>> {
        let synced: Vec<_> = files.iter().map(|_| OnceLock::new()).collect();
        (self.workers).each(files.len(), &|at| _ = synced[at].set(self.sync(files[at])));
        let results = synced.into_iter().map(OnceLock::into_inner);
        results
            .map(|synced| synced.unwrap_or_else(|| Err(ended())))
            .collect()
    }
}

/// The error that a step was left out.
fn ended() -> io::Error {
    io::Error::other("a thread that was to do it ended")
}
