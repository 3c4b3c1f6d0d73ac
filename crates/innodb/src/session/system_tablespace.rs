//! A session begins with the system tablespace: the cache's pages must be of its data directory,
//! and of the same time.

use super::CacheSession;
use crate::{
    complain::{complain, complain_once},
    descriptor::reopen,
    doublewrite::DoublewriteFile,
    find::{self, HomeSearch},
    guard::{self, ActiveGuard, FoundGuard, Mismatch},
    identity::KnownFile,
    page_layout::{self, PageLayout},
    recorded_names,
};
use forebay_flash::Epochs;
use forebay_pool::disks;
use rustix::fd::BorrowedFd;
use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt},
    path::Path,
    sync::atomic::Ordering::{Relaxed, Release},
};
use uuid::Uuid;

/// Before anything is laid over a tablespace: its pages must be such that the cache can take them,
/// since it cannot become plain. False if there are none yet.
fn has_pages(tablespace: &File, path: &Path) -> Result<bool, String> {
    let mut start = [0; page_layout::LOOKED_AT];
    (tablespace.read_exact_at(&mut start, 0))
        .map_err(|e| format!("reading {}: {e}", path.display()))?;
    match page_layout::pages(&start) {
        None => Ok(false),
        Some(PageLayout::Whole) => Ok(true),
        Some(PageLayout::OtherSize | PageLayout::Compressed) => Err(format!(
            "the pages of {} are not of 16 KiB (innodb_page_size), and a flash cache has no others: start this server without --flash. Nothing was changed",
            path.display()
        )),
    }
}

/// The copies beside a guard that is laid. Its pages are in the cache, so the server goes on, also
/// where the copies have no room.
fn of_a_laid_guard(dir: &Path, owner: Uuid) -> DoublewriteFile {
    let copies = DoublewriteFile::new(dir, owner);
    if let Err(why) = copies.make_room() {
        complain(&why);
    }
    copies
}

/// An epoch: any number but none. What it is like says nothing.
fn drawn() -> u32 {
    (Uuid::new_v4().as_u128() as u32).max(1)
}

