//! Backups that are made beside the store's owner, by a reader in another process.
//!
//! The owner knows nothing of it, keeps nothing for it, and waits for nothing. What the look leads
//! to may be removed while it is copied:
//!
//! * tables are opened before any of them is copied, and the value-log files by the look: what is
//!   open is read also when its name is gone, as far as the process's descriptors go;
//! * large values are opened one by one. If one came or went since before the look
//!   ([`LargeWatch`]), each that a key leads to must have been copied.
//!
//! If anything is missing, or cannot be read, and the owner has changed its files since the look,
//! it is done again, as of a later look. The backup is complete, or there is none.

use super::{
    backup::{back_up, prune},
    target::CopyTarget,
};
use crate::{
    db::{ReadOnlyStore, Snapshot, StoreCore},
    disk::{Disk, RealDisk},
    error::StoreError,
    large_values,
    stats::{BackupReport, CopyReport},
};
use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Looks while the owner removes what is being copied.
const LOOKS: u32 = 10;
/// A directory's time of change is as exact as that, at least.
const EXACT: Duration = Duration::from_millis(50);

/// Tells whether large values came or went since a look at the store began, by the time at which
/// their directory was changed last.
pub(super) struct LargeWatch {
    changed: Option<SystemTime>,
    /// True if a value that comes or goes from now on gives the directory another time.
    is_told: bool,
}

impl LargeWatch {
    /// Begins, before the look.
    fn begin(shared: &StoreCore) -> Self {
        let changed = changed(shared);
        let is_told = changed.is_none_or(|then| then.elapsed().is_ok_and(|ago| ago > EXACT));
        Self { changed, is_told }
    }

    /// True if what is listed now has all that was there at the look.
    pub(super) fn is_quiet(&self, shared: &StoreCore) -> bool {
        self.is_told && changed(shared) == self.changed
    }
}

fn changed(shared: &StoreCore) -> Option<SystemTime> {
    let found = fs::metadata(shared.dir.join(large_values::DIR));
    found.and_then(|found| found.modified()).ok()
}

impl ReadOnlyStore {
    /// As [`Store::backup`](crate::Store::backup), beside the process that has the store open: a
    /// backup of the store as it is when this begins, or later. It looks anew for that, so that the
    /// reader is [refreshed](Self::refresh). The owner waits for nothing. Needs the permission to
    /// read the store, and to write `dir`.
    ///
    /// # Errors
    /// As [`Store::backup`](crate::Store::backup) and [`refresh`](Self::refresh);
    /// [`StoreError::Outdated`] if the owner removed what was being copied, ten times: it can make
    /// the backup itself.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, backups) = (dir.path().join("store"), dir.path().join("backups"));
    /// use forebay_store::{Durability, StoreOptions};
    /// let options = StoreOptions::new().durability(Durability::Fsync);
    /// let store = options.open(&path, None)?;
    /// store.put("boat", "blue")?;
    /// // In another process:
    /// let reader = options.open_read_only(&path, None)?;
    /// let backup = reader.backup(&backups, |_| ())?;
    /// println!("{}: {} files", backup.backup, backup.files);
    /// # assert!(backups.join("000001").is_dir());
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup(
        &self,
        dir: impl AsRef<Path>,
        mut progress: impl FnMut(&CopyReport),
    ) -> Result<BackupReport, StoreError> {
        let disk = self.writing_disk();
        let mut look = 1;
        loop {
            let watch = LargeWatch::begin(&self.core.load());
            self.refresh()?;
            let core = self.core.load_full();
            let snapshot = Snapshot::new(&core)?;
            let made = back_up(&snapshot, &disk, dir.as_ref(), Some(watch), &mut progress);
            match made {
                Err(error) if !core.may_be_outdated(&error) => return Err(error),
                Err(_) if look < LOOKS => look += 1,
                Err(outdated @ StoreError::Outdated { .. }) => return Err(outdated),
                Err(error) => {
                    return Err(StoreError::Outdated {
                        dir: core.dir.clone(),
                        what: format!("{LOOKS} times, the last time: {error}"),
                    });
                }
                made => return made,
            }
        }
    }

    /// As [`Store::prune_backups`](crate::Store::prune_backups).
    ///
    /// # Errors
    /// As that.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, backups) = (dir.path().join("store"), dir.path().join("backups"));
    /// # let options = forebay_store::StoreOptions::new().durability(forebay_store::Durability::NoSync);
    /// # let store = options.open(&path, None)?;
    /// let reader = options.open_read_only(&path, None)?;
    /// # for _ in 0..2 {
    /// reader.backup(&backups, |_| ())?;
    /// # }
    /// assert_eq!(reader.prune_backups(&backups, 1)?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prune_backups(
        &self,
        dir: impl AsRef<Path>,
        keep: usize,
    ) -> Result<Vec<PathBuf>, StoreError> {
        prune(&self.core.load(), &*self.writing_disk(), dir.as_ref(), keep)
    }

    /// Of the backups: the store's own is only read.
    fn writing_disk(&self) -> Arc<dyn Disk> {
        let files = self.options.open_log_files();
        Arc::new(RealDisk::with_open_files(files))
    }
}

impl StoreCore {
    /// True of an error that the owner may have made by what it has done since the look.
    fn may_be_outdated(&self, error: &StoreError) -> bool {
        match error {
            StoreError::Outdated { .. } => true,
            StoreError::NotEmpty { .. } | StoreError::BackupsInUse { .. } | StoreError::Forked => {
                false
            }
            // The look has found all that there was, tables too, of which MANIFEST knows nothing.
            StoreError::Io { path, source, .. }
                if source.kind() == ErrorKind::NotFound && path.starts_with(&self.dir) =>
            {
                true
            }
            error => self.is_outdated() && !error.is_full_disk(),
        }
    }
}

impl Snapshot {
    /// Large values of a look: all that are there, of which some may go at any time. Refuses what
    /// lacks one that a key leads to. The number behind theirs.
    pub(super) fn copy_large_beside(
        &self,
        target: &mut CopyTarget<'_>,
        watch: &LargeWatch,
    ) -> Result<u64, StoreError> {
        let (shared, dir) = (self.shared(), large_values::DIR);
        let large = &shared.large;
        // A directory that is not there has none.
        let ids = match changed(shared) {
            None => Vec::new(),
            Some(_) => large.ids()?,
        };
        let mut is_whole = watch.is_quiet(shared);
        let mut copied = BTreeSet::new();
        for id in ids {
            let name = large_values::file_name(id);
            let added = large
                .source(id)
                .and_then(|source| target.add_large(&name, source));
            match added {
                Ok(()) => {
                    copied.insert(id);
                }
                Err(_) if !large.ids()?.contains(&id) => {
                    target.forget(dir, &name);
                    is_whole = false;
                }
                Err(error) => return Err(error),
            }
        }
        if !is_whole && let Some(gone) = self.large_led_to()?.difference(&copied).next() {
            return Err(StoreError::Outdated {
                dir: shared.dir.clone(),
                what: format!("the large value {gone} was removed before it was copied"),
            });
        }
        let behind = copied.last().map_or(1, |last| last + 1);
        Ok(behind.max(shared.log.state().large_from))
    }
}
