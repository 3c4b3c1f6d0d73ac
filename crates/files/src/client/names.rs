//! Files by name: renamed, unlinked, and asked about.

use super::{
    CONFIG, FORKED, REGISTRY, find,
    session::{self, Session},
    table::{File, Gone},
    with_file,
};
use crate::{FILES_MAX, identity, sys, wire::Request};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    ffi::{CStr, OsString, c_int},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
};

/// Renames: `real` does it. `from` may be absorbed, and so may what `to` replaces, and what is in it, if it is a directory.
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
    let replaced = ours(to).filter(|replaced| {
        let same = renamed.as_ref().map(|renamed| renamed.number);
        same != Some(replaced.number)
    });
    if renamed.is_none() {
        forebay_pool::failpoint!("files:rename-other");
    }
    if renamed.is_none() && replaced.is_none() {
        let moved = Moved::begin(session, from, to);
        drop(registry);
        let done = real();
        if let Some(moved) = moved {
            moved.end(done.is_ok());
        }
        return done;
    }
    let losing = replaced.map(|named| Losing::begin(session, named));
    let mut target = None;
    if let Some(Ours { number, .. }) = renamed {
        let path = absolute(to);
        // It may have either name after a crash.
        with_file(number, |file| session.log_name(number, file, &path));
        forebay_pool::failpoint!("files:rename");
        target = Some((number, path));
    }
    let done = real();
    forebay_pool::failpoint!("files:renamed");
    if let Some((number, path)) = target {
        let from = absolute(from);
        with_file(number, |file| match &done {
            Ok(()) => {
                file.links.retain(|link| *link != from && *link != path);
                let old = std::mem::replace(&mut file.path, path);
                // It was opened by another of its names.
                if old != from && old != file.path && is_at(&old, file) {
                    file.links.push(old);
                }
            }
            Err(_) => {
                let old = file.path.clone();
                session.log_name(number, file, &old);
            }
        });
    }
    if let Some(losing) = losing {
        losing.end(to);
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
    let Some(named) = ours((dir, path)) else {
        drop(registry);
        return real();
    };
    let losing = Losing::begin(session, named);
    forebay_pool::failpoint!("files:unlink");
    let done = real();
    losing.end((dir, path));
    done
}

/// Gives a file one more name: `real` does it. `from` may be absorbed; `flags` are those of `linkat`.
///
/// # Errors
/// The kernel's.
pub fn link(
    from: (c_int, &CStr),
    to: (c_int, &CStr),
    flags: c_int,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let Some(session) = own_session() else {
        return real();
    };
    let registry = REGISTRY.lock();
    let mut look = AtFlags::from_bits_retain(flags as u32) & AtFlags::EMPTY_PATH;
    look.set(
        AtFlags::SYMLINK_NOFOLLOW,
        flags & libc::AT_SYMLINK_FOLLOW == 0,
    );
    let Some(Ours { number, .. }) = ours_at(from, look) else {
        drop(registry);
        return real();
    };
    // Before: it may be found by this name alone.
    let path = absolute(to);
    with_file(number, |file| session.log_name(number, file, &path));
    forebay_pool::failpoint!("files:link");
    let done = real();
    with_file(number, |file| {
        if done.is_ok() && file.path != path && !file.links.contains(&path) {
            file.links.push(path);
        }
        let newest = file.path.clone();
        session.log_name(number, file, &newest);
    });
    done
}

/// The session; none in a forked child.
fn own_session() -> Option<&'static Session> {
    session::current().filter(|_| !FORKED.load(Relaxed))
}

/// A file that is about to lose a name.
struct Losing {
    session: &'static Session,
    named: Ours,
}

impl Losing {
    /// Of the last name it is logged before: if the machine stops now, the file may be there or not.
    fn begin(session: &'static Session, named: Ours) -> Self {
        if named.is_last_name {
            with_file(named.number, |file| {
                session.log_gone(named.number, file, Gone::Maybe);
            });
        }
        Self { session, named }
    }

