//! Names that change: files renamed, unlinked and linked.

use super::{
    config::CONFIG,
    depth::interrupted,
    lookup::{Number, Ours, absolute, key, ours_at, real_parent, real_path},
    process::{Held, hold, process},
    retire::retire_file,
    session::{self, Session},
};
use crate::{identity, log::ENDED, shared::Gone, sys, wire::Request};
use rustix::{
    fs::{AtFlags, FileType},
    io::Errno,
};
use std::{
    ffi::{CStr, OsStr, OsString, c_int},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The session to follow a change of names by: this process becomes a member if one of them is of an absorbed file, or of a directory that may have some. None
/// if nothing is to be followed, or cannot be.
fn following(names: &[(c_int, &CStr)]) -> Option<&'static Session> {
    if interrupted() {
        return None;
    }
    let config = CONFIG.get()?;
    let may_be_absorbed = || {
        names.iter().any(|(dir, path)| {
            let found = sys::stat_at(sys::directory(*dir), path, AtFlags::SYMLINK_NOFOLLOW);
            found.is_ok_and(|stat| match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => true,
                _ => config.is_absorbed(key(&stat)),
            })
        })
    };
    let session = session::follower(config, may_be_absorbed);
    if session.is_none()
        && config.orphaned().is_some()
        && !sys::in_vforked_child()
        && may_be_absorbed()
    {
        config.settle_orphaned();
    }
    session
}

/// The absorbed file whose names are about to change. One that cannot be followed while they do is made plain before.
///
/// # Errors
/// As [`retire_file`].
fn followed(
    session: &Session,
    name: (c_int, &CStr),
    flags: AtFlags,
) -> Result<Option<Ours>, Errno> {
    match ours_at(session, name, flags) {
        None => Ok(None),
        Some(Ok(ours)) => Ok(Some(ours)),
        Some(Err((number, generation))) => retire_file(session, number, generation).map(|()| None),
    }
}

