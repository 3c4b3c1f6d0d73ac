//! The store's directory: whether it is one, its lock, and its manifest. docs/store-format.md, "Opening", 1.
//!
//! A directory that holds something else is left as it is. What is made is durable before it is used: each directory with its name, then the manifest.

use crate::{
    disk::Disk,
    error::StoreError,
    manifest::{self, Manifest},
};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

const LOCK: &str = "LOCK";
/// A process that the lock's last owner was just starting has it, too, until it executes its program.
const STARTING: Duration = Duration::from_millis(500);

/// Takes the store's lock, making its directory if `create` says so. A directory that holds something else is
/// left as it is.
pub(super) fn lock(dir: &Path, create: bool) -> Result<File, StoreError> {
    if dir.exists() {
        check_directory(dir, create)?;
    } else if create {
        create_directory(dir).map_err(StoreError::io("creating", dir))?;
    } else {
        return Err(StoreError::NotAStore {
            dir: dir.to_owned(),
            found: "the directory does not exist".to_owned(),
        });
    }
    let path = dir.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(StoreError::io("opening", &path))?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begun.elapsed() < STARTING => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse {
                    dir: dir.to_owned(),
                });
            }
            Err(TryLockError::Error(e)) => return Err(StoreError::io("locking", &path)(e)),
        }
    }
}

/// The manifest of the store in `dir`, whose lock the caller has; of a new store if there is none.
pub(super) fn manifest(disk: &dyn Disk, dir: &Path, create: bool) -> Result<Manifest, StoreError> {
    if let Some(manifest) = Manifest::read(dir)? {
        return Ok(manifest);
    }
    // No other process or thread is about to make one, now that the lock is held.
    check_directory(dir, create)?;
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    disk.sync_dir(above.unwrap_or(Path::new(".")))
        .map_err(StoreError::io("syncing", dir))?;
    Manifest::create(disk, dir)
}

/// Makes a directory and those above it, durably.
fn create_directory(dir: &Path) -> io::Result<()> {
    let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let made = dir.ancestors().take_while(missing).count();
    fs::create_dir_all(dir)?;
    // The name of each directory made is durable when the one above it is synced.
    for above in dir.ancestors().skip(1).take(made) {
        let above = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        File::open(above)?.sync_all()?;
    }
    Ok(())
}

/// Refuses a directory that holds neither a store nor nothing at all.
fn check_directory(dir: &Path, create: bool) -> Result<(), StoreError> {
    let refuse = |found: String| {
        Err(StoreError::NotAStore {
            dir: dir.to_owned(),
            found,
        })
    };
    if !dir.is_dir() {
        return refuse("it is no directory".to_owned());
    }
    let mut others = Vec::new();
    for entry in fs::read_dir(dir).map_err(StoreError::io("listing", dir))? {
        let name = entry
            .map_err(StoreError::io("listing", dir))?
            .file_name()
            .to_string_lossy()
            .into_owned();
        if name == manifest::NAME {
            return Ok(());
        }
        if name != LOCK && name != manifest::TEMPORARY {
            others.push(name);
        }
    }
    if !others.is_empty() {
        others.sort();
        return refuse(format!("it has no MANIFEST, but {}", others.join(", ")));
    }
    if !create {
        return refuse("it has no MANIFEST".to_owned());
    }
    Ok(())
}
