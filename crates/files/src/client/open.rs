//! Opening: which files are absorbed, and from when on. docs/files-protocol.md, "Absorbing a file".

use super::{
    CONFIG, Config, FILES, FORKED, GIVEN_UP, REGISTRY, RETIRED, find, is_absorbing,
    leaving::{forget, retire_or_later},
    names::{Key, key, regular, stat_at},
    session::{self, Session},
    table::{self, Entry, File, Gone, HIDDEN_FLAGS},
};
use crate::{FILES_MAX, identity, sys, wire::Request};
use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    ffi::{CStr, OsString, c_int},
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::ffi::OsStringExt,
    },
    path::PathBuf,
    sync::atomic::Ordering::{Relaxed, Release},
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
    if !is_wanted && !absorbs {
        return real(flags);
    }
    let existing = stat_at(dir, path, AtFlags::empty());
    let foreign = Foreign { config, is_wanted };
    if FORKED.load(Relaxed) || GIVEN_UP.load(Relaxed) && !absorbs {
        foreign.before(existing, flags);
        let fd = real(flags)?;
        foreign.opened(fd, flags);
        return Ok(fd);
    }
    let registry = REGISTRY.lock();
    let known = existing.and_then(|key| {
        find(key, || {
            identity::at(sys::directory(dir), path, AtFlags::empty())
        })
    });
    if known.is_none() && !is_wanted {
        drop(registry);
        return real(flags);
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
            foreign.before(existing.filter(|_| known.is_none()), flags);
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
    // Unless it is the supervisor that says so.
    if absorbed.is_err_and(|errno| errno != Errno::BUSY) {
        foreign.opened(fd, flags);
    }
    Ok(fd)
}

fn writes(flags: c_int) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// How a file is opened that stays plain here, although others may absorb it: they let go of it, and absorb it no more while it is open.
struct Foreign<'a> {
    config: &'a Config,
    /// Only files that the profile names can be somebody else's.
    is_wanted: bool,
}

impl Foreign<'_> {
    /// Before a file that exists is truncated: whoever logs it must have drained it. Without a supervisor nobody absorbs it.
    fn before(&self, existing: Option<Key>, flags: c_int) {
        if let Some((dev, ino)) = existing
            && self.is_wanted
            && flags & libc::O_TRUNC != 0
        {
            let _ = self.config.address.foreign(dev, ino);
        }
    }

    /// Nothing was written yet.
    fn opened(&self, fd: c_int, flags: c_int) {
        let key = sys::borrow(fd).and_then(|raw| Some(regular(raw).ok()?.1));
        if let Some((dev, ino)) = key
            && self.is_wanted
            && writes(flags)
        {
            let _ = self.config.address.foreign(dev, ino);
        }
    }
}

/// Makes `fd`, just opened for writing, absorbed; `EBUSY` if the supervisor refuses. Under the registry's lock.
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
    let session = session::begin(&config.address).map_err(|why| {
        GIVEN_UP.store(true, Release);
        sys::complain(&format!("files stay plain: {why}"));
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
    if !session.register(number, fd, path.clone())? && written_elsewhere(fd, (dev, ino)) {
        session.tell(&Request::Forget {
            file: number as u32,
        });
        return Err(Errno::TXTBSY);
    }
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
        links: Vec::new(),
        mount: identity::mount(fd).unwrap_or(0),
        gone: Gone::No,
        touched: 0,
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
            forget(session, number, &mut cell);
        }
    }
}

/// True if this process has another descriptor of the file, for writing, which would go round the lane.
pub(super) fn written_elsewhere(fd: BorrowedFd<'_>, file: Key) -> bool {
    let Ok(entries) = std::fs::read_dir(sys::LINKS) else {
        return true;
    };
    let mut numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<c_int>().ok());
    numbers.any(|other| {
        let Some(other) = sys::borrow(other) else {
            return false;
        };
        other.as_raw_fd() != fd.as_raw_fd()
            && rustix::fs::fstat(other).is_ok_and(|stat| key(&stat) == file)
            && rustix::fs::fcntl_getfl(other)
                .is_ok_and(|flags| flags.intersects(OFlags::WRONLY | OFlags::RDWR))
    })
}
