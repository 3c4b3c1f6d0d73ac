//! A file that may begin to be absorbed, and the reason if it does not.

use super::{SupervisorState, other_pools::WantedFile, run::AbsorbedFile, watch::WatchedFile};
use crate::{absorbed::FileKey, policy};
use forebay_pool::disks;
use rustix::fs::Stat;
use std::{
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
};

/// The reason that a file is not absorbed.
pub(super) enum Refusal {
    /// It stays plain.
    Plain(String),
    /// It may not even be written to.
    Unheard(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Plain(why)
    }
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Self {
        Self::Plain(why.to_owned())
    }
}

/// A file that is being registered.
pub(super) struct Candidate<'a> {
    pub(super) path: &'a Path,
    /// The pattern that names it.
    pub(super) pattern: Option<usize>,
    /// The process that asked.
    pub(super) pid: u32,
    pub(super) theirs: &'a OwnedFd,
    pub(super) stat: Stat,
    pub(super) born: u64,
    pub(super) identity: Vec<u8>,
    /// The directory that its path leads to.
    pub(super) parent: Option<FileKey>,
}

impl Candidate<'_> {
    pub(super) fn key(&self) -> FileKey {
        (self.stat.st_dev, self.stat.st_ino)
    }

    pub(super) fn wanted(&self) -> WantedFile<'_> {
        WantedFile {
            file: self.theirs,
            identity: &self.identity,
            stat: &self.stat,
        }
    }

    /// The supervisor's note of it, when it has it open itself, and before.
    pub(super) fn known(&self, file: Option<Arc<File>>, watched: WatchedFile) -> AbsorbedFile {
        AbsorbedFile {
            path: self.path.to_owned(),
            pattern: self.pattern,
            parent: self.parent,
            directory: None,
            pid: self.pid,
            key: Some(self.key()),
            identity: self.identity.clone(),
            stat: self.stat,
            file,
            unlinked_from: None,
            watched,
        }
    }

    /// Refuses a file that the program itself syncs as fast as the pool's disk commits.
    pub(super) fn check_gains(&self, shared: &SupervisorState) -> Result<(), Refusal> {
        let (options, path) = (&shared.options, self.path.as_os_str().as_bytes());
        let is_on = |pattern: &String| policy::matches(pattern.as_bytes(), path);
        if shared.pool_disks.is_empty() || !options.preallocated.iter().any(is_on) {
            return Ok(());
        }
        let layer = options.layer.as_ref();
        if layer.is_some_and(|layer| layer.is_elsewhere(self.path)) {
            return Ok(());
        }
        let disks = disks::of(self.theirs.as_fd());
        match disks.iter().find(|disk| shared.pool_disks.contains(disk)) {
            None => Ok(()),
            Some(disk) => Err(Refusal::Plain(format!(
                "it has its size before it is written, and lies on {disk} as the pool does: its own syncs are faster there \
                 (--absorb-preallocated absorbs it all the same)"
            ))),
        }
    }
}
