//! The operating system's files.

use super::{
    Disk, DiskFile, HeldDirectory,
    descriptors::{Descriptor, Descriptors, default_limit},
};
use forebay_pool::rewrite::RewrittenFile;
use parking_lot::Mutex;
use rustix::{
    fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate},
    io::{Errno, ReadWriteFlags, preadv2},
    time::{ClockId, clock_gettime},
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, IoSliceMut},
    num::NonZeroU64,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// Number and time of files' syncs.
#[derive(Debug, Default)]
pub struct SyncMeter {
    calls: AtomicU64,
    wall_ns: AtomicU64,
    cpu_ns: AtomicU64,
}

impl SyncMeter {
    /// Calls, wall seconds and CPU seconds (of the calling threads) spent in `fdatasync` so far.
    #[must_use]
    pub fn read(&self) -> (u64, f64, f64) {
        let seconds = |ns: &AtomicU64| ns.load(Relaxed) as f64 / 1e9;
        (
            self.calls.load(Relaxed),
            seconds(&self.wall_ns),
            seconds(&self.cpu_ns),
        )
    }

    fn measure<T>(&self, sync: impl FnOnce() -> T) -> T {
        let (wall, cpu) = (Instant::now(), thread_cpu_ns());
        let result = sync();
        let wall_ns = u64::try_from(wall.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.calls.fetch_add(1, Relaxed);
        self.wall_ns.fetch_add(wall_ns, Relaxed);
        self.cpu_ns
            .fetch_add(thread_cpu_ns().saturating_sub(cpu), Relaxed);
        result
    }
}

fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The operating system's file systems.
pub struct RealDisk {
    meter: Arc<SyncMeter>,
    descriptors: Arc<Descriptors>,
    /// False if nothing may be changed.
    writes: bool,
    /// Those that are held open, by what they are called.
    directories: Mutex<BTreeMap<PathBuf, Arc<HeldDirectory>>>,
}

impl Default for RealDisk {
    fn default() -> Self {
        Self::with_open_files(default_limit())
    }
}

impl RealDisk {
    /// A disk with at most so many of its files open at a time, but for those that are being
    /// written.
    #[must_use]
    pub fn with_open_files(limit: usize) -> Self {
        Self {
            meter: Arc::default(),
            descriptors: Descriptors::new(limit),
            writes: true,
            directories: Mutex::default(),
        }
    }

    /// The meter of this disk's file syncs.
    #[must_use]
    pub fn meter(&self) -> Arc<SyncMeter> {
        Arc::clone(&self.meter)
    }

    /// The same, on which nothing is made, changed or removed.
    pub(crate) fn read_only(limit: usize) -> Self {
        Self {
            writes: false,
            ..Self::with_open_files(limit)
        }
    }

    fn check_writes(&self) -> io::Result<()> {
        match self.writes {
            true => Ok(()),
            false => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }

    fn held(&self, path: &Path) -> Option<Arc<HeldDirectory>> {
        self.directories.lock().get(path).cloned()
    }

    fn keep(&self, path: &Path, directory: Arc<HeldDirectory>) {
        self.directories.lock().insert(path.to_owned(), directory);
    }

    /// The directory that a file is in, and its name there.
    fn place<'p>(&self, path: &'p Path) -> io::Result<(Arc<HeldDirectory>, &'p Path)> {
        let name = path.file_name().map(Path::new);
        let (Some(above), Some(name)) = (path.parent(), name) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = match self.held(above) {
            Some(held) => held,
            None => HeldDirectory::open(above)?,
        };
        Ok((directory, name))
    }

