//! Contents that a file system writes back by itself: of a file that takes another's place by a
//! rename, and of one that was cut off and is closed. So does ext4 (`auto_da_alloc`), since many
//! programs do not sync there.
//!
//! The file system only begins it then, and it ends after the journal's next commit. The commit
//! behind that one has it: a plain log's next syncs. Of an absorbed log's syncs one alone is a
//! commit ([`order`](super::order)), and a power cut within a second would leave zeros under the
//! new name. So the contents are waited for before the change, without a flush of the disk; those
//! that the program has synced cost nothing.

use super::{
    config::CONFIG,
    lookup::key,
    order::{follows_changes, may_have_logs_on},
};
use crate::sys;
use forebay_pool::extents;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use std::ffi::{CStr, c_int};

/// Before `from` is renamed to `to`.
#[inline]
pub(super) fn before_rename(from: (c_int, &CStr), to: (c_int, &CStr)) {
    if follows_changes() {
        let _ = write_replacing(from, to);
    }
}

/// Before a descriptor is closed whose file was cut off by it.
pub fn before_closing(fd: c_int) {
    if let Some(fd) = sys::borrow(fd)
        && sys::stat_of(fd).is_ok_and(|stat| is_file(&stat) && may_have_logs_on(stat.st_dev))
    {
        extents::write_back(fd);
    }
}

/// Waits until what `from` holds is written, if it is a file and `to` another. Not if it is
/// absorbed: then the pool has it.
#[cold]
#[inline(never)]
fn write_replacing(from: (c_int, &CStr), to: (c_int, &CStr)) -> Option<()> {
    let seen = |(dir, path): (c_int, &CStr)| {
        let seen = sys::stat_at(sys::directory(dir), path, AtFlags::SYMLINK_NOFOLLOW);
        seen.ok().filter(is_file)
    };
    let (replaced, replacing) = (seen(to)?, seen(from)?);
    let is_another = key(&replaced) != key(&replacing);
    let is_absorbed = CONFIG
        .get()
        .is_some_and(|it| it.is_absorbed(key(&replacing)));
    if !is_another || is_absorbed || !may_have_logs_on(replacing.st_dev) {
        return None;
    }
    // What has the name by now may be something else than a file: its open waits for nobody.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = flags | OFlags::CLOEXEC;
    let (directory, path) = (sys::directory(from.0), from.1);
    let file = rustix::fs::openat(directory, path, flags, Mode::empty()).ok()?;
    extents::write_back(&file);
    Some(())
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}
