//! The tables that lie in a directory, as copies: their owners cannot take memory away under those
//! who look.

use super::{TableView, magic, open_table};
use crate::{
    processes::{self, MappingProcess},
    run_files::TABLE_PREFIX,
    sys,
};
use rustix::io::Errno;
use std::{
    fs::DirEntry,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// A table, and where it is.
pub(crate) struct FoundTable {
    pub(crate) path: PathBuf,
    pub(crate) table: TableView,
}

/// The tables of a directory that belong to users who are wanted. One that is being made has no
/// magic yet, and is none.
pub(crate) fn of_users(directory: &Path, is_wanted: impl Fn(u32) -> bool) -> Vec<FoundTable> {
    let found = named(directory).filter_map(|entry| {
        let path = entry.path();
        let fd = open_table(&path).ok()?;
        let is_its = is_wanted(sys::stat_of(&fd).ok()?.st_uid);
        let table = is_its.then(|| TableView::copy_of(fd.as_fd()).ok())??;
        Some(FoundTable { path, table })
    });
    found.collect()
}

/// The directory's entries that are named as tables are.
fn named(directory: &Path) -> impl Iterator<Item = DirEntry> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with(TABLE_PREFIX)
    })
}

/// A table of this boot that has another layout: a run of another version of forebay has it, and
/// its absorbed files are not known.
pub(crate) struct StrangeTable {
    file: OwnedFd,
}

impl StrangeTable {
    /// The table that is open as `fd`, if it is one.
    pub(crate) fn of(fd: OwnedFd, boot: Uuid) -> Option<Self> {
        let mut head = [0; HEAD];
        let read = rustix::io::pread(&fd, &mut head, 0).ok()?;
        let (words, _) = head.as_chunks::<{ size_of::<u64>() }>();
        let [its, high, low] = *words else {
            return None;
        };
        let (its, own) = (u64::from_ne_bytes(its), magic());
        let is_strange = its >> 8 == own >> 8 && its != own;
        let its_boot = (u64::from_ne_bytes(high), u64::from_ne_bytes(low));
        let is_it = read == HEAD && is_strange && its_boot == boot.as_u64_pair();
        is_it.then_some(Self { file: fd })
    }

    /// True if it is known that no process has it any more. A user who may not ask who has another
    /// user's file open asks for the lock of those that have a table.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over_by(sys::alone(self.file.as_fd()))
    }

    fn is_over_by(&self, alone: Result<bool, Errno>) -> bool {
        let is_unlocked = || sys::is_locked(self.file.as_fd()) == Ok(false);
        alone.unwrap_or_else(|_| is_unlocked())
    }

    /// The processes that have it: the supervisor writes to it.
    pub(crate) fn processes(&self) -> Vec<MappingProcess> {
        sys::stat_of(&self.file).map_or_else(|_| Vec::new(), |stat| processes::that_map(&stat))
    }
}

/// Bytes of what all layouts begin with: the magic, and the boot's id.
const HEAD: usize = 3 * size_of::<u64>();

/// Those of a directory that belong to users who are wanted.
pub(crate) fn strange_of_users(
    directory: &Path,
    is_wanted: impl Fn(u32) -> bool,
    boot: Uuid,
) -> Vec<StrangeTable> {
    let found = named(directory).filter_map(|entry| {
        let fd = open_table(&entry.path()).ok()?;
        let is_its = is_wanted(sys::stat_of(&fd).ok()?.st_uid);
        is_its.then(|| StrangeTable::of(fd, boot))?
    });
    found.collect()
}

/// The beginning of a table of another layout.
#[cfg(test)]
pub(crate) fn head_of_another_layout(boot: Uuid) -> Vec<u8> {
    let (high, low) = boot.as_u64_pair();
    let words = [magic() ^ 0x80, high, low];
    words.map(u64::to_ne_bytes).concat()
}

#[cfg(test)]
mod tests {
    use super::super::AbsorbedTable;
    use super::*;

    /// Promise (files): A table that a dead run of another version left refuses no file to other
    /// users.
    #[test]
    fn other_users_see_that_no_process_has_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let boot = Uuid::from_u128(7);
        let table = AbsorbedTable::new_in(dir.path(), b"/run", b"socket", boot).unwrap();
        let asked = StrangeTable {
            file: open_table(&table.path).unwrap(),
        };
        let seen = || asked.is_over_by(Err(Errno::ACCESS));
        assert!(!seen(), "its supervisor has it");
        let member = TableView::open(&table.path).unwrap();
        drop(table);
        assert!(!seen(), "a process of the run has it");
        drop(member);
        // But for a moment a child that another test starts.
        let is_seen = |_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            seen()
        };
        assert!((0..500).any(is_seen));
        // Who may ask who has it open goes by that.
        assert!(!asked.is_over_by(Ok(false)));
    }
}
