//! Backups: numbered directories, each a store. What has not changed since the one before is linked
//! to that, so a further backup takes the room, and the time, of what is new: value-log files that
//! were begun or completed since, and tables.
//!
//! The store's owner makes one, or a reader beside it (`beside`).
//!
//! Nothing of a backup is shared with the store, and what is copied is read again and checked
//! before the backup counts.

use super::{
    reader_backup::LargeWatch,
    target::{CopyTarget, discard, make_dir, refuse_below},
};
use crate::{
    db::{Snapshot, Store, StoreCore, open::lock_backups},
    disk::{Disk, HeldDirectory},
    error::StoreError,
    manifest::{self, StoreManifest},
    stats::{BackupReport, CopyReport},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

/// The backups in a directory.
struct Backups {
    /// Their numbers, in order.
    numbers: Vec<u64>,
    /// The latest one.
    latest: Option<PathBuf>,
}

impl Backups {
    /// The backups of this store in `dir`, which has nothing else. Those that were not finished are
    /// removed.
    fn find(shared: &StoreCore, disk: &dyn Disk, dir: &Path) -> Result<Self, StoreError> {
        let foreign = |found: String| StoreError::NotEmpty {
            dir: dir.to_owned(),
            found,
        };
        let names = disk.list(dir).map_err(StoreError::io("listing", dir))?;
        let mut numbers = Vec::new();
        for name in names {
            let number = number_of(&name).ok_or_else(|| foreign(name.clone()))?;
            let path = dir.join(&name);
            let failed = |e: io::Error| StoreError::io("opening", &path)(e);
            let held = HeldDirectory::open(&path).map_err(failed)?;
            let within = held.names().map_err(failed)?;
            match StoreManifest::read(&held)? {
                Some(found) if found.state().uuid != shared.uuid => {
                    let uuid = found.state().uuid;
                    return Err(foreign(format!("{name}, a backup of store {uuid}")));
                }
                Some(_) => numbers.push(number),
                // Without anything in it: cut before there was a mark, or after.
                None if within.is_empty() || within.iter().any(|n| n == manifest::UNFINISHED) => {
                    let removed = discard(&path, within).and_then(|()| fs::remove_dir(&path));
                    removed.map_err(StoreError::io("removing", &path))?;
                }
                None => return Err(foreign(format!("{name}, which is no backup"))),
            }
        }
        numbers.sort_unstable();
        let latest = numbers.last().map(|number| dir.join(name_of(*number)));
        Ok(Self { numbers, latest })
    }

    fn last(&self) -> u64 {
        self.numbers.last().copied().unwrap_or(0)
    }
}

fn name_of(number: u64) -> String {
    format!("{number:06}")
}

fn number_of(name: &str) -> Option<u64> {
    name.parse().ok().filter(|number| name_of(*number) == name)
}

impl Store {
    /// Makes a backup in `dir`: a directory of its own there, `000001` or the next number, which is
    /// a store as of now and opens without a pool. Files that the latest backup in `dir` has
    /// already are linked to it; everything else is copied, read again and checked. The store goes
    /// on, and no writer waits. `progress` is told how far it is.
    ///
    /// `dir` is locked meanwhile, unless it is on a file system that locks no directory (NFS):
    /// there two are not to make or remove backups in one directory at a time.
    ///
    /// To restore one, copy its directory and open the copy.
    ///
    /// # Errors
    /// [`StoreError::BackupsInUse`]; [`StoreError::NotEmpty`] if `dir` has anything else than
    /// backups of this store; damage; I/O errors. The backup that was begun is removed then, or by
    /// the next one.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, backups) = (dir.path().join("store"), dir.path().join("backups"));
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(&path, None)?;
    /// store.put("boat", "blue")?;
    /// let backup = store.backup(&backups, |so_far| println!("{} bytes", so_far.done_bytes))?;
    /// println!("{}: {} files, of which {} were copied", backup.backup, backup.files, backup.copied_files);
    /// # assert!(backups.join("000001").is_dir());
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup(
        &self,
        dir: impl AsRef<Path>,
        mut progress: impl FnMut(&CopyReport),
    ) -> Result<BackupReport, StoreError> {
        self.shared.check_process()?;
        let disk = &self.shared.disk;
        back_up(&self.snapshot()?, disk, dir.as_ref(), None, &mut progress)
    }

    /// Removes all backups in `dir` but the latest `keep`; those that were removed. What others
    /// have by the same name stays.
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, backups) = (dir.path().join("store"), dir.path().join("backups"));
    /// # let options = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync);
    /// # let store = options.open(&path, None)?;
    /// # for _ in 0..3 {
    /// store.backup(&backups, |_| ())?;
    /// # }
    /// for removed in store.prune_backups(&backups, 2)? {
    ///     println!("removed {}", removed.display());
    /// }
    /// # assert!(!backups.join("000001").exists() && backups.join("000002").exists());
    /// # Ok(())
    /// # }
    /// ```
    pub fn prune_backups(
        &self,
        dir: impl AsRef<Path>,
        keep: usize,
    ) -> Result<Vec<PathBuf>, StoreError> {
        prune(&self.shared, &*self.shared.disk, dir.as_ref(), keep)
    }
}

/// Makes a backup of a snapshot's moment in `dir`, by way of `disk`. With a `watch` it is that of a
/// reader's look.
pub(super) fn back_up(
    snapshot: &Snapshot,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    watch: Option<LargeWatch>,
    progress: &mut dyn FnMut(&CopyReport),
) -> Result<BackupReport, StoreError> {
    let (begun, shared) = (Instant::now(), snapshot.shared());
    refuse_below(&shared.dir, dir)?;
    make_dir(&**disk, dir).map_err(StoreError::io("creating", dir))?;
    let _alone = lock_backups(dir)?;
    let backups = Backups::find(shared, &**disk, dir)?;
    let path = dir.join(name_of(backups.last() + 1));
    let target = CopyTarget::begin(disk, &shared.dir, &path, backups.latest)?;
    let report = snapshot.copy_to(target.watching(watch).telling(progress))?;
    Ok(BackupReport {
        backup: path.display().to_string(),
        files: report.files,
        bytes: report.done_bytes,
        copied_files: report.copied_files,
        copied_bytes: report.copied_bytes,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// Removes all backups in `dir` but the latest `keep`; those that were removed.
pub(super) fn prune(
    shared: &StoreCore,
    disk: &dyn Disk,
    dir: &Path,
    keep: usize,
) -> Result<Vec<PathBuf>, StoreError> {
    shared.check_process()?;
    let _alone = lock_backups(dir)?;
    let numbers = Backups::find(shared, disk, dir)?.numbers;
    let gone = numbers.iter().take(numbers.len().saturating_sub(keep));
    let gone: Vec<PathBuf> = gone.map(|number| dir.join(name_of(*number))).collect();
    for path in &gone {
        // Marked first: what a cut leaves is removed by the next backup.
        let mark = || {
            match disk.create(&path.join(manifest::UNFINISHED)) {
                // A cut kept it from being removed.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?.sync()?,
            }
            disk.sync_dir(path)?;
            discard(path, disk.list(path)?)?;
            fs::remove_dir(path)
        };
        mark().map_err(StoreError::io("removing", path))?;
    }
    Ok(gone)
}
