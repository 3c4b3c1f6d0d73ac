//! Users that may write to a file.

use rustix::fs::Stat;

/// True if the user may write to a file, or may be able to: a group's members, and those of an
/// access list, are not looked up.
pub(crate) fn may_write(uid: u32, stat: &Stat) -> bool {
    const OTHERS: u32 = 0o022;
    let us = rustix::process::geteuid().as_raw();
    uid == 0 || uid == us || uid == stat.st_uid || stat.st_mode & OTHERS != 0
}
