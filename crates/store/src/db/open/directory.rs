//! The store's directory: the check that it is one, its locks, and its manifest.
//! docs/store-format.md, "Opening", 1.
//!
//! It is opened once, and held: the store is in that directory, wherever its path leads later. Its
//! locks:
//!
//! * the directory itself, which stays locked whatever becomes of the files in it;
//! * the directory `vlog`, which stays so when it is moved elsewhere;
//! * the file `LOCK`, which NFS can lock, too.
//!
//! A directory that holds something else is left as it is. What is made is durable before it is
//! used: each directory with its name, then the manifest.

use crate::{
    disk::{Disk, HeldDirectory, above_missing},
    error::StoreError,
    log,
    manifest::{self, StoreManifest},
};
use forebay_pool::media::ProcessMark;
use rustix::{fs::OFlags, io::Errno};
use std::{
    fs::{self, File, Metadata, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const LOCK: &str = "LOCK";
/// A process that the lock's last owner was just starting has it, too, until it executes its
/// program.
const STARTING: Duration = Duration::from_millis(500);

/// The locks of an open store, given back when this is dropped.
pub(in crate::db) struct StoreLock {
    files: Vec<File>,
    process: ProcessMark,
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // Closed by a forked child, it is its parent's still.
            return;
        }
        for file in &self.files {
            // Closing it would not do as long as a forked child has the open file, too.
            let _ = file.unlock();
        }
    }
}

impl StoreLock {
    /// Locks the directory of the value-log files, too: it may have been moved here from a store
    /// that is open.
    pub(super) fn take_log(&mut self, directory: &HeldDirectory) -> Result<(), StoreError> {
        let (dir, begun) = (directory.path(), Instant::now());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = directory.open_file(Path::new(log::DIR), flags);
        let opened = opened.map_err(StoreError::io("opening", &dir.join(log::DIR)))?;
        if take(&opened, dir, begun, is_lockable)? {
            self.files.push(opened);
        }
        Ok(())
    }
}

/// Opens the store's directory and takes its locks, making it if `create` says so. A directory that
/// holds something else is left as it is.
pub(super) fn lock(
    dir: &Path,
    create: bool,
) -> Result<(Arc<HeldDirectory>, StoreLock), StoreError> {
    let directory = open(dir, create)?;
    check_directory(&directory, create)?;
    let begun = Instant::now();
    let mut lock = StoreLock {
        files: Vec::new(),
        process: ProcessMark::take(),
    };
    let own = directory
        .to_lock()
        .map_err(StoreError::io("opening", dir))?;
    if take(&own, dir, begun, is_lockable)? {
        lock.files.push(own);
    }
    let path = dir.join(LOCK);
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let file = directory
        .open_file(Path::new(LOCK), flags)
        .map_err(StoreError::io("opening", &path))?;
    take(&file, dir, begun, |_| true)?;
    lock.files.push(file);
    Ok((directory, lock))
}

/// Locks a directory of backups, for who makes or removes some. On a file system that locks no
/// directory nobody is kept out.
pub(in crate::db) fn lock_backups(dir: &Path) -> Result<StoreLock, StoreError> {
    let opened = HeldDirectory::open(dir).and_then(|held| held.to_lock());
    let opened = opened.map_err(StoreError::io("opening", dir))?;
    let mut lock = StoreLock {
        files: Vec::new(),
        process: ProcessMark::take(),
    };
    match take(&opened, dir, Instant::now(), is_lockable) {
        Ok(true) => lock.files.push(opened),
        Ok(false) => {}
        Err(StoreError::InUse { dir, .. }) => return Err(StoreError::BackupsInUse { dir }),
        Err(error) => return Err(error),
    }
    Ok(lock)
}

/// Opens the directory of a store that is there, and takes no lock.
pub(super) fn open_existing(dir: &Path) -> Result<Arc<HeldDirectory>, StoreError> {
    let directory = open(dir, false)?;
    check_directory(&directory, false)?;
    Ok(directory)
}

