//! Data directories behind a flash cache, and the next step with one, in words.

use crate::failure::Failure;
use forebay_files::directories::each_directory;
use forebay_innodb::GuardInspection;
use std::{
    io,
    path::{Path, PathBuf},
};

/// The data directories with a flash cache's guard, of this one and those below it, each with its
/// guard, or the reason that this cannot be told.
///
/// # Errors
/// A directory cannot be read.
pub fn below(directory: &Path) -> Result<Vec<(PathBuf, io::Result<GuardInspection>)>, Failure> {
    let mut found = Vec::new();
    each_directory(directory, |_, path| {
        let guard = forebay_innodb::standing(path).transpose();
        found.extend(guard.map(|guard| (path.to_owned(), guard)));
        Ok(())
    })
    .map_err(Failure::io("looking at", directory.display()))?;
    Ok(found)
}

/// The next step with `directory`, behind the cache on `flash`, which `holds` this; the guard is
/// its own, or came with a copy.
pub fn advice(directory: &Path, flash: &Path, is_its_own: bool, holds: &str) -> String {
    let (directory, flash) = (directory.display(), flash.display());
    match is_its_own {
        true => format!(
            "{directory}: the flash cache {flash} {holds}. Start the server under forebay run --flash {flash}, or first: forebay flash flush --flash {flash}"
        ),
        false => format!(
            "{directory}: a copy that was made while newer pages were in the flash cache {flash}. No server comes up on it; copy the data directory after forebay flash flush"
        ),
    }
}

/// The same of a `directory` of which it cannot be told whether it is behind one.
pub fn unknown(directory: &Path, why: &io::Error) -> String {
    let remedy = match why.kind() {
        io::ErrorKind::PermissionDenied => {
            "Repeat this as a user who may read it, the database's or root"
        }
        _ => "Mend that, and repeat this",
    };
    format!(
        "{}: a flash cache may have newer pages than the files there: {why}. {remedy}",
        directory.display()
    )
}
