//! Opening: which files are absorbed, and from when on. docs/files-protocol.md, "Absorbing a file".

use super::{
    CONFIG, Config, FILES, FORKED, GIVEN_UP, REGISTRY, RETIRED, find,
    leaving::forget,
    names::{Key, key, regular, stat_at},
    session::{self, Session},
    table::{self, Entry, File, HIDDEN_FLAGS},
};
use crate::{FILES_MAX, identity, record::KIND_TRUNCATE, sys, wire::Request};
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
/// absorbed. The descriptor is absorbed when this returns, if the profile says so and the supervisor agrees.
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
            if flags & libc::O_ACCMODE != libc::O_RDONLY
                && flags & plain == 0
                && !GIVEN_UP.load(Relaxed)
                && wanted(config, path)
                && !sys::in_vforked_child() =>
        {
            config
        }
        _ => return real(flags),
    };
    let existing = stat_at(dir, path, AtFlags::empty());
    if FORKED.load(Relaxed) {
        if let Some((dev, ino)) = existing {
            // Without a supervisor nobody absorbs it.
            let _ = config.address.foreign(dev, ino);
        }
        return real(flags);
    }
    let _registry = REGISTRY.lock();
    let mut known = existing.and_then(|key| {
        find(key, || {
            identity::at(sys::directory(dir), path, AtFlags::empty())
        })
    });
    if flags & libc::O_TRUNC != 0
        && known.is_none()
        && let Some((dev, ino)) = existing
    {
        // Before it is truncated: whoever logs it must have drained it.
        let _ = config.address.foreign(dev, ino);
    }
    let fd = match (known, session::current()) {
        (Some(number), Some(session)) if flags & libc::O_TRUNC != 0 => {
            let guard = FILES[number].file.lock();
            let fd = real(flags & !HIDDEN_FLAGS)?;
            if let Ok(mut cell) = guard.try_borrow_mut()
                && let Some(file) = &mut *cell
            {
                session.log_head(number, file, KIND_TRUNCATE, 0);
            }
            fd
        }
        _ => real(flags & !HIDDEN_FLAGS)?,
    };
    let absorbed = sys::borrow(fd).ok_or(Errno::BADF).and_then(|raw| {
        let (stat, key) = regular(raw)?;
        known = find(key, || identity::of(raw));
        let number = match known {
            Some(number) => number,
            None => register(config, raw, &stat, key)?,
        };
        let guard = FILES[number].file.lock();
        let mut cell = guard.try_borrow_mut().map_err(|_| Errno::DEADLK)?;
        let file = cell.as_mut().ok_or(Errno::NOENT)?;
        if !table::set_entry(fd, Some(Entry::new(Some(number), flags))) {
            return Err(Errno::MFILE);
        }
        file.descriptors += 1;
        Ok(())
    });
    if absorbed.is_err() && flags & HIDDEN_FLAGS != 0 {
        restore_flags(fd, flags);
    }
    Ok(fd)
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
    FILES[number].unlogged.store(false, Release);
    *cell = Some(File {
        dev,
        ino,
        identity,
        path: PathBuf::from(OsString::from_vec(path)),
        descriptors: 0,
        named_in: None,
        end: 0,
        position: None,
    });
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
