//! A bound on the descriptors that are open at a time.
//!
//! A store has any number of files, and a process some thousand descriptors. So a [`Descriptor`] is
//! opened when it is used, and closed again when others are wanted more (second chance: one that
//! was used since it was last looked at stays once more). A use keeps it open for as long as it
//! takes, and the next one opens it again, by its path.
//!
//! While it is open, a use takes one load of a shared pointer, and no lock.
//!
//! What was written through a descriptor and not synced keeps it open: the kernel reports the error
//! of a write-back to those who have the file open then, and perhaps to no later opener. So the
//! bound gives way to files that are being written; there are few.

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};
use std::{
    fs::File,
    io,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

/// A process keeps the other half of its descriptors for what else it does.
const SHARE: u64 = 2;
/// However few the process may have.
pub(crate) const LEAST: usize = 16;
/// More than this do not make anything faster.
const MOST: usize = 8192;

/// Descriptors that a store may have open, unless its options say so: a share of what this process
/// may open.
pub(crate) fn default_limit() -> usize {
    let soft = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(soft / SHARE)
        .unwrap_or(usize::MAX)
        .clamp(LEAST, MOST)
}

/// The descriptors that are open.
pub(super) struct Descriptors {
    limit: usize,
    clock: Mutex<ClockHand>,
    /// Descriptors in the clock that were dropped since.
    dropped: AtomicUsize,
}

#[derive(Default)]
struct ClockHand {
    open: Vec<Weak<Descriptor>>,
    hand: usize,
}

/// A file that is opened when it is used.
pub(super) struct Descriptor {
    all: Arc<Descriptors>,
    reopen: Box<dyn Fn() -> io::Result<File> + Send + Sync>,
    file: ArcSwapOption<File>,
    /// Used since the clock's hand was here.
    used: AtomicBool,
    /// Writes begun, and how many of them a sync has covered.
    written: AtomicU64,
    synced: AtomicU64,
}

impl Descriptors {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            clock: Mutex::default(),
            dropped: AtomicUsize::new(0),
        })
    }

    /// A file that `reopen` opens.
    pub(super) fn descriptor(
        self: &Arc<Self>,
        reopen: impl Fn() -> io::Result<File> + Send + Sync + 'static,
    ) -> Arc<Descriptor> {
        Arc::new(Descriptor {
            all: Arc::clone(self),
            reopen: Box::new(reopen),
            file: ArcSwapOption::empty(),
            used: AtomicBool::new(false),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
        })
    }

    /// Opens, and closes others until so many are open as may be.
    fn open(
        &self,
        this: &Arc<Descriptor>,
        open: impl Fn() -> io::Result<File>,
    ) -> io::Result<Arc<File>> {
        let mut clock = self.clock.lock();
        if let Some(file) = this.file.load_full() {
            return Ok(file);
        }
        if self.dropped.swap(0, Relaxed) > 0 {
            clock.open.retain(|one| one.strong_count() > 0);
        }
        clock.close_down_to(self.limit - 1);
        let opened = open().or_else(|error| match Errno::from_io_error(&error) {
            // The rest of the process has more open than was left to it.
            Some(Errno::MFILE | Errno::NFILE) => {
                let half = clock.open.len() / 2;
                clock.close_down_to(half);
                open()
            }
            _ => Err(error),
        });
        let file = Arc::new(opened?);
        this.used.store(true, Relaxed);
        this.file.store(Some(Arc::clone(&file)));
        clock.open.push(Arc::downgrade(this));
        Ok(file)
    }
}

impl ClockHand {
    /// Closes descriptors until `limit` are open, or all others are in use for writing.
    fn close_down_to(&mut self, limit: usize) {
        // Twice round: the first may only take away second chances.
        let mut looks = 2 * self.open.len();
        while self.open.len() > limit && looks > 0 {
            looks -= 1;
            self.hand = if self.hand < self.open.len() {
                self.hand
            } else {
                0
            };
            let Some(one) = self.open.get(self.hand).and_then(Weak::upgrade) else {
                self.open.swap_remove(self.hand);
                continue;
            };
            if one.used.swap(false, Relaxed) || one.has_unsynced() {
                self.hand += 1;
                continue;
            }
            one.file.store(None);
            self.open.swap_remove(self.hand);
        }
    }
}

