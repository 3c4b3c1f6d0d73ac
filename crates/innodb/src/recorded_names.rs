//! The name under which the cache knows a file: its path, or a note that the name is about to be
//! taken away.
//!
//! Before a file is unlinked, or another takes its name, that is noted durably. A file that is not
//! found, and that the cache has newer pages of, is known to be gone if it is noted. It is missed
//! if it is not. docs/flash-tier.md, "A file that is not there".

use forebay_flash::{Cache, CachedFile, FlashError};
use std::path::{Path, PathBuf};

/// Leads the name of a file that is on its way out of its directory. A file's own name is a whole
/// path.
const LEAVING: &str = "unlinked ";
/// Ends the name that the kernel gives a file that has none: it was unlinked while it was looked
/// at. No page file's own name ends so.
const DELETED: &str = " (deleted)";

/// Its path, now or earlier.
pub(crate) fn path_of(file: &CachedFile) -> PathBuf {
    let name = file.name();
    let name = name.strip_prefix(LEAVING).unwrap_or(&name);
    PathBuf::from(name.strip_suffix(DELETED).unwrap_or(name))
}

/// True if its name was about to be taken away, or was.
pub(crate) fn is_leaving(file: &CachedFile) -> bool {
    let name = file.name();
    name.starts_with(LEAVING) || name.ends_with(DELETED)
}

/// Notes that its name is about to be taken away.
pub(crate) fn leaves(cache: &Cache, file: &CachedFile) -> Result<(), FlashError> {
    match is_leaving(file) {
        true => Ok(()),
        false => cache.rename(file, &format!("{LEAVING}{}", file.name())),
    }
}

/// Notes that it is here.
pub(crate) fn is_at(cache: &Cache, file: &CachedFile, path: &Path) -> Result<(), FlashError> {
    cache.rename(file, &path.to_string_lossy())
}
