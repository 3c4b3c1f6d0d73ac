//! [`FaultyDisk`]: a disk whose n-th operation fails, for tests of the store.
//!
//! Faults that the store must survive, all of which it produces:
//! * an operation fails before it did anything ([`Fault::Error`]);
//! * a write stops in the middle and reports an error ([`Fault::Torn`]);
//! * from the n-th operation on everything fails, as when a device goes away ([`Fault::Gone`]);
//! * for a stretch of operations everything fails, as when a disk is full for a while
//!   ([`Fault::FullFor`]).

use super::{Disk, DiskFile};
use std::{
    fs::File,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

/// The fault of the chosen operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with `EIO` and nothing is done.
    Error,
    /// If it is a write, half of it is done, and it fails.
    Torn,
    /// It and all later ones fail.
    Gone,
    /// It and this many later ones fail with `ENOSPC`.
    FullFor(u64),
}

/// Counts operations and decides which fail.
#[derive(Default)]
pub struct FaultPlan {
    operations: AtomicU64,
    /// The first operation to fail, counted from 1; 0 is none.
    at: AtomicU64,
    fault: parking_lot::Mutex<Option<Fault>>,
    struck: AtomicU64,
}

impl FaultPlan {
    /// Lets the `at`-th operation from now (the first is 1) meet `fault`.
    pub fn strike(&self, at: u64, fault: Fault) {
        *self.fault.lock() = Some(fault);
        self.at.store(self.operations.load(SeqCst) + at, SeqCst);
    }

    /// Lets nothing fail any more.
    pub fn heal(&self) {
        self.at.store(0, SeqCst);
    }

    /// Operations seen so far.
    pub fn operations(&self) -> u64 {
        self.operations.load(SeqCst)
    }

    /// Operations that failed so far.
    pub fn struck(&self) -> u64 {
        self.struck.load(SeqCst)
    }

    /// Counts an operation; the fault it meets, if any.
    fn next(&self) -> Option<Fault> {
        let now = self.operations.fetch_add(1, SeqCst) + 1;
        let at = self.at.load(SeqCst);
        if at == 0 || now < at {
            return None;
        }
        let fault = (*self.fault.lock()).filter(|fault| match fault {
            Fault::Error | Fault::Torn => now == at,
            Fault::Gone => true,
            Fault::FullFor(count) => now <= at + count,
        });
        if fault.is_some() {
            self.struck.fetch_add(1, SeqCst);
        }
        fault
    }

    fn check(&self) -> io::Result<()> {
        self.next().map_or(Ok(()), |fault| Err(error(fault)))
    }
}

fn error(fault: Fault) -> io::Error {
    match fault {
        Fault::FullFor(_) => io::Error::from(io::ErrorKind::StorageFull),
        _ => io::Error::from(rustix::io::Errno::IO),
    }
}

/// A disk on which a [`FaultPlan`] lets operations fail.
pub struct FaultyDisk {
    inner: Arc<dyn Disk>,
    plan: Arc<FaultPlan>,
}

impl FaultyDisk {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Disk>, plan: Arc<FaultPlan>) -> Self {
        Self { inner, plan }
    }

    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile {
            inner: file,
            plan: Arc::clone(&self.plan),
        })
    }
}

impl Disk for FaultyDisk {
    fn hold(&self, path: &Path, open: &File) -> io::Result<()> {
        self.inner.hold(path, open)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.plan.check()?;
        Ok(self.wrap(self.inner.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.plan.check()?;
        Ok(self.wrap(self.inner.open(path)?))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.plan.check()?;
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.plan.check()?;
        self.inner.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.plan.check()?;
        self.inner.sync_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plan.check()?;
        self.inner.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plan.check()?;
        self.inner.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.plan.check()?;
        self.inner.remove(path)
    }
}

struct FaultyFile {
    inner: Arc<dyn DiskFile>,
    plan: Arc<FaultPlan>,
}

impl FaultyFile {
    /// Does the write, half of it, or nothing.
    fn write(&self, from: &[u8], write: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self.plan.next() {
            None => write(from),
            Some(Fault::Torn) => {
                write(&from[..from.len() / 2])?;
                Err(error(Fault::Torn))
            }
            Some(fault) => Err(error(fault)),
        }
    }
}

impl DiskFile for FaultyFile {
    fn read_exact_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        self.plan.check()?;
        self.inner.read_exact_at(to, offset)
    }

    fn write_all_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        self.write(from, |bytes| self.inner.write_all_at(bytes, offset))
    }

    fn write_pages_at(&self, from: &[u8], offset: u64) -> io::Result<()> {
        self.write(from, |bytes| self.inner.write_all_at(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.plan.check()?;
        self.inner.sync()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.plan.check()?;
        self.inner.allocate(bytes)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.plan.check()?;
        self.inner.truncate(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.plan.check()?;
        self.inner.len()
    }
}
