//! Files that get another name, by their own renaming or by that of a directory.
//! docs/files-membership.md, "Retiring a file".

use super::{
    lookup::{AbsorbedNumber, real_parent, real_path},
    names::{commit, is_at, path_of, with_file},
    process::HeldFile,
    session::MemberSession,
};
use crate::sys;
use forebay_pool::{Lsn, with_room};
use rustix::{
    fs::{AtFlags, FileType, Stat},
    io::Errno,
};
use std::{
    ffi::{CStr, OsString, c_int},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// A file that is about to get another name.
pub(super) struct PendingRename {
    pub(super) number: AbsorbedNumber,
    from: PathBuf,
    to: PathBuf,
    /// The segment that has it.
    logged_in: Option<Lsn>,
}

impl PendingRename {
    /// Logged before: it may have either name after a crash.
    pub(super) fn begin(
        session: &'static MemberSession,
        number: AbsorbedNumber,
        from: PathBuf,
        to: PathBuf,
    ) -> Result<Self, Errno> {
        let mut logged_in = None;
        with_file(session, number, |held| {
            held.session.log().name(held.number, &to)?;
            logged_in = held.shared.named_in();
            commit(held)?;
            held.shared.first_sync.begin_naming();
            Ok(())
        })?;
        Ok(Self {
            number,
            from,
            to,
            logged_in,
        })
    }

    /// It has got it, or not.
    pub(super) fn end(&self, held: &HeldFile, is_done: bool) -> Result<(), Errno> {
        if !is_done {
            held.shared.first_sync.end_naming();
            return held.session.log().name(held.number, &path_of(held));
        }
        named_anew(held, &self.from, &self.to);
        held.shared.first_sync.end_naming();
        // Another write has named the file meanwhile, by its old name, in a segment that outlives
        // that of the new one.
        if held.shared.named_in() != self.logged_in {
            held.session.log().name(held.number, &self.to)?;
            commit(held)?;
        }
        Ok(())
    }
}

/// The file that was called `from` is called `path` now.
fn named_anew(held: &HeldFile, from: &Path, path: &Path) {
    let shared = held.shared;
    let link = PathBuf::from(OsString::from_vec(shared.names.link()));
    if link == from || link == path {
        shared.names.clear_link();
    }
    let old = path_of(held);
    let fits = shared.names.set_path(path.as_os_str().as_bytes());
    // It was opened by another of its names, which it has still.
    let has_other = old != from && old != path && is_at(&old, held);
    if !fits || has_other && !add_link(held, &old) {
        // It cannot be followed: the next call that uses it has it made plain.
        shared.leave(held.generation());
    }
}

/// Notes one more name; false if there is no room for it.
pub(super) fn add_link(held: &HeldFile, path: &Path) -> bool {
    let names = &held.shared.names;
    let bytes = path.as_os_str().as_bytes();
    let is_room = !names.has_link() || names.link() == bytes;
    is_room && names.set_link(bytes)
}

/// Before a directory gets another name: the absorbed files in it, which get others as well. None
/// of what is no directory.
///
/// # Errors
/// As [`with_file`]: then none of them gets another name.
pub(super) fn moving(
    session: &'static MemberSession,
    from: (c_int, &CStr),
    to: (c_int, &CStr),
) -> Result<Vec<PendingRename>, Errno> {
    let found = sys::stat_at(sys::directory(from.0), from.1, AtFlags::SYMLINK_NOFOLLOW);
    let is_directory = |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if !found.is_ok_and(is_directory) {
        return Ok(Vec::new());
    }
    with_room(|| moving_in(session, from, to))
}

/// The same of a directory.
fn moving_in(
    session: &'static MemberSession,
    from: (c_int, &CStr),
    to: (c_int, &CStr),
) -> Result<Vec<PendingRename>, Errno> {
    let (Some(before), Some(after)) = (real_path(from), real_parent(to)) else {
        return Ok(Vec::new());
    };
    let in_lane = (0..)
        .zip(session.page.used_files())
        .filter_map(|(at, file)| {
            let stamp = file.stamp();
            let is_in_lane = stamp.state.is_in_lane();
            is_in_lane.then_some(((at, stamp.generation), file))
        });
    let named = in_lane.filter_map(|(number, file)| {
        let path = PathBuf::from(OsString::from_vec(file.names.path()));
        let to = after.join(path.strip_prefix(&before).ok()?);
        Some(PendingRename::begin(session, number, path, to))
    });
    let mut files = Vec::new();
    for naming in named {
        match naming {
            Ok(naming) => files.push(naming),
            Err(errno) => {
                moved(session, files, false);
                return Err(errno);
            }
        }
    }
    Ok(files)
}

/// It has got that, or not. What cannot be logged makes a replay look for the file, and refuse.
pub(super) fn moved(session: &'static MemberSession, files: Vec<PendingRename>, is_done: bool) {
    for naming in files {
        let _ = with_file(session, naming.number, |held| {
            // Or it has got yet another one meanwhile.
            match path_of(held) == naming.from {
                true => naming.end(held, is_done),
                false => Ok(()),
            }
        });
    }
}
