//! The directories of a database, as far as marks and guards lie in them.

use crate::guard::name::is_one;
use std::{fs::File, path::Path};

/// Visits a directory, those below it, and those that links in them lead to, but nothing below the latter.
pub(crate) fn each_directory(
    directory: &Path,
    mut visit: impl FnMut(&File, &Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        visit(&File::open(&path)?, &path)?;
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() && is_one(&entry.file_name()) {
                // No user but root may look into it, and nothing is marked there.
            } else if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_symlink() && entry.path().is_dir() {
                // PostgreSQL's log may lie elsewhere.
                visit(&File::open(entry.path())?, &entry.path())?;
            }
        }
    }
    Ok(())
}
