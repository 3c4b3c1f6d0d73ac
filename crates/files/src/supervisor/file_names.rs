//! A file's key, and its newest name.

use crate::{absorbed::FileKey, shared::SharedFile};
use std::{
    ffi::OsString,
    fs::File,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// The key of the file or directory.
pub(super) fn key_of(file: &File) -> Option<FileKey> {
    let stat = rustix::fs::fstat(file).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// The name that a file has now: members say in the page when it is renamed.
pub(super) fn newest_path(file: &SharedFile, registered: &Path) -> PathBuf {
    let newest = PathBuf::from(OsString::from_vec(file.names.path()));
    match newest.is_absolute() {
        true => newest,
        false => registered.to_owned(),
    }
}
