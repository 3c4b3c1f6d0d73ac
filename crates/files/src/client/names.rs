//! Files by name: renamed, unlinked, and asked about.

use super::{
    CONFIG, FORKED, REGISTRY, find,
    session::{self, Session},
    with_file,
};
use crate::{identity, sys, wire::Request};
use rustix::{
    fs::{AtFlags, FileType, Stat},
    io::Errno,
};
use std::{
    ffi::{CStr, OsString, c_int},
    os::{fd::BorrowedFd, unix::ffi::OsStringExt},
    path::PathBuf,
    sync::atomic::Ordering::Relaxed,
};

/// Renames: `real` does it. `from` may be absorbed, and so may what `to` replaces.
///
/// # Errors
/// The kernel's.
pub fn rename(
    from: (c_int, &CStr),
    to: (c_int, &CStr),
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let Some(session) = own_session() else {
        return real();
    };
    // Held to the end, so that the numbers stay these files'.
    let registry = REGISTRY.lock();
    let renamed = ours(from);
    // Another name of the same file replaces nothing.
    let replaced =
        ours(to).filter(|replaced| renamed.is_none_or(|renamed| renamed.0 != replaced.0));
    if renamed.is_none() {
        forebay_pool::failpoint!("files:rename-other");
    }
    if renamed.is_none() && replaced.is_none() {
        drop(registry);
        return real();
    }
    let losing = replaced.map(|(number, last_name)| Losing::begin(session, number, last_name));
    let mut old = None;
    if let Some((number, _)) = renamed {
        let target = absolute(to);
        // It may have either name after a crash.
        with_file(number, |file| {
            old = Some(std::mem::replace(&mut file.path, target));
            session.log_name(number, file);
        });
        forebay_pool::failpoint!("files:rename");
    }
    let done = real();
    forebay_pool::failpoint!("files:renamed");
    if done.is_err()
        && let (Some((number, _)), Some(old)) = (renamed, old)
    {
        with_file(number, |file| {
            file.path = old;
            session.log_name(number, file);
        });
    }
    if let Some(losing) = losing {
        losing.end(done.is_ok(), to);
    }
    done
}

/// Unlinks: `real` does it. The file may be absorbed.
///
/// # Errors
/// The kernel's.
pub fn unlink(
    dir: c_int,
    path: &CStr,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let Some(session) = own_session() else {
        return real();
    };
    let registry = REGISTRY.lock();
    let Some((number, last_name)) = ours((dir, path)) else {
        drop(registry);
        return real();
    };
    let losing = Losing::begin(session, number, last_name);
    forebay_pool::failpoint!("files:unlink");
    let done = real();
    losing.end(done.is_ok(), (dir, path));
    done
}

/// The session; none in a forked child.
fn own_session() -> Option<&'static Session> {
    session::current().filter(|_| !FORKED.load(Relaxed))
}

/// A file that is about to lose a name.
struct Losing {
    session: &'static Session,
    number: usize,
    last_name: bool,
    /// It had lost another before.
    was_gone: bool,
}

impl Losing {
    /// Logged before: if the machine stops now, the file may be there or not.
    fn begin(session: &'static Session, number: usize, last_name: bool) -> Self {
        let mut was_gone = false;
        with_file(number, |file| {
            was_gone = file.gone;
            session.log_gone(number, file);
        });
        Self {
            session,
            number,
            last_name,
            was_gone,
        }
    }

    fn end(self, lost: bool, name: (c_int, &CStr)) {
        if !lost {
            with_file(self.number, |file| file.gone = self.was_gone);
        } else if self.last_name {
            let file = self.number as u32;
            self.session.tell(&Request::Unlinked {
                file,
                path: absolute(name).into_os_string().into_vec(),
            });
            with_file(self.number, |known| {
                known.nameless = true;
                if known.descriptors == 0 {
                    self.session.tell(&Request::Released { file });
                }
            });
        }
    }
}

/// The absorbed file that has this name, and whether it has no other. Under the registry's lock.
fn ours((dir, path): (c_int, &CStr)) -> Option<(usize, bool)> {
    let stat = rustix::fs::statat(sys::directory(dir), path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let identity = || identity::at(sys::directory(dir), path, AtFlags::SYMLINK_NOFOLLOW);
    Some((find(key(&stat), identity)?, stat.st_nlink == 1))
}

/// The path, from the root.
fn absolute((dir, path): (c_int, &CStr)) -> PathBuf {
    let path = PathBuf::from(OsString::from_vec(path.to_bytes().to_vec()));
    if path.is_absolute() {
        return path;
    }
    let base = match sys::borrow(dir) {
        Some(dir) => std::fs::read_link(sys::link_of(dir)),
        None => std::env::current_dir(),
    };
    base.unwrap_or_default().join(path)
}

/// A file that somebody may absorb.
pub(super) enum Named {
    Ours(usize, Key),
    /// Another process absorbs it.
    Foreign(Key),
}

pub(super) fn named(dir: c_int, path: &CStr, flags: AtFlags) -> Option<Named> {
    let config = CONFIG.get()?;
    let forked = FORKED.load(Relaxed);
    let key = stat_at(dir, path, flags)?;
    if !forked {
        let _registry = REGISTRY.lock();
        let identity = || identity::at(sys::directory(dir), path, flags);
        if let Some(number) = find(key, identity) {
            return Some(Named::Ours(number, key));
        }
    }
    config.is_anothers(key).then_some(Named::Foreign(key))
}

/// Device and inode.
pub(super) type Key = (u64, u64);

pub(super) fn key(stat: &Stat) -> Key {
    (stat.st_dev, stat.st_ino)
}

pub(super) fn stat_at(dir: c_int, path: &CStr, flags: AtFlags) -> Option<Key> {
    let stat = rustix::fs::statat(sys::directory(dir), path, flags).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| key(&stat))
}

pub(super) fn regular(fd: BorrowedFd<'_>) -> Result<(Stat, Key), Errno> {
    let stat = rustix::fs::fstat(fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let key = key(&stat);
    Ok((stat, key))
}
