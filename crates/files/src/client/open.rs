//! Opening: which files are absorbed, and from when on. docs/files-protocol.md, "Absorbing a file".

use super::{
    CONFIG, Config, FILES, FORKED, GIVEN_UP, PLAIN_FOR, REGISTRY, RETIRED, find, is_absorbing,
    leaving::{forget, retire_or_later},
    names::{Key, regular, stat_at},
    session::{self, Session},
    table::{self, Entry, File, HIDDEN_FLAGS},
};
use crate::{FILES_MAX, identity, sys, wire::Request};
use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    ffi::{CStr, OsString, c_int},
    os::{fd::BorrowedFd, unix::ffi::OsStringExt},
    path::PathBuf,
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, Release},
    },
};

/// Opens a file: `real` opens it with the flags it is given. Those may lack `O_SYNC`, `O_DSYNC`, `O_DIRECT`, if the file is to be
/// absorbed. The descriptor is absorbed when this returns, if it is for writing and the file is absorbed already, by whatever name; or if the
/// profile says so and the supervisor agrees.
///
/// # Errors
/// The kernel's.
pub fn open(
    dir: c_int,
    path: &CStr,
    flags: c_int,
    mut real: impl FnMut(c_int) -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    let plain = libc::O_PATH | libc::O_DIRECTORY | (libc::O_TMPFILE & !libc::O_DIRECTORY);
    let config = match CONFIG.get() {
        Some(config)
            if (writes(flags) || flags & libc::O_TRUNC != 0)
                && flags & plain == 0
                && !sys::in_vforked_child() =>
        {
            config
        }
        _ => return real(flags),
    };
    let is_wanted = wanted(config, path);
    let absorbs = is_absorbing() && !FORKED.load(Relaxed);
    if !is_wanted && !absorbs || FORKED.load(Relaxed) || GIVEN_UP.load(Relaxed) && !absorbs {
        let fd = open_plainly(config, dir, path, flags, &mut real)?;
        if is_wanted {
            tell_plain(config, fd);
        }
        return Ok(fd);
    }
    let existing = stat_at(dir, path, AtFlags::empty());
    let registry = REGISTRY.lock();
    let known = existing.and_then(|key| {
        find(key, || {
            identity::at(sys::directory(dir), path, AtFlags::empty())
        })
    });
    if known.is_none() && !is_wanted {
        drop(registry);
        return open_plainly(config, dir, path, flags, &mut real);
    }
    let fd = match (known, session::current()) {
        (Some(number), Some(session)) if flags & libc::O_TRUNC != 0 => {
            let guard = FILES[number].file.lock();
            let fd = real(flags & !HIDDEN_FLAGS)?;
            match guard.try_borrow_mut() {
                Ok(mut cell) => {
                    if let Some(file) = &mut *cell {
                        session.log_truncate(number, file, 0);
                    }
                }
                Err(_) => FILES[number].lose_track(),
            }
            fd
        }
        _ => {
            if flags & libc::O_TRUNC != 0 && known.is_none() {
                config.claim_at(dir, path)?;
            }
            real(flags & !HIDDEN_FLAGS)?
        }
    };
    let absorbed = match writes(flags) {
        true => absorb(config, fd, flags),
        false => Err(Errno::INVAL),
    };
    drop(registry);
    if absorbed.is_err() && flags & HIDDEN_FLAGS != 0 {
        restore_flags(fd, flags);
    }
    match absorbed {
        Ok(()) => Ok(fd),
        // The supervisor says so: no process absorbs it.
        Err(Errno::BUSY) => Ok(fd),
        Err(Errno::IO) => Err(close_again(fd, Errno::IO)),
        Err(_) => {
            tell_plain(config, fd);
            claimed(config, fd)
        }
    }
}

/// Opens a file that stays plain here: another process that absorbs it lets go of it, before it is truncated and before it is written to.
fn open_plainly(
    config: &Config,
    dir: c_int,
    path: &CStr,
    flags: c_int,
    real: &mut impl FnMut(c_int) -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    if flags & libc::O_TRUNC != 0 {
        config.claim_at(dir, path)?;
    }
    claimed(config, real(flags)?)
}

/// A descriptor that was opened just now, when no other process absorbs its file any more.
fn claimed(config: &Config, fd: c_int) -> Result<c_int, Errno> {
    match config.claim_open(fd) {
        Ok(()) => Ok(fd),
        Err(errno) => Err(close_again(fd, errno)),
    }
}

/// Closes a descriptor that the program was not given.
fn close_again(fd: c_int, errno: Errno) -> Errno {
    if let Some(fd) = sys::borrow(fd) {
        sys::close(fd);
    }
    errno
}

/// Says once why the files that the profile names stay plain in this process, if that is this process's own doing.
fn tell_plain(config: &Config, fd: c_int) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let Some(reason) = PLAIN_FOR.lock().clone() else {
        return;
    };
    let path = sys::borrow(fd).and_then(|fd| {
        regular(fd).ok()?;
        rustix::fs::readlink(sys::link_of(fd), Vec::new()).ok()
    });
    let Some(path) = path else { return };
    if !TOLD.swap(true, Relaxed) {
        let shown = path.to_string_lossy();
        sys::complain(&format!(
            "{shown} stays plain, as all files of this process: {reason}"
        ));
        config.address.tell(&Request::Plain {
            token: config.address.token,
            path: path.into_bytes(),
            reason,
        });
    }
}

