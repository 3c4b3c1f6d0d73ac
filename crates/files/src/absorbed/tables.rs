//! The tables that lie in a directory, as copies: their owners cannot take memory away under those
//! who look.

use super::{TableView, open_table};
use crate::{run_files::TABLE_PREFIX, sys};
use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
};

/// A table, and where it is.
pub(crate) struct FoundTable {
    pub(crate) path: PathBuf,
    pub(crate) table: TableView,
}

/// The tables of a directory that belong to users who are wanted. One that is being made has no
/// magic yet, and is none.
pub(crate) fn of_users(directory: &Path, is_wanted: impl Fn(u32) -> bool) -> Vec<FoundTable> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with(TABLE_PREFIX)
    });
    let found = named.filter_map(|entry| {
        let path = entry.path();
        let fd = open_table(&path).ok()?;
        let is_its = is_wanted(sys::stat_of(&fd).ok()?.st_uid);
        let table = is_its.then(|| TableView::copy_of(fd.as_fd()).ok())??;
        Some(FoundTable { path, table })
    });
    found.collect()
}
