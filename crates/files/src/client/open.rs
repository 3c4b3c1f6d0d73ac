//! Opening: which files are absorbed, and from when on. docs/files-protocol.md, "Absorbing a file".

use super::{
    CONFIG, Config, FILES, FORKED, GIVEN_UP, PLAIN_FOR, REGISTRY, RETIRED, above, closing, find,
    interrupted, is_absorbing,
    leaving::{forget, retire_or_later},
    names::{Key, key, regular},
    session::{self, Session},
    table::{self, Entry, File, Gone, HIDDEN_FLAGS},
    tail::Tail,
    write::truncate_file,
};
use crate::{FILES_MAX, identity, policy, sys, wire::Request};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags},
    io::Errno,
};
use std::{
    ffi::{CStr, CString, OsString, c_int},
    os::{fd::BorrowedFd, unix::ffi::OsStringExt},
    path::PathBuf,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Opens a file: `real` opens it with the flags it is given. Those may lack `O_SYNC`, `O_DSYNC`, `O_DIRECT` and `O_TRUNC`, if the file is to be
/// absorbed. The descriptor is absorbed when this returns, if it is for writing and the file is absorbed already, by whatever name; or if the
/// profile says so and the supervisor agrees.
///
/// `real` may wait for ever (a FIFO, a lease, a server that is gone), so it is called without any lock.
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
    if interrupted() {
        return above::open(config, (dir, path), flags, real);
    }
    let is_wanted = wanted(config, path);
    let absorbs = is_absorbing() && !FORKED.load(Relaxed);
    let found = match is_wanted || absorbs {
        true => Found::at(dir, path, flags),
        false => Found::Other,
    };
    let existing = match found {
        Found::Other => return open_plainly(config, dir, path, flags, &mut real),
        Found::File(key) => Some(key),
        Found::Nothing => None,
    };
    let identity = || identity::at(sys::directory(dir), path, AtFlags::empty());
    let known = existing.filter(|_| absorbs).and_then(|key| {
        let _registry = REGISTRY.lock();
        find(key, identity)
    });
    let can_be = known.is_some()
        || is_wanted
            && !FORKED.load(Relaxed)
            && !GIVEN_UP.load(Relaxed)
            && (existing.is_none() || !is_retired(identity));
    if can_be && writes(flags) {
        return open_to_absorb(config, existing, flags, &mut real);
    }
    if let (Some(number), Some(key)) = (known, existing) {
        return open_to_truncate(number, key, flags, &mut real);
    }
    let fd = open_plainly(config, dir, path, flags, &mut real)?;
    if is_wanted {
        tell_plain(config, fd);
    }
    Ok(fd)
}

/// Opens the absorbed file with this number for reading, and truncates it.
fn open_to_truncate(
    number: usize,
    key: Key,
    flags: c_int,
    real: &mut impl FnMut(c_int) -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    let fd = real(flags & !libc::O_TRUNC)?;
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let is_it = |file: &File| {
        (file.dev, file.ino) == key && regular(raw).is_ok_and(|(_, opened)| opened == key)
    };
    // Another took the name meanwhile, or it is absorbed no longer.
    truncate_file(number, is_it, 0, || sys::truncate_open(raw))
        .unwrap_or_else(|| sys::truncate_open(raw))
        .map(|()| fd)
        .map_err(|errno| close_again(fd, errno))
}

/// What there is at a path, before it is opened.
enum Found {
    Nothing,
    File(Key),
    /// Something that is never absorbed, or whose truncation the kernel is to refuse.
    Other,
}

impl Found {
    fn at(dir: c_int, path: &CStr, flags: c_int) -> Self {
        let wanted = StatxFlags::BASIC_STATS;
        let stat = match rustix::fs::statx(sys::directory(dir), path, AtFlags::empty(), wanted) {
            Ok(stat) => stat,
            Err(_) => return Self::Nothing,
        };
        let fixed = StatxAttributes::APPEND | StatxAttributes::IMMUTABLE;
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile
            || flags & libc::O_TRUNC != 0 && stat.stx_attributes.intersects(fixed)
        {
            return Self::Other;
        }
        let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        Self::File((dev, stat.stx_ino))
    }
}

fn is_retired(identity: impl Fn() -> Result<Vec<u8>, Errno>) -> bool {
    let none = RETIRED.lock().is_empty();
    // Asked only where it matters, and not under the lock: mostly nothing was retired.
    !none && identity().is_ok_and(|identity| RETIRED.lock().contains(&identity))
}