    /// What became of it says the file alone: the kernel may have refused, or another process may have given it another name meanwhile.
    fn end(self, name: (c_int, &CStr)) {
        let Ours {
            number,
            seen,
            is_last_name,
        } = self.named;
        let names = rustix::fs::fstat(&seen).map_or(1, |stat| stat.st_nlink);
        let path = absolute(name);
        with_file(number, |file| {
            match (names, is_last_name) {
                (0, _) => self.session.log_gone(number, file, Gone::Yes),
                (_, true) => self.session.log_gone(number, file, Gone::No),
                (_, false) => {}
            }
            file.links.retain(|link| *link != path);
            if names > 0
                && file.path == path
                && !is_at(&path, file)
                && let Some(other) = file.links.pop()
            {
                self.session.log_name(number, file, &other);
                file.path = other;
            }
        });
        if names == 0 {
            let mut closed = false;
            with_file(number, |known| closed = known.descriptors == 0);
            self.session.tell(&Request::Unlinked {
                file: number as u32,
                path: path.into_os_string().into_vec(),
                closed,
            });
        }
    }
}

/// True if the file has this name.
fn is_at(path: &Path, file: &File) -> bool {
    identity::look(path, &file.identity).is_ok_and(|seen| seen.is_some())
}

/// A directory that is about to get another name, with absorbed files in it.
struct Moved {
    session: &'static Session,
    /// By number: the path before, and then.
    files: Vec<(usize, PathBuf, PathBuf)>,
}

impl Moved {
    /// Logged before, like the renaming of a file. None if nothing in it is absorbed, as of nearly everything that is renamed.
    fn begin(session: &'static Session, from: (c_int, &CStr), to: (c_int, &CStr)) -> Option<Self> {
        let dir = sys::directory(from.0);
        let stat = rustix::fs::statat(dir, from.1, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return None;
        }
        let before = real_path(from)?;
        let after = real_parent(to)?;
        let mut files = Vec::new();
        for number in 0..FILES_MAX {
            with_file(number, |file| {
                if let Ok(rest) = file.path.strip_prefix(&before) {
                    let moved = after.join(rest);
                    session.log_name(number, file, &moved);
                    files.push((number, file.path.clone(), moved));
                }
            });
        }
        (!files.is_empty()).then_some(Self { session, files })
    }

    fn end(self, is_moved: bool) {
        for (number, before, after) in self.files {
            with_file(number, |file| {
                if file.path != before {
                    return;
                }
                if is_moved {
                    file.path = after;
                } else {
                    self.session.log_name(number, file, &before);
                }
            });
        }
    }
}

/// An absorbed file that was found by a name.
struct Ours {
    number: usize,
    /// Held, not opened: the file, whatever becomes of its name.
    seen: OwnedFd,
    /// It has no other.
    is_last_name: bool,
}

/// The absorbed file that has this name. Under the registry's lock.
fn ours(name: (c_int, &CStr)) -> Option<Ours> {
    ours_at(name, AtFlags::SYMLINK_NOFOLLOW)
}

fn ours_at((dir, path): (c_int, &CStr), flags: AtFlags) -> Option<Ours> {
    session::current()?;
    let stat = rustix::fs::statat(sys::directory(dir), path, flags).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let seen = if flags.contains(AtFlags::EMPTY_PATH) && path.is_empty() {
        // Not a copy of the descriptor: closing one would drop the database's record locks on the file.
        let held = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::open(sys::link_of(sys::borrow(dir)?), held, Mode::empty()).ok()?
    } else {
        let mut open = OFlags::PATH | OFlags::CLOEXEC;
        open.set(OFlags::NOFOLLOW, flags.contains(AtFlags::SYMLINK_NOFOLLOW));
        rustix::fs::openat(sys::directory(dir), path, open, Mode::empty()).ok()?
    };
    let number = find(key(&stat), || identity::of(seen.as_fd()))?;
    Some(Ours {
        number,
        seen,
        is_last_name: stat.st_nlink == 1,
    })
}

/// Where a name leads, without links on the way.
fn real_path((dir, path): (c_int, &CStr)) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = rustix::fs::openat(sys::directory(dir), path, flags, Mode::empty()).ok()?;
    std::fs::read_link(sys::link_of(open.as_fd())).ok()
}

/// The same of a name that nothing has yet.
fn real_parent(name: (c_int, &CStr)) -> Option<PathBuf> {
    let path = absolute(name);
    let parent = std::fs::canonicalize(path.parent()?).ok()?;
    Some(parent.join(path.file_name()?))
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
