//! Empty stand-in for [`failpoint`](self) in a build without the feature of that name, as in each
//! that ships: all of it is known when compiled. No variable is read.

use crate::steps;
use rustix::io::Errno;
use std::{path::Path, time::Duration};

/// True in a build with the mechanism.
pub const BUILT_IN: bool = false;

/// Passes a failpoint.
#[inline(always)]
pub fn pass(name: &'static str) {
    steps::pass(name);
}

/// True if something is to happen here.
#[inline(always)]
#[must_use]
pub const fn hit(_: &str) -> bool {
    false
}

/// Says that this moment has come.
#[inline(always)]
pub const fn announce(_: &str) {}

/// True if this is to be broken.
#[inline(always)]
#[must_use]
pub const fn is_broken(_: &str) -> bool {
    false
}

/// The error with which a call is to fail.
#[inline(always)]
#[must_use]
pub const fn error(_: &str) -> Option<Errno> {
    None
}

/// The longest wait for this.
#[inline(always)]
#[must_use]
pub const fn limit(_: &str, usual: Duration) -> Duration {
    usual
}

/// The id of the boot that it is to be.
#[inline(always)]
#[must_use]
pub const fn boot_id() -> Option<&'static str> {
    None
}

/// True if an emulated pool is to count as persistent memory.
#[inline(always)]
#[must_use]
pub const fn pool_survived() -> bool {
    false
}

/// The directory for copies of files as they were synced last.
#[inline(always)]
#[must_use]
pub const fn synced_copies() -> Option<&'static Path> {
    None
}
