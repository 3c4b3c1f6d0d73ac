//! Homes of pages: the files themselves, and for the guarded pages of the system tablespace the
//! guard file.

use crate::{doublewrite::DoublewriteFile, guard::ActiveGuard};
use forebay_flash::{FileId, Home, HomeFiles, HomePage};
use parking_lot::RwLock;
use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// Writes that are under way at a time: a disk array is as fast as it has requests.
const IN_FLIGHT: usize = 8;

/// The homes of a cache's files.
pub(crate) struct Homes {
    files: HomeFiles,
    /// The system tablespace's number, and its guard.
    guarded: RwLock<Option<(u32, ActiveGuard)>>,
    /// Of pages that flash has not got.
    copies: RwLock<Option<DoublewriteFile>>,
}

impl Homes {
    pub(crate) fn new() -> Self {
        Self {
            files: HomeFiles::new(IN_FLIGHT),
            guarded: RwLock::new(None),
            copies: RwLock::new(None),
        }
    }

    /// `file` is the home of `id`; it stays open.
    pub(crate) fn attach(&self, id: FileId, file: File) {
        self.files.attach(id, file);
    }

    /// The file is gone: nothing of it is written any more.
    pub(crate) fn detach(&self, id: FileId) {
        self.files.detach(id);
    }

    /// The guarded pages of this file are in the guard file.
    pub(crate) fn guard(&self, id: FileId, guard: ActiveGuard) {
        *self.guarded.write() = Some((id.number, guard));
    }

    /// From now on no page is written home that neither flash nor `copies` has.
    pub(crate) fn keep_copies(&self, copies: DoublewriteFile) {
        *self.copies.write() = Some(copies);
    }

    pub(crate) fn take_guard(&self) -> Option<ActiveGuard> {
        self.guarded.write().take().map(|(_, guard)| guard)
    }

    /// The epoch that the guard notes, if there is one.
    pub(crate) fn epoch(&self) -> Option<u32> {
        self.guarded.read().as_ref().map(|(_, guard)| guard.epoch())
    }

    /// The guard notes another epoch, durably.
    pub(crate) fn begin_epoch(&self, epoch: u32, flash: &Path) -> io::Result<()> {
        match &mut *self.guarded.write() {
            Some((_, guard)) => guard.begin(epoch, flash),
            None => Ok(()),
        }
    }

    /// Reads the guard file's bytes instead of the tablespace's. None if it is in the tablespace.
    /// Within a page.
    pub(crate) fn read_guarded(
        &self,
        id: FileId,
        to: &mut [u8],
        offset: u64,
    ) -> Option<io::Result<()>> {
        let guarded = self.guarded.read();
        let (_, guard) = guarded
            .as_ref()
            .filter(|(number, _)| *number == id.number)?;
        let at = ActiveGuard::moved(offset)?;
        Some(guard.file().read_exact_at(to, at))
    }
}

impl Home for Homes {
    fn durable_bytes(&self, file: FileId) -> io::Result<u64> {
        self.files.durable_bytes(file)
    }

    fn write(&self, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        let guarded = self.guarded.read();
        let Some((number, guard)) = &*guarded else {
            return self.files.write(pages);
        };
        let mut others = Vec::with_capacity(pages.len());
        for page in pages {
            match ActiveGuard::moved(page.offset).filter(|_| page.file.number == *number) {
                Some(at) => guard.write(page.bytes, at).map_err(|e| (page.file, e))?,
                None => others.push(*page),
            }
        }
        self.files.write(&others)
    }

    fn protect(&self, last: u64, pages: &[HomePage<'_>]) -> Result<(), (FileId, io::Error)> {
        match (&*self.copies.read(), pages.first()) {
            (Some(copies), Some(page)) => copies.keep(last, pages).map_err(|e| (page.file, e)),
            _ => Ok(()),
        }
    }

    fn unprotect(&self) -> io::Result<()> {
        self.copies
            .read()
            .as_ref()
            .map_or(Ok(()), DoublewriteFile::clear)
    }

    fn sync(&self, file: FileId) -> io::Result<()> {
        if let Some((number, guard)) = &*self.guarded.read()
            && file.number == *number
        {
            guard.sync()?;
        }
        self.files.sync(file)
    }

    fn sync_files(&self, files: &[FileId]) -> Vec<io::Result<()>> {
        let guarded = match &*self.guarded.read() {
            Some((number, guard)) if files.iter().any(|file| file.number == *number) => {
                Some((*number, guard.sync()))
            }
            _ => None,
        };
        let mut synced = self.files.sync_files(files);
        if let Some((number, Err(e))) = guarded
            && let Some(at) = files.iter().position(|file| file.number == number)
            && let Some(synced) = synced.get_mut(at)
        {
            *synced = Err(e);
        }
        synced
    }
}
