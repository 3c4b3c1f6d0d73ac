//! The names of guards:
//! `held-by-forebay-pool-POOL-RUN.first-run.forebay-recover--for-this-data-directory`, eight digits
//! of each.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
use uuid::Uuid;

const BEGIN: &str = "held-by-forebay-pool-";
const END: &str = ".first-run.forebay-recover--for-this-data-directory";

/// The first part of the names of all guards of this pool.
#[must_use]
pub fn name(pool: Uuid) -> String {
    format!("{BEGIN}{}", digits(pool))
}

/// The name of the guard of a run of this pool.
pub(crate) fn of_run(pool: Uuid, run: Uuid) -> String {
    format!("{}-{}{END}", name(pool), digits(run))
}

fn digits(number: Uuid) -> String {
    let mut digits = number.simple().to_string();
    digits.truncate(8);
    digits
}

/// True if a directory has the name of a guard.
pub(crate) fn is_one(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(BEGIN.as_bytes()) && name.ends_with(END.as_bytes())
}