impl CacheSession {
    /// The system tablespace was opened, as `fd`: from now on the cache is in use, unless the data
    /// directory is being made. Everything the cache has is of this data directory, or it is
    /// refused.
    ///
    /// # Errors
    /// In words; nothing was changed.
    pub(crate) fn begin_system(
        &self,
        fd: BorrowedFd<'_>,
        known: &KnownFile,
        path: &Path,
    ) -> Result<(), String> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        if known.bytes < guard::bytes_min() {
            return self.begin_making(path);
        }
        // Never closed: that would drop the lock that the server takes on it.
        let tablespace =
            reopen(fd, false).map_err(|e| format!("opening {}: {e}", path.display()))?;
        let tablespace = std::mem::ManuallyDrop::new(tablespace);
        guard::claim(&tablespace, path, self.place.flash())?;
        let failed = |e: io::Error| format!("guarding {}: {e}", path.display());
        let owner = self.cache.owner();
        let cache = (owner, Some(self.cache.epochs()));
        let found = ActiveGuard::find(dir, &tablespace, known.identity, cache).map_err(failed)?;
        let laid = match found {
            FoundGuard::Here(guard) => Some(guard),
            FoundGuard::Mismatch(mismatch) => return Err(self.mismatch(&mismatch, path)),
            FoundGuard::None => {
                if !has_pages(&tablespace, path)? {
                    return self.begin_making(path);
                }
                self.take_over(known, path)?;
                // As what the cache had: the files may be newer.
                let copies = DoublewriteFile::new(dir, owner);
                copies.remove().map_err(failed)?;
                (copies.make_room()).map_err(|why| format!("{why}. Nothing was changed"))?;
                self.warn_of_same_disk(known);
                None
            }
        };
        // Before the guard: a flush finds that by the tablespace which the cache knows, also after
        // a crash in between.
        let file = match self.known(known.identity) {
            Some(file) => {
                let home = reopen(fd, true).map_err(|e| failed(e.into()))?;
                self.homes.attach(file.id(), home);
                file
            }
            None => self.register(fd, known, path).map_err(|e| e.to_string())?,
        };
        let guard = self.begin_epoch(laid, (dir, &tablespace), known, failed)?;
        self.homes.guard(file.id(), guard);
        let at = HomeSearch {
            data: dir,
            roots: BTreeSet::new(),
            skip: Some(known.identity),
            given_up: &[],
        };
        find::attach_all(&self.cache, &self.homes, at).map_err(|e| e.to_string())?;
        recorded_names::is_at(&self.cache, &file, path).map_err(|e| e.to_string())?;
        let copies = of_a_laid_guard(dir, owner);
        match copies.restore(&self.cache, &*self.homes).map_err(failed)? {
            0 => {}
            pages => complain(&format!(
                "{pages} pages that a crash may have torn were written again"
            )),
        }
        self.homes.keep_copies(copies);
        let left = self.cache.files();
        *self.registered.lock() = left.into_iter().map(|f| (f.id().identity, f)).collect();
        self.active.store(true, Release);
        self.say_warm();
        Ok(())
    }

    /// The tablespace has no page 0 yet: how long its pages will be is not known.
    fn begin_making(&self, path: &Path) -> Result<(), String> {
        if self.cache.stats().dirty_pages > 0 {
            return Err(self.other_directory(path));
        }
        self.making.store(true, Relaxed);
        complain_once(
            "the data directory is being made: its page files stay plain, and go through the flash cache from the server's next start on",
        );
        Ok(())
    }

    /// Has the cache and the guard, which is `laid` now if there is none, begin a new epoch.
    /// docs/flash-tier.md, "The guard".
    fn begin_epoch(
        &self,
        laid: Option<ActiveGuard>,
        (dir, tablespace): (&Path, &File),
        known: &KnownFile,
        failed: impl Fn(io::Error) -> String,
    ) -> Result<ActiveGuard, String> {
        let enter = |epochs| self.cache.set_epochs(epochs).map_err(|e| e.to_string());
        let next = drawn();
        let noted = laid.as_ref().map(ActiveGuard::epoch);
        let noted = noted.unwrap_or(self.cache.epochs().current);
        enter(Epochs::about_to_begin(next, noted))?;
        let flash = self.place.flash();
        let guard = match laid {
            Some(mut guard) => {
                guard.complete(tablespace).map_err(&failed)?;
                guard.begin(next, flash).map_err(&failed)?;
                guard
            }
            None => {
                let cache = (self.cache.owner(), next);
                ActiveGuard::lay(dir, tablespace, known.identity, cache, flash).map_err(failed)?
            }
        };
        enter(Epochs::begun(next))?;
        Ok(guard)
    }

    /// Begins another epoch as the server ends: a copy of the cache or of the data directory that
    /// was made while it ran is an older one from now on. If that cannot be noted it is said.
    pub(crate) fn turn_epoch(&self) {
        let Some(noted) = self.homes.epoch() else {
            return;
        };
        let next = drawn();
        let enter = |epochs| self.cache.set_epochs(epochs).map_err(|e| e.to_string());
        let turned = enter(Epochs::about_to_begin(next, noted))
            .and_then(|()| {
                // The guard file is a home, too.
                let begin = || self.homes.begin_epoch(next, self.place.flash());
                self.cache.syncing_home(begin).map_err(|e| e.to_string())
            })
            .and_then(|()| enter(Epochs::begun(next)));
        if let Err(why) = turned {
            complain(&format!(
                "older copies of the flash cache cannot be told from it until the server is started again: {why}"
            ));
        }
    }

    /// The tablespace has no guard: the cache must have nothing that is newer than files, and what
    /// it has of others is let go.
    fn take_over(&self, known: &KnownFile, path: &Path) -> Result<(), String> {
        let dirty = self.cache.stats().dirty_pages;
        if dirty > 0 {
            return Err(match self.known(known.identity) {
                Some(_) => self.mismatch(&Mismatch::WrittenSince, path),
                None => self.other_directory(path),
            });
        }
        let others = self.cache.files();
        let others = others
            .iter()
            .filter(|file| file.id().identity != known.identity);
        for other in others.map(|file| recorded_names::path_of(file)) {
            if guard::is_of_another(&other, self.cache.owner(), path) {
                return Err(format!(
                    "the flash cache {0} is the one of {1}, whose guard it would not lift any more. Flush it first (forebay flash flush --flash {0}), or give another --flash; \
                     nothing was changed",
                    self.place.flash().display(),
                    other.display()
                ));
            }
        }
        // Clean pages may be older than what a server wrote without Forebay.
        let emptied = self.cache.empty(|_| std::ops::ControlFlow::Continue(()));
        let _ = emptied.map_err(|e| e.to_string())?;
        for file in self.cache.files() {
            self.forget(&file).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn other_directory(&self, path: &Path) -> String {
        let files = self.cache.files();
        let first = files.first().map_or_else(|| "?".into(), |file| file.name());
        format!(
            "the flash cache {0} has {1} pages of another data directory, or of an older state of this one, that its files do not have ({first} among them), and \
             {2} is not of it. Bring them home first (forebay flash flush --flash {0}), or give another --flash. {3}; nothing was changed",
            self.place.flash().display(),
            self.cache.stats().dirty_pages,
            path.display(),
            guard::if_restored(self.place.flash())
        )
    }

    fn mismatch(&self, mismatch: &Mismatch, path: &Path) -> String {
        let newer = self.cache.stats().dirty_pages;
        mismatch.told(path, self.place.flash(), newer)
    }

    /// Says what gets no faster, as flash or its metadata is where the data is.
    fn warn_of_same_disk(&self, known: &KnownFile) {
        let data = known.key.0;
        let metadata = self.place.pool_path();
        if let Some(place) = shared_place(self.place.flash(), data) {
            complain(&format!(
                "the flash cache is on {place} as the data: pages are written atomically, but nothing gets faster. Put it on a faster disk"
            ));
        } else if let Some(place) = shared_place(metadata, data) {
            complain(&format!(
                "the metadata of the flash cache, {}, is on {place} as the data, and each sync of a page file waits for it. Stop the server, move it to a faster disk, \
                 and leave a link to it there",
                metadata.display()
            ));
        }
    }

    fn say_warm(&self) {
        let stats = self.cache.stats();
        complain(&format!(
            "page files go through the flash cache {}: {} pages in it, of them {} newer than in the files",
            self.place.flash().display(),
            stats.pages,
            stats.dirty_pages
        ));
    }
}

/// The storage that the file, or device, at `path` shares with a file system, if any: that, or a
/// disk.
fn shared_place(path: &Path, file_system: u64) -> Option<String> {
    let meta = path.metadata().ok()?;
    let device = match meta.file_type().is_block_device() {
        true => meta.rdev(),
        false => meta.dev(),
    };
    if device == file_system {
        return Some("the same file system".to_owned());
    }
    let of_data = disks::whole(file_system);
    let mut own = disks::whole(device).into_iter();
    own.find(|disk| of_data.contains(disk))
        .map(|disk| format!("the same disk ({disk})"))
}
