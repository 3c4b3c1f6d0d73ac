//! Home files of the operating system.

use super::{Home, HomePage};
use crate::file::FileId;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

/// Writes fewer than this are not worth threads.
const PARALLEL_MIN: usize = 4;

struct Attached {
    file: File,
    /// Bytes of the file that are known to be durable.
    durable: AtomicU64,
}

/// Open files by their number. Each batch is written by several threads, in order: a disk array is as fast as it has requests.
pub struct HomeFiles {
    files: RwLock<HashMap<u32, Arc<Attached>>>,
    in_flight: usize,
}

impl HomeFiles {
    /// None yet, and at most `in_flight` writes at a time.
    #[must_use]
    pub fn new(in_flight: usize) -> Self {
        Self {
            files: RwLock::default(),
            in_flight: in_flight.max(1),
        }
    }

    /// `file`, open for writing, is the home of `id`.
    pub fn attach(&self, id: FileId, file: File) {
        let attached = Attached {
            file,
            durable: AtomicU64::new(0),
        };
        self.files.write().insert(id.number, Arc::new(attached));
    }

    /// Forgets and closes it. Nothing of it is dirty any more.
    pub fn detach(&self, id: FileId) {
        self.files.write().remove(&id.number);
    }

    fn file(&self, id: FileId) -> io::Result<Arc<Attached>> {
        self.files
            .read()
            .get(&id.number)
            .cloned()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the home file is not attached"))
    }

    fn write_one(&self, page: &HomePage<'_>) -> Result<(), (FileId, io::Error)> {
        self.file(page.file)
            .and_then(|home| home.file.write_all_at(page.bytes, page.offset))
            .map_err(|e| (page.file, e))
    }
}

impl Home for HomeFiles {
    fn durable_bytes(&self, file: FileId) -> io::Result<u64> {
        let home = self.file(file)?;
        let bytes = home.file.metadata()?.len();
        if bytes != home.durable.load(Relaxed) {
            home.file.sync_data()?;
            home.durable.store(bytes, Relaxed);
        }
        Ok(bytes)
    }

    fn write(&self, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        if pages.len() < PARALLEL_MIN || self.in_flight == 1 {
            return pages.iter().try_for_each(|page| self.write_one(page));
        }
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let write = || {
            while let Some(page) = pages.get(next.fetch_add(1, Relaxed)) {
                if let Err(e) = self.write_one(page) {
                    failed.lock().get_or_insert(e);
                    next.store(pages.len(), Relaxed);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.in_flight.min(pages.len()) {
                // Where the system has no thread left, the others do it, this one at least.
                if thread::Builder::new().spawn_scoped(scope, write).is_err() {
                    break;
                }
            }
            write();
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        self.file(file)?.file.sync_data()
    }

    fn sync_files(&self, files: &[FileId]) -> Vec<io::Result<()>> {
        let [others @ .., last] = files else {
            return Vec::new();
        };
        if self.in_flight == 1 {
            return files.iter().map(|&file| self.sync(file)).collect();
        }
        thread::scope(|scope| {
            let begin = |&file| {
                let sync = move || self.sync(file);
                // Where the system has no thread left, this one does it.
                match thread::Builder::new().spawn_scoped(scope, sync) {
                    Ok(thread) => Ok(thread),
                    Err(_) => Err(self.sync(file)),
                }
            };
            let begun: Vec<_> = others.iter().map(begin).collect();
            let last = self.sync(*last);
            let ended = begun.into_iter().map(|begun| match begun {
                Ok(thread) => (thread.join())
                    .unwrap_or_else(|_| Err(io::Error::other("a thread that synced it ended"))),
                Err(synced) => synced,
            });
            ended.chain([last]).collect()
        })
    }
}