    fn file(&self, directory: &Arc<HeldDirectory>, name: &Path) -> RealFile {
        let descriptor = |flags: OFlags| {
            let (directory, name) = (Arc::clone(directory), name.to_owned());
            self.descriptors.descriptor(move || {
                let file = directory.open_file(&name, flags)?;
                Ok(match flags.contains(OFlags::DIRECT) {
                    true => file,
                    false => advised(file),
                })
            })
        };
        RealFile {
            buffered: descriptor(match self.writes {
                true => OFlags::RDWR,
                false => OFlags::RDONLY,
            }),
            direct: descriptor(OFlags::WRONLY | OFlags::DIRECT),
            past_cache: AtomicBool::new(true),
            rewritten: RewrittenFile::default(),
            meter: Arc::clone(&self.meter),
        }
    }
}

/// Log reads are point reads; the store reads ahead by itself where it reads in order.
fn advised(file: File) -> File {
    let _ = fadvise(&file, 0, None, Advice::Random);
    file
}

impl Disk for RealDisk {
    fn hold(&self, path: &Path, open: &File) -> io::Result<()> {
        self.keep(path, HeldDirectory::of(open, path)?);
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.check_writes()?;
        let (directory, name) = self.place(path)?;
        let made = directory.open_file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        let file = self.file(&directory, name);
        file.buffered.adopt(advised(made))?;
        Ok(Arc::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let (directory, name) = self.place(path)?;
        let file = self.file(&directory, name);
        file.buffered.with(|_| Ok(()))?;
        Ok(Arc::new(file))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        match self.held(dir) {
            Some(held) => held.names(),
            None => HeldDirectory::open(dir)?.names(),
        }
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let above = dir.parent().and_then(|above| self.held(above));
        if !self.writes {
            let found = match (above, dir.file_name()) {
                (Some(above), Some(name)) => above.open_below(Path::new(name)),
                _ => HeldDirectory::open(dir),
            };
            self.keep(dir, found?);
            return Ok(());
        }
        let (Some(above), Some(name)) = (above, dir.file_name()) else {
            return fs::create_dir_all(dir);
        };
        self.keep(dir, above.make_below(Path::new(name))?);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match self.held(dir) {
            Some(held) => held.sync(),
            None => HeldDirectory::open(dir)?.sync(),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_writes()?;
        let ((directory, from), (there, to)) = (self.place(from)?, self.place(to)?);
        directory.rename_to(from, &there, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_writes()?;
        let ((directory, from), (there, to)) = (self.place(from)?, self.place(to)?);
        directory.link_to(from, &there, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check_writes()?;
        let (directory, name) = self.place(path)?;
        directory.remove(name)
    }
}

struct RealFile {
    buffered: Arc<Descriptor>,
    /// The same file with `O_DIRECT`.
    direct: Arc<Descriptor>,
    /// False once the file system has refused that.
    past_cache: AtomicBool,
    /// After a failed sync the same bytes over the same pages of the page cache do not become
    /// durable.
    rewritten: RewrittenFile,
    meter: Arc<SyncMeter>,
}

/// True if a file system says so that it cannot do `O_DIRECT`, or not with such memory or lengths.
fn refused(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::INVAL)
}

impl DiskFile for RealFile {
    fn read_exact_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        self.buffered.with(|file| file.read_exact_at(to, offset))
    }

    fn read_cached_at(&self, to: &mut [u8], offset: u64) -> io::Result<bool> {
        let wanted = to.len();
        let mut parts = [IoSliceMut::new(to)];
        self.buffered.with(
            |file| match preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
                Ok(read) => Ok(read == wanted),
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
                Err(e) => Err(e.into()),
            },
        )
    }

    fn write_all_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        self.buffered
            .write(|file| self.rewritten.write(file, from, offset))
    }

    fn write_pages_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        if self.past_cache.load(Relaxed) {
            self.buffered.will_write();
            match self.direct.with(|file| file.write_all_at(from, offset)) {
                Err(e) if refused(&e) => self.past_cache.store(false, Relaxed),
                done => return done,
            }
        }
        self.write_all_at(from, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.buffered.sync(|file| {
            self.rewritten
                .sync(file, |file| self.meter.measure(|| file.sync_data()))
        })
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        // The size by the C library, where an emulated device (docs/devices.md) sees that this is
        // room, not data.
        if self.len()? < bytes {
            self.truncate(bytes)?;
        }
        self.buffered.with(|file| {
            match fallocate(file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => Ok(()),
                // A file system without allocation ahead: syncs carry more metadata, nothing else.
                Err(Errno::OPNOTSUPP) => Ok(()),
                Err(e) => Err(e.into()),
            }
        })
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.buffered.with(|file| file.set_len(bytes))
    }

    fn len(&self) -> io::Result<u64> {
        self.buffered.with(|file| Ok(file.metadata()?.len()))
    }

    fn will_need(&self, offset: u64, bytes: u64) {
        // Advice only: the read that follows does the work in any case.
        let _ = self.buffered.with(|file| {
            Ok(fadvise(
                file,
                offset,
                NonZeroU64::new(bytes),
                Advice::WillNeed,
            )?)
        });
    }
}