/// Opens the store's directory, which is made if there is none and `create` says so.
fn open(dir: &Path, create: bool) -> Result<Arc<HeldDirectory>, StoreError> {
    let not_a_store = |found: &str| StoreError::NotAStore {
        dir: dir.to_owned(),
        found: found.to_owned(),
    };
    let opened = match HeldDirectory::open(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && create => {
            create_directory(dir).map_err(StoreError::io("creating", dir))?;
            HeldDirectory::open(dir)
        }
        opened => opened,
    };
    opened.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => not_a_store("the directory does not exist"),
        // Unless a file stands in the place of one above it.
        io::ErrorKind::NotADirectory if dir.exists() => not_a_store("it is no directory"),
        _ => StoreError::io("opening", dir)(e),
    })
}

/// Locks `file` of the store in `dir`, waiting from `begun` on for a process that is being started.
/// False if the file system says that it cannot be locked, and `must` does not say of the error
/// that it has to be.
fn take(
    file: &File,
    dir: &Path,
    begun: Instant,
    must: fn(&io::Error) -> bool,
) -> Result<bool, StoreError> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if begun.elapsed() < STARTING => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse {
                    dir: dir.to_owned(),
                    here: is_locked_here(file),
                });
            }
            Err(TryLockError::Error(e)) if must(&e) => {
                return Err(StoreError::io("locking", dir)(e));
            }
            Err(TryLockError::Error(_)) => return Ok(false),
        }
    }
}

/// True if this process has a lock on `file`, by another open file of it; false as well where that
/// cannot be told.
fn is_locked_here(file: &File) -> bool {
    let identity = |found: Metadata| (found.dev(), found.ino());
    let Ok(wanted) = file.metadata().map(identity) else {
        return false;
    };
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten();
    descriptors.flatten().any(|descriptor| {
        let found = fs::metadata(descriptor.path()).map(identity);
        let state =
            || fs::read_to_string(Path::new("/proc/self/fdinfo").join(descriptor.file_name()));
        found.is_ok_and(|found| found == wanted)
            && state().is_ok_and(|state| state.contains("FLOCK"))
    })
}

/// False if the error says that the file system locks no directory: NFS locks what is open for
/// writing only, which a directory never is.
fn is_lockable(error: &io::Error) -> bool {
    let refused = [Errno::BADF, Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS];
    Errno::from_io_error(error).is_none_or(|errno| !refused.contains(&errno))
}

/// The manifest of the store in `directory`, whose lock the caller has; of a new store if there is
/// none.
pub(super) fn manifest(
    disk: &dyn Disk,
    directory: &Arc<HeldDirectory>,
    create: bool,
) -> Result<StoreManifest, StoreError> {
    if let Some(manifest) = StoreManifest::read(directory)? {
        return Ok(manifest);
    }
    // No other process or thread is about to make one, now that the lock is held.
    check_directory(directory, create)?;
    let dir = directory.path();
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    disk.sync_dir(above.unwrap_or(Path::new(".")))
        .map_err(StoreError::io("syncing", dir))?;
    StoreManifest::create(disk, directory)
}

/// Makes a directory and those above it, durably.
fn create_directory(dir: &Path) -> io::Result<()> {
    let above = above_missing(dir);
    fs::create_dir_all(dir)?;
    above
        .into_iter()
        .try_for_each(|above| File::open(above)?.sync_all())
}

/// Refuses a directory that holds neither a store nor nothing at all.
fn check_directory(directory: &HeldDirectory, create: bool) -> Result<(), StoreError> {
    let dir = directory.path();
    let refuse = |found: String| {
        Err(StoreError::NotAStore {
            dir: dir.to_owned(),
            found,
        })
    };
    let names = directory.names().map_err(StoreError::io("listing", dir))?;
    if names.iter().any(|name| name == manifest::NAME) {
        return Ok(());
    }
    if names.iter().any(|name| name == manifest::UNFINISHED) {
        return refuse("a checkpoint or backup that was not finished; remove it".to_owned());
    }
    let is_other = |name: &&String| *name != LOCK && *name != manifest::TEMPORARY;
    let others: Vec<_> = names.iter().filter(is_other).map(String::as_str).collect();
    if !others.is_empty() {
        return refuse(format!("it has no MANIFEST, but {}", others.join(", ")));
    }
    if !create {
        return refuse("it has no MANIFEST".to_owned());
    }
    Ok(())
}