/// Opens a file for writing without what its flags do to the file, absorbs it, and does that then.
fn open_to_absorb(
    config: &Config,
    existing: Option<Key>,
    flags: c_int,
    real: &mut impl FnMut(c_int) -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    // With O_EXCL there is nothing to be truncated.
    let truncates = flags & libc::O_TRUNC != 0 && flags & libc::O_EXCL == 0;
    let taken = HIDDEN_FLAGS | if truncates { libc::O_TRUNC } else { 0 };
    let fd = real(flags & !taken)?;
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let Ok((stat, key)) = regular(raw) else {
        // Something else took the name meanwhile.
        emulate(fd, flags);
        return Ok(fd);
    };
    let truncates = truncates && (existing.is_some() || stat.st_size > 0);
    if truncates && find_open(raw, key).is_none() {
        config.claim(key).map_err(|errno| close_again(fd, errno))?;
    }
    let registry = REGISTRY.lock();
    let known = find_open(raw, key);
    let truncated = match known {
        None if truncates => rustix::fs::ftruncate(raw, 0),
        _ => Ok(()),
    };
    let absorbed = truncated.and_then(|()| absorb(config, fd, flags));
    drop(registry);
    let truncated = match truncates && known.is_some() {
        true => super::truncate(fd, 0),
        false => truncated,
    };
    if let Err(errno) = truncated {
        closing(fd);
        return Err(close_again(fd, errno));
    }
    if absorbed.is_err() && flags & HIDDEN_FLAGS != 0 {
        emulate(fd, flags);
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

/// The number of an open file, if it is absorbed.
fn find_open(fd: BorrowedFd<'_>, key: Key) -> Option<usize> {
    find(key, || identity::of(fd))
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

pub(super) fn writes(flags: c_int) -> bool {
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

/// Gives `fd` what the flags ask for that were taken from it in vain. It is not opened again: closing a descriptor of a file would drop the
/// program's POSIX locks on it.
fn emulate(fd: c_int, flags: c_int) {
    let Some(raw) = sys::borrow(fd) else { return };
    let mut hidden = flags;
    if flags & libc::O_DIRECT != 0
        && let Ok(now) = rustix::fs::fcntl_getfl(raw)
        && rustix::fs::fcntl_setfl(raw, now | OFlags::DIRECT).is_ok()
    {
        hidden &= !libc::O_DIRECT;
    }
    if hidden & HIDDEN_FLAGS != 0 && !table::set_entry(fd, Some(Entry::new(None, hidden))) {
        // A number too large for the table.
        reopen(raw, flags);
    }
}

/// Opens `fd` again with all its flags.
fn reopen(fd: BorrowedFd<'_>, flags: c_int) {
    let again = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW);
    let flags = OFlags::from_bits_retain(again as u32);
    let reopened = rustix::fs::open(sys::link_of(fd), flags, Mode::empty());
    // As it is, it is right but for the flags.
    let _ = sys::replace(fd, reopened, flags.contains(OFlags::CLOEXEC));
}

/// True if a pattern names the file. Neither allocates nor locks.
pub(super) fn wanted(config: &Config, path: &CStr) -> bool {
    let matches = |pattern: &CString| policy::matches(pattern.to_bytes(), path.to_bytes());
    config.patterns.iter().any(matches)
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
    // Whoever opens it from now on above this call finds it here.
    FILES[number].set_key(Some((dev, ino)));
    session
        .register(number, fd, path.clone())
        .inspect_err(|_| FILES[number].set_key(None))?;
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
        tail: Tail::new(),
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
            && !slot.uncounted.load(Acquire)
        {
            forget(session, number, &mut cell, false);
        }
    }
}

/// A descriptor that this process has of the file, known to the client or not, and for which `is_it` says yes of its flags. None if that
/// cannot be told.
pub(super) fn open_here(
    file: Key,
    is_it: impl Fn(BorrowedFd<'_>, OFlags) -> bool,
) -> Option<Option<BorrowedFd<'static>>> {
    let entries = std::fs::read_dir(sys::LINKS).ok()?;
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<c_int>().ok());
    let mut descriptors = numbers.filter_map(sys::borrow);
    Some(descriptors.find(|fd| {
        rustix::fs::fstat(fd).is_ok_and(|stat| key(&stat) == file)
            && rustix::fs::fcntl_getfl(fd)
                .is_ok_and(|flags| !flags.contains(OFlags::PATH) && is_it(*fd, flags))
    }))
}