fn writes(flags: c_int) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Makes `fd`, just opened for writing, absorbed; `EBUSY` if the supervisor refuses, `EIO` if it must not be written to. Under the registry's lock.
fn absorb(config: &Config, fd: c_int, flags: c_int) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let (stat, key) = regular(raw)?;
    let known = find(key, || identity::of(raw));
    let number = match known {
        Some(number) => number,
        None if GIVEN_UP.load(Relaxed) => return Err(Errno::PERM),
        None => register(config, raw, &stat, key)?,
    };
    let guard = FILES[number].file.lock();
    let mut cell = guard.try_borrow_mut().map_err(|_| Errno::DEADLK)?;
    let file = cell.as_mut().ok_or(Errno::NOENT)?;
    if table::set_entry(fd, Some(Entry::new(Some(number), flags))) {
        file.descriptors += 1;
        return Ok(());
    }
    // A number too large for the table would write round the lane.
    drop(cell);
    let session = session::current().ok_or(Errno::NOTCONN)?;
    retire_or_later(session, number);
    Err(Errno::MFILE)
}

/// Reopens `fd` with the flags that were taken from it in vain.
pub(super) fn restore_flags(fd: c_int, flags: c_int) {
    let Some(raw) = sys::borrow(fd) else { return };
    let path = sys::link_of(raw);
    let again = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW);
    let reopened = rustix::fs::open(path, OFlags::from_bits_retain(again as u32), Mode::empty());
    let cloexec = flags & libc::O_CLOEXEC != 0;
    if reopened.is_err() || sys::replace(raw, reopened, cloexec).is_err() {
        // Then at least what they ask for is emulated.
        table::set_entry(fd, Some(Entry::new(None, flags)));
    }
}

/// True if a pattern names the file: one with a slash in it the end of the path, another its last part.
pub(super) fn wanted(config: &Config, path: &CStr) -> bool {
    let bytes = path.to_bytes_with_nul();
    config.patterns.iter().any(|pattern| {
        let slashes = pattern.to_bytes().iter().filter(|b| **b == b'/').count();
        let from = bytes.iter().enumerate().rev().filter(|(_, b)| **b == b'/');
        let from = from.map(|(at, _)| at + 1).nth(slashes).unwrap_or(0);
        let name = CStr::from_bytes_with_nul(&bytes[from..]).unwrap_or(c"");
        sys::matches(pattern, name, libc::FNM_PATHNAME)
    })
}

/// Begins to absorb a file that is open as `fd`: its number.
pub(super) fn register(
    config: &Config,
    fd: BorrowedFd<'_>,
    stat: &Stat,
    (dev, ino): Key,
) -> Result<usize, Errno> {
    let identity = identity::of(fd)?;
    if RETIRED.lock().contains(&identity) || stat.st_nlink == 0 {
        return Err(Errno::PERM);
    }
    if session::current().is_some_and(Session::is_orphan) {
        return Err(Errno::NOTCONN);
    }
    let session = session::begin(&config.address).map_err(|why| {
        GIVEN_UP.store(true, Release);
        PLAIN_FOR.lock().get_or_insert_with(|| why.clone());
        Errno::NOTCONN
    })?;
    let path = rustix::fs::readlink(sys::link_of(fd), Vec::new())?;
    let path = path.into_bytes();
    reclaim(session);
    let number = match free() {
        Some(number) => number,
        None => {
            session.drain(None)?;
            reclaim(session);
            free().ok_or(Errno::NFILE)?
        }
    };
    session.register(number, fd, path.clone())?;
    let guard = FILES[number].file.lock();
    let mut cell = guard.try_borrow_mut().map_err(|_| Errno::DEADLK)?;
    let file = cell.insert(File {
        dev,
        ino,
        identity,
        path: PathBuf::from(OsString::from_vec(path)),
        descriptors: 0,
        named_in: None,
        end: 0,
        position: None,
        nameless: false,
        gone: false,
        unlogged: Vec::new(),
    });
    FILES[number].settled(file);
    FILES[number].owed.store(0, Relaxed);
    Ok(number)
}

pub(super) fn free() -> Option<usize> {
    (0..FILES_MAX).find(|number| {
        let guard = FILES[*number].file.lock();
        guard.try_borrow().is_ok_and(|cell| cell.is_none())
    })
}

/// Frees the numbers of files that are closed and drained. Under the registry's lock.
pub(super) fn reclaim(session: &Session) {
    let released = session.released();
    for (number, slot) in FILES.iter().enumerate() {
        let guard = slot.file.lock();
        let Ok(mut cell) = guard.try_borrow_mut() else {
            continue;
        };
        if cell
            .as_ref()
            .is_some_and(|f| f.descriptors == 0 && f.end <= released)
        {
            forget(session, number, &mut cell, false);
        }
    }
}
