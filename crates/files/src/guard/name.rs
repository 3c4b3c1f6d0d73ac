//! What guards are called.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
use uuid::Uuid;

const BEGIN: &str = "held-by-forebay-pool-";
const END: &str = ".first-run.forebay-recover--for-this-data-directory";

/// The name of guards of this pool.
#[must_use]
pub fn name(pool: Uuid) -> String {
    let mut number = pool.simple().to_string();
    number.truncate(8);
    format!("{BEGIN}{number}{END}")
}

/// True if a directory has the name of a guard.
pub(crate) fn is_one(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(BEGIN.as_bytes()) && name.ends_with(END.as_bytes())
}