impl Descriptor {
    /// Has `file` be the open file: it was just made.
    pub(super) fn adopt(self: &Arc<Self>, file: File) -> io::Result<()> {
        let mut file = Some(file);
        let made = std::cell::RefCell::new(&mut file);
        self.all
            .open(self, || {
                let taken = made.borrow_mut().take();
                taken.map_or_else(|| (self.reopen)(), Ok)
            })
            .map(drop)
    }

    /// Uses the file, which is opened if it is not. It stays open as long as this takes.
    #[inline]
    pub(super) fn with<T>(
        self: &Arc<Self>,
        using: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        if let Some(file) = &*self.file.load() {
            if !self.used.load(Relaxed) {
                self.used.store(true, Relaxed);
            }
            return using(file);
        }
        using(&*self.all.open(self, || (self.reopen)())?)
    }

    /// As [`with`](Self::with), to write: it stays open until it is synced.
    pub(super) fn write<T>(
        self: &Arc<Self>,
        using: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        self.will_write();
        self.with(using)
    }

    /// It is going to be written to, in whatever way.
    pub(super) fn will_write(&self) {
        self.written.fetch_add(1, SeqCst);
    }

    /// Syncs with `sync`.
    pub(super) fn sync(
        self: &Arc<Self>,
        sync: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let covered = self.written.load(SeqCst);
        self.with(sync)?;
        self.synced.fetch_max(covered, SeqCst);
        Ok(())
    }

    fn has_unsynced(&self) -> bool {
        self.written.load(SeqCst) != self.synced.load(SeqCst)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.all.dropped.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Read, os::unix::fs::FileExt, path::Path};

    fn file(all: &Arc<Descriptors>, path: &Path) -> Arc<Descriptor> {
        let path = path.to_owned();
        all.descriptor(move || File::options().read(true).write(true).open(&path))
    }

    fn read(one: &Arc<Descriptor>) -> String {
        one.with(|mut file| {
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok(text)
        })
        .unwrap()
    }

    fn open(files: &[Arc<Descriptor>]) -> usize {
        files.iter().filter(|one| one.file.load().is_some()).count()
    }

    fn files(all: &Arc<Descriptors>, dir: &Path) -> Vec<Arc<Descriptor>> {
        (0..20)
            .map(|i| {
                let path = dir.join(i.to_string());
                fs::write(&path, i.to_string()).unwrap();
                file(all, &path)
            })
            .collect()
    }

    #[test]
    fn no_more_files_than_the_limit_are_open_and_each_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let all = Descriptors::new(5);
        let files = files(&all, dir.path());
        for (i, one) in files.iter().enumerate() {
            assert_eq!(read(one), i.to_string());
            assert!(open(&files) <= 5);
        }
        // What was dropped leaves its place.
        drop(files);
        let again = self::files(&all, dir.path());
        again[..5].iter().for_each(|one| drop(read(one)));
        assert_eq!(open(&again), 5);
    }

    #[test]
    fn an_unsynced_file_stays_open_and_none_in_use_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let all = Descriptors::new(3);
        let files = files(&all, dir.path());
        for one in &files[..2] {
            one.write(|file| file.write_all_at(b"x", 0)).unwrap();
        }
        files[2]
            .with(|file| {
                files[3..].iter().for_each(|one| drop(read(one)));
                assert!(files[2].file.load().is_none());
                let mut byte = [0];
                file.read_exact_at(&mut byte, 0)?;
                assert_eq!(byte, *b"2");
                Ok(())
            })
            .unwrap();
        assert_eq!(open(&files[..2]), 2);
        files[0].sync(File::sync_data).unwrap();
        files[3..].iter().for_each(|one| drop(read(one)));
        assert_eq!(open(&files[..2]), 1);
        assert!(files[1].file.load().is_some());
    }

    #[test]
    fn the_default_leaves_the_process_as_many_as_it_takes() {
        let limit = default_limit();
        assert!((LEAST..=MOST).contains(&limit));
    }
}
