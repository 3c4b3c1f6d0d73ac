//! Names that change: files renamed, unlinked and linked.

use super::{
    call_depth::interrupted,
    config::CONFIG,
    contents,
    lookup::{AbsorbedNumber, LookedUpFile, absolute, key, ours_at},
    process::{HeldFile, hold, process},
    renamed_files::{PendingRename, add_link, moved, moving},
    retire::{retire_file, retire_path},
    session::{self, MemberSession},
};
use crate::{identity, log::ENDED, shared::NameLoss, sys, wire::ClientRequest};
use rustix::{
    fs::{AtFlags, FileType},
    io::Errno,
};
use std::{
    ffi::{CStr, OsString, c_int},
    os::{
        fd::AsFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::atomic::Ordering::Acquire,
};

/// The session to follow a change of names by: this process becomes a member if one of them is of
/// an absorbed file, or of a directory that may have some. None if nothing is to be followed, or
/// cannot be.
fn following(names: &[(c_int, &CStr)]) -> Option<&'static MemberSession> {
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

/// The absorbed file whose names are about to change. One that cannot be followed while they do is
/// made plain before.
///
/// # Errors
/// As [`retire_file`].
fn followed(
    session: &MemberSession,
    name: (c_int, &CStr),
    flags: AtFlags,
) -> Result<Option<LookedUpFile>, Errno> {
    match ours_at(session, name, flags) {
        None => Ok(None),
        Some(Ok(ours)) => Ok(Some(ours)),
        Some(Err((number, generation))) => retire_file(session, number, generation).map(|()| None),
    }
}

/// Renames: `real` does it. `from` may be absorbed, and so may what `to` replaces, and what is in
/// it, if it is a directory.
///
/// # Errors
/// The kernel's.
pub fn rename(
    from: (c_int, &CStr),
    to: (c_int, &CStr),
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    contents::before_rename(from, to);
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
        let files = moving(session, from, to)?;
        drop(registry);
        let done = real();
        moved(session, files, done.is_ok());
        return done;
    }
    let losing = replaced
        .map(|named| LosingName::begin(session, named))
        .transpose()?;
    let naming = renamed.map(|LookedUpFile { number, seen, .. }| {
        PendingRename::begin(session, number, absolute(from), absolute(to))
            .map(|naming| (naming, seen))
    });
    let (naming, done) = match naming.transpose() {
        Ok(naming) => {
            if naming.is_some() {
                forebay_pool::failpoint!("files:rename");
            }
            (naming, real())
        }
        Err(errno) => (None, Err(errno)),
    };
    forebay_pool::failpoint!("files:renamed");
    let named = naming.map_or(Ok(()), |(naming, seen)| {
        with_file(session, naming.number, |held| {
            naming.end(held, done.is_ok())?;
            note_kept(held, &seen)
        })
    });
    if let Some(losing) = losing {
        losing.end(to)?;
    }
    named.and(done)
}

/// Exchanges the files of two names: `real` does it. A file that has one becomes plain before; what
/// is in a directory is followed.
///
/// # Errors
/// The kernel's; as [`retire_path`].
pub fn exchange(
    one: (c_int, &CStr),
    other: (c_int, &CStr),
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    for (dir, path) in [one, other] {
        retire_path(dir, path)?;
    }
    let Some(session) = following(&[one, other]) else {
        return real();
    };
    let registry = process().registry.lock();
    let mut files = moving(session, one, other)?;
    match moving(session, other, one) {
        Ok(more) => files.extend(more),
        Err(errno) => {
            moved(session, files, false);
            return Err(errno);
        }
    }
    drop(registry);
    let done = real();
    moved(session, files, done.is_ok());
    done
}

/// Its newest path.
pub(super) fn path_of(held: &HeldFile) -> PathBuf {
    PathBuf::from(OsString::from_vec(held.shared.names.path()))
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
    let losing = LosingName::begin(session, named)?;
    forebay_pool::failpoint!("files:unlink");
    let done = real();
    losing.end((dir, path))?;
    done
}

