//! Small files beside a flash file, in JSON: what the command and the process that has the cache tell one another. Either may be another user's.

use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Where the file with this ending is.
pub(crate) fn beside(flash: &Path, ending: &str) -> PathBuf {
    let mut path = flash.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// What it says; none if it is not there.
///
/// # Errors
/// What the operating system says; `InvalidData` if it says something else.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Replaces it, whole or not at all, and durably.
///
/// # Errors
/// What the operating system says.
pub(crate) fn keep(path: &Path, what: &impl Serialize) -> io::Result<()> {
    let aside = beside(path, ".new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    // For a process of another user.
    let mut file = options.mode(0o644).open(&aside)?;
    file.write_all(&serde_json::to_vec(what)?)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}
