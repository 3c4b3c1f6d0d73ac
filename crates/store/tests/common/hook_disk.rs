//! [`HookDisk`]: a disk on which a test decides about each operation: lets it wait, fail, or panic.

use forebay_store::disk::{Disk, DiskFile, RealDisk};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What is about to be done.
pub enum Doing<'a> {
    Create(&'a Path),
    Open(&'a Path),
    /// So many bytes from an offset on.
    Read(&'a Path, u64, usize),
    Write(&'a Path, u64),
    Sync(&'a Path),
    Rename(&'a Path),
    Link(&'a Path),
    Remove(&'a Path),
    SyncDir(&'a Path),
}

impl Doing<'_> {
    /// The path of what changes on the disk; none if it is only read.
    pub fn changes(&self) -> Option<&Path> {
        match self {
            Self::Open(_) | Self::Read(..) => None,
            Self::Create(path) | Self::Write(path, _) | Self::Sync(path) => Some(path),
            Self::Rename(path) | Self::Link(path) | Self::Remove(path) => Some(path),
            Self::SyncDir(path) => Some(path),
        }
    }
}

type Hook = Arc<dyn Fn(Doing<'_>) -> io::Result<()> + Send + Sync>;

/// See the module.
pub struct HookDisk {
    inner: Arc<dyn Disk>,
    hook: Hook,
}

impl HookDisk {
    pub fn new(hook: impl Fn(Doing<'_>) -> io::Result<()> + Send + Sync + 'static) -> Arc<Self> {
        Self::over(Arc::new(RealDisk::default()), hook)
    }

    /// As [`new`](Self::new), for another disk than the real one.
    pub fn over(
        inner: Arc<dyn Disk>,
        hook: impl Fn(Doing<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner,
            hook: Arc::new(hook),
        })
    }

    /// As [`new`](Self::new), by what a test changes.
    pub fn by<T: Send + Sync + 'static>(
        state: &Arc<T>,
        hook: impl Fn(Doing<'_>, &T) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let state = Arc::clone(state);
        Self::new(move |doing| hook(doing, &state))
    }

    fn wrap(&self, path: &Path, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(HookFile {
            path: path.to_owned(),
            inner,
            hook: Arc::clone(&self.hook),
        })
    }
}

impl Disk for HookDisk {
    as_the_real_disk!();

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        (self.hook)(Doing::Create(path))?;
        Ok(self.wrap(path, self.inner.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        (self.hook)(Doing::Open(path))?;
        Ok(self.wrap(path, self.inner.open(path)?))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        (self.hook)(Doing::SyncDir(dir))?;
        self.inner.sync_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.hook)(Doing::Rename(to))?;
        self.inner.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.hook)(Doing::Link(to))?;
        self.inner.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        (self.hook)(Doing::Remove(path))?;
        self.inner.remove(path)
    }
}

struct HookFile {
    path: PathBuf,
    inner: Arc<dyn DiskFile>,
    hook: Hook,
}

impl DiskFile for HookFile {
    fn read_exact_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        (self.hook)(Doing::Read(&self.path, offset, to.len()))?;
        self.inner.read_exact_at(to, offset)
    }

    fn write_all_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        (self.hook)(Doing::Write(&self.path, offset))?;
        self.inner.write_all_at(from, offset)
    }

    fn sync(&self) -> io::Result<()> {
        (self.hook)(Doing::Sync(&self.path))?;
        self.inner.sync()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.inner.allocate(bytes)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.inner.truncate(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}