/// Gives a file one more name: `real` does it. `from` may be absorbed; `flags` are those of
/// `linkat`.
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
    let Some(LookedUpFile { number, seen, .. }) = followed(session, from, look)? else {
        drop(registry);
        return real();
    };
    let path = absolute(to);
    let (at, generation) = number;
    let link = session.page.files[at].names.link();
    if !link.is_empty() && link != path.as_os_str().as_bytes() {
        // A third name is not followed.
        drop(registry);
        retire_file(session, at, generation)?;
        return real();
    }
    // Before: it may be found by this name alone.
    with_file(session, number, |held| {
        held.session.log().name(held.number, &path)?;
        commit(held)
    })?;
    forebay_pool::failpoint!("files:link");
    let done = real();
    with_file(session, number, |held| {
        let newest = path_of(held);
        if done.is_ok() && newest != path && !add_link(held, &path) {
            held.shared.leave(held.generation());
        }
        note_kept(held, &seen)?;
        held.session.log().name(held.number, &newest)
    })?;
    done
}

/// Before a name changes, which the kernel may make durable at any time: the record of it is
/// durable, and all earlier writes.
pub(super) fn commit(held: &HeldFile) -> Result<(), Errno> {
    held.session.commit(held.shared.end.load(Acquire))
}

/// Logs that a file which is found with a name keeps it, if a process was killed when it was about
/// to take the last one. What is written from now on must not be given up with the file.
pub(super) fn note_kept(held: &HeldFile, seen: impl AsFd) -> Result<(), Errno> {
    let has_name = || sys::stat_of(seen).is_ok_and(|stat| stat.st_nlink > 0);
    match held.shared.gone() == NameLoss::Maybe && has_name() {
        true => held.session.log().keeps_name(held.number),
        false => Ok(()),
    }
}

/// Does `change` to a file, if the run absorbs it still. If it cannot be logged because the lane
/// has ended, it need not be when this returns: a replay misses no name then.
pub(super) fn with_file(
    session: &'static MemberSession,
    (number, generation): AbsorbedNumber,
    mut change: impl FnMut(&mut HeldFile) -> Result<(), Errno>,
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
struct LosingName {
    session: &'static MemberSession,
    named: LookedUpFile,
}

impl LosingName {
    /// Of the last name it is logged before: if the machine stops now, the file may be there or
    /// not.
    fn begin(session: &'static MemberSession, named: LookedUpFile) -> Result<Self, Errno> {
        if named.is_last_name {
            with_file(session, named.number, |held| {
                let before = held.shared.gone();
                let logged = held.session.log().gone(held.number, NameLoss::Maybe);
                let durable = logged.and_then(|()| commit(held));
                durable.inspect_err(|_| held.shared.set_gone(before))
            })?;
        }
        Ok(Self { session, named })
    }

    /// The file alone tells the outcome: the kernel may have refused, or another process may have
    /// given it another name meanwhile.
    fn end(self, name: (c_int, &CStr)) -> Result<(), Errno> {
        let LookedUpFile {
            number,
            seen,
            is_last_name,
        } = self.named;
        let names = sys::stat_of(&seen).map_or(1, |stat| stat.st_nlink);
        let path = absolute(name);
        with_file(self.session, number, |held| {
            let log = held.session.log();
            match (names, is_last_name) {
                (0, _) => log.gone(held.number, NameLoss::Yes)?,
                (_, true) => log.keeps_name(held.number)?,
                (_, false) => {}
            }
            let link = PathBuf::from(OsString::from_vec(held.shared.names.link()));
            let names_of = &held.shared.names;
            if link == path {
                names_of.clear_link();
            } else if names > 0
                && path_of(held) == path
                && !is_at(&path, held)
                && !link.as_os_str().is_empty()
            {
                log.name(held.number, &link)?;
                let bytes = link.as_os_str().as_bytes();
                if !names_of.set_path(bytes) {
                    // There is room for one of them only.
                    names_of.clear_link();
                    let _ = names_of.set_path(bytes);
                }
                names_of.clear_link();
            }
            Ok(())
        })?;
        if names == 0 {
            drop(seen);
            self.session.tell(&ClientRequest::Unlinked {
                file: number.0 as u32,
                path: path.into_os_string().into_vec(),
            });
        }
        Ok(())
    }
}

/// True if the file has this name.
pub(super) fn is_at(path: &Path, held: &HeldFile) -> bool {
    identity::look(path, &held.shared.identity.get()).is_ok_and(|seen| seen.is_some())
}