/// Renames: `real` does it. `from` may be absorbed, and so may what `to` replaces, and what is in it, if it is a directory.
///
/// # Errors
/// The kernel's.
pub fn rename(
    from: (c_int, &CStr),
    to: (c_int, &CStr),
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let Some(session) = following(&[from, to]) else {
        return real();
    };
    // Held to the end, so that of this process's threads one at a time renames.
    let registry = process().registry.lock();
    let renamed = followed(session, from, AtFlags::SYMLINK_NOFOLLOW)?;
    // Another name of the same file replaces nothing.
    let replaced = followed(session, to, AtFlags::SYMLINK_NOFOLLOW)?.filter(|replaced| {
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
    let losing = replaced
        .map(|named| Losing::begin(session, named))
        .transpose()?;
    let mut target = None;
    if let Some(Ours { number, .. }) = renamed {
        let path = absolute(to);
        // It may have either name after a crash.
        let mut logged_in = None;
        with_file(session, number, |held| {
            held.session.log().name(held.number, &path)?;
            logged_in = held.shared.named_in();
            Ok(())
        })?;
        commit(session);
        forebay_pool::failpoint!("files:rename");
        target = Some((number, path, logged_in));
    }
    let done = real();
    forebay_pool::failpoint!("files:renamed");
    if let Some((number, path, logged_in)) = target {
        let from = absolute(from);
        with_file(session, number, |held| match &done {
            Ok(()) => {
                named_anew(held, &from, &path)?;
                // Another write has named the file meanwhile, by its old name, in a segment that outlives that of the new one.
                match held.shared.named_in() == logged_in {
                    true => Ok(()),
                    false => held.session.log().name(held.number, &path),
                }
            }
            Err(_) => held.session.log().name(held.number, &path_of(held)),
        })?;
    }
    if let Some(losing) = losing {
        losing.end(to)?;
    }
    done
}

/// The file that was called `from` is called `path` now.
fn named_anew(held: &mut Held, from: &Path, path: &Path) -> Result<(), Errno> {
    let shared = held.shared;
    let link = PathBuf::from(OsStr::from_bytes(&shared.link.get()));
    if link == from || link == path {
        shared.link.clear();
    }
    let old = path_of(held);
    let fits = shared.path.set(path.as_os_str().as_bytes());
    // It was opened by another of its names, which it has still.
    let has_other = old != from && old != path && is_at(&old, held);
    if !fits || has_other && !add_link(held, &old) {
        // It cannot be followed: the next call that uses it has it made plain.
        shared.leave(held.generation());
    }
    Ok(())
}

/// Notes one more name; false if there is no room for it.
fn add_link(held: &Held, path: &Path) -> bool {
    let link = &held.shared.link;
    let bytes = path.as_os_str().as_bytes();
    let has_room = link.is_empty() || link.get() == bytes;
    has_room && link.set(bytes)
}

fn path_of(held: &Held) -> PathBuf {
    PathBuf::from(OsString::from_vec(held.shared.path.get()))
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
    let Some(session) = following(&[(dir, path)]) else {
        return real();
    };
    let registry = process().registry.lock();
    let Some(named) = followed(session, (dir, path), AtFlags::SYMLINK_NOFOLLOW)? else {
        drop(registry);
        return real();
    };
    let losing = Losing::begin(session, named)?;
    forebay_pool::failpoint!("files:unlink");
    let done = real();
    losing.end((dir, path))?;
    done
}

/// Gives a file one more name: `real` does it. `from` may be absorbed; `flags` are those of `linkat`.
///
/// # Errors
/// The kernel's; that of a sync, if the file cannot be followed by so many names.
pub fn link(
    from: (c_int, &CStr),
    to: (c_int, &CStr),
    flags: c_int,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let Some(session) = following(&[from]) else {
        return real();
    };
    let registry = process().registry.lock();
    let mut look = AtFlags::from_bits_retain(flags as u32) & AtFlags::EMPTY_PATH;
    look.set(
        AtFlags::SYMLINK_NOFOLLOW,
        flags & libc::AT_SYMLINK_FOLLOW == 0,
    );
    let Some(Ours { number, .. }) = followed(session, from, look)? else {
        drop(registry);
        return real();
    };
    let path = absolute(to);
    let (at, generation) = number;
    let link = session.page.files[at].link.get();
    if !link.is_empty() && link != path.as_os_str().as_bytes() {
        // A third name is not followed.
        drop(registry);
        retire_file(session, at, generation)?;
        return real();
    }
    // Before: it may be found by this name alone.
    with_file(session, number, |held| {
        held.session.log().name(held.number, &path)
    })?;
    commit(session);
    forebay_pool::failpoint!("files:link");
    let done = real();
    with_file(session, number, |held| {
        let newest = path_of(held);
        if done.is_ok() && newest != path && !add_link(held, &path) {
            held.shared.leave(held.generation());
        }
        held.session.log().name(held.number, &newest)
    })?;
    done
}

/// Before a name changes, which the kernel may make durable at any time: what says so is durable, and all that was written before.
fn commit(session: &Session) {
    // If it cannot be, the next sync says so, and is a real one.
    let _ = session.commit_all();
}

/// Does `change` to a file, if the run absorbs it still. If it cannot be logged because the lane has ended, it need not be when this returns: a replay misses no name then.
fn with_file(
    session: &'static Session,
    (number, generation): Number,
    mut change: impl FnMut(&mut Held) -> Result<(), Errno>,
) -> Result<(), Errno> {
    while let Some(mut held) = hold(session, number, generation)? {
        match change(&mut held) {
            Err(ENDED) => held.logged(Err(ENDED))?,
            done => return done,
        }
    }
    Ok(())
}

/// A file that is about to lose a name.
struct Losing {
    session: &'static Session,
    named: Ours,
}

impl Losing {
    /// Of the last name it is logged before: if the machine stops now, the file may be there or not.
    fn begin(session: &'static Session, named: Ours) -> Result<Self, Errno> {
        if named.is_last_name {
            with_file(session, named.number, |held| {
                held.session.log().gone(held.number, Gone::Maybe)
            })?;
            commit(session);
        }
        Ok(Self { session, named })
    }

    /// What became of it says the file alone: the kernel may have refused, or another process may have given it another name meanwhile.
    fn end(self, name: (c_int, &CStr)) -> Result<(), Errno> {
        let Ours {
            number,
            seen,
            is_last_name,
        } = self.named;
        let names = sys::stat_of(&seen).map_or(1, |stat| stat.st_nlink);
        let path = absolute(name);
        with_file(self.session, number, |held| {
            let log = held.session.log();
            match (names, is_last_name) {
                (0, _) => log.gone(held.number, Gone::Yes)?,
                (_, true) => log.gone(held.number, Gone::No)?,
                (_, false) => {}
            }
            let link = PathBuf::from(OsString::from_vec(held.shared.link.get()));
            if link == path {
                held.shared.link.clear();
            } else if names > 0
                && path_of(held) == path
                && !is_at(&path, held)
                && !link.as_os_str().is_empty()
            {
                log.name(held.number, &link)?;
                // It fitted there.
                let _ = held.shared.path.set(link.as_os_str().as_bytes());
                held.shared.link.clear();
            }
            Ok(())
        })?;
        if names == 0 {
            drop(seen);
            self.session.tell(&Request::Unlinked {
                file: number.0 as u32,
                path: path.into_os_string().into_vec(),
            });
        }
        Ok(())
    }
}

/// True if the file has this name.
fn is_at(path: &Path, held: &Held) -> bool {
    identity::look(path, &held.shared.identity.get()).is_ok_and(|seen| seen.is_some())
}

/// A directory that is about to get another name, with absorbed files in it.
struct Moved {
    session: &'static Session,
    /// By number: the path before, and then.
    files: Vec<(Number, PathBuf, PathBuf)>,
}

impl Moved {
    /// Logged before, like the renaming of a file. None if nothing in it is absorbed, as of nearly everything that is renamed.
    fn begin(session: &'static Session, from: (c_int, &CStr), to: (c_int, &CStr)) -> Option<Self> {
        let dir = sys::directory(from.0);
        let stat = sys::stat_at(dir, from.1, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return None;
        }
        let before = real_path(from)?;
        let after = real_parent(to)?;
        let mut files = Vec::new();
        for (at, file) in session.page.files.iter().enumerate() {
            let stamp = file.stamp();
            if !stamp.state.is_in_lane() {
                continue;
            }
            let path = PathBuf::from(OsString::from_vec(file.path.get()));
            let Ok(rest) = path.strip_prefix(&before) else {
                continue;
            };
            let (number, moved) = ((at, stamp.generation), after.join(rest));
            // What cannot be logged makes a replay look for it, and refuse.
            let _ = with_file(session, number, |held| {
                held.session.log().name(held.number, &moved)
            });
            files.push((number, path, moved));
        }
        if files.is_empty() {
            return None;
        }
        commit(session);
        Some(Self { session, files })
    }

    fn end(self, is_moved: bool) {
        for (number, before, after) in self.files {
            let _ = with_file(self.session, number, |held| {
                if path_of(held) != before {
                    return Ok(());
                }
                if is_moved {
                    if !held.shared.path.set(after.as_os_str().as_bytes()) {
                        held.shared.leave(held.generation());
                    }
                    return Ok(());
                }
                held.session.log().name(held.number, &before)
            });
        }
    }
}
