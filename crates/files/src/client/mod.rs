//! The client: the files tier inside the database's process, called by libforebay.so before, instead of, or after what the C library
//! does. It has no threads and calls nothing of the database.
//!
//! All functions may be called by any thread. A descriptor that is not absorbed costs one load
//! ([`absorbs`]); everything else is asked only about those that are.
//!
//! `table` knows descriptors and files, `session` the lane and the supervisor; here is what each call does with them. The kernel is always
//! asked first and the lane written second, under the file's lock, so that the lane's order is the kernel's.

mod session;
mod table;

use crate::{
    ENV_ABSORB, ENV_SOCKET, ENV_TOKEN, FILES_MAX, identity,
    record::{KIND_GONE, KIND_TRUNCATE},
    sys,
    wire::Request,
};
use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::{Errno, ReadWriteFlags},
};
use session::{Address, Session};
use std::{
    cell::RefMut,
    ffi::{CStr, CString, OsString, c_int},
    io::IoSlice,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};
use table::{Entry, FILES, File, HIDDEN_FLAGS};

/// What the environment says.
struct Config {
    address: Address,
    patterns: Vec<CString>,
}

static CONFIG: OnceLock<Config> = OnceLock::new();
/// In a forked child: nothing of the session may be touched.
static FORKED: AtomicBool = AtomicBool::new(false);
/// Nothing is absorbed any more.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// Held while a file begins or ends to be absorbed: its holder alone talks to the supervisor and expects an answer.
static REGISTRY: Mutex<()> = Mutex::new(());
/// Files that were retired: they stay plain. The last lock.
static RETIRED: Mutex<Vec<Key>> = Mutex::new(Vec::new());

/// Reads the supervisor's address and the profile's patterns from the environment. Called once, by the library's constructor;
/// before it, and without a supervisor, nothing is absorbed.
pub fn start() {
    let read = || {
        let socket = std::env::var_os(ENV_SOCKET)?.into_vec();
        let token = std::env::var(ENV_TOKEN).ok()?.parse().ok()?;
        let patterns = std::env::var_os(ENV_ABSORB)?;
        let patterns = patterns
            .as_bytes()
            .split(|byte| *byte == b'\n')
            .filter(|pattern| !pattern.is_empty())
            .filter_map(|pattern| CString::new(pattern).ok())
            .collect();
        Some(Config {
            address: Address { socket, token },
            patterns,
        })
    };
    sys::note_process();
    if let Some(config) = read() {
        let _ = CONFIG.set(config);
    }
}

/// True if writes to `fd` go to the pool as well, or if its flags are not what the database believes: then the functions below
/// must be called instead of, or around, the C library's.
#[inline]
#[must_use]
pub fn absorbs(fd: c_int) -> bool {
    table::entry(fd).is_some()
}

/// True if `fd` is one of the client's own (its connection, the pool), which the database knows nothing of: closing it
/// or anything over it is refused with `EBADF`.
#[must_use]
pub fn is_own(fd: c_int) -> bool {
    session::is_own(fd)
}

/// Writes `parts` to an absorbed `fd`, at `offset` or, with `None`, at the file position, as `pwritev2` with `flags` (`RWF_…`) does,
/// and to the pool: when this returns, what was written is durable as soon as a sync says so. Not a cancellation point.
///
/// # Errors
/// The kernel's.
pub fn write(
    fd: c_int,
    parts: &[IoSlice<'_>],
    offset: Option<u64>,
    flags: c_int,
) -> Result<usize, Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    loop {
        let Some(entry) = table::entry(fd) else {
            return kernel_write(raw, parts, offset, flags);
        };
        let synchronous = entry.hidden() & libc::O_DSYNC != 0;
        let Some(number) = entry.file() else {
            let flags = if synchronous {
                flags | libc::RWF_DSYNC
            } else {
                flags
            };
            return kernel_write(raw, parts, offset, flags);
        };
        if FORKED.load(Relaxed) {
            leave(raw, number);
            continue;
        }
        let Some(session) = session::current() else {
            return kernel_write(raw, parts, offset, flags);
        };
        if session.page.files[number].retire.load(Relaxed) != 0 {
            // If it cannot be retired, its writes are unlogged, and its syncs are real.
            if retire_file(session, number).is_err() {
                FILES[number].unlogged.store(true, Release);
                session.page.files[number].retire.store(0, Relaxed);
            }
            continue;
        }
        let guard = FILES[number].file.lock();
        if table::entry(fd) != Some(entry) {
            continue;
        }
        let Ok(mut cell) = guard.try_borrow_mut() else {
            // A signal handler, in the middle of a write of the same thread to the same file: which of the two the kernel has first is
            // not for us to say.
            FILES[number].unlogged.store(true, Release);
            return kernel_write(raw, parts, offset, flags);
        };
        let Some(file) = &mut *cell else {
            return kernel_write(raw, parts, offset, flags);
        };
        let written = kernel_write(raw, parts, offset, flags)?;
        if written > 0 {
            match place(raw, entry, offset, flags, written) {
                Ok(at) => session.log_write(number, file, at, parts, written),
                Err(_) => FILES[number].unlogged.store(true, Release),
            }
        }
        drop(cell);
        drop(guard);
        if synchronous && FILES[number].unlogged.load(Relaxed) {
            sync(fd)?;
        }
        return Ok(written);
    }
}

/// Where in the file the kernel put the last `written` bytes.
fn place(
    fd: BorrowedFd<'_>,
    entry: Entry,
    offset: Option<u64>,
    flags: c_int,
    written: usize,
) -> Result<u64, Errno> {
    /// `RWF_NOAPPEND`, which is younger than the C library's headers.
    const NOAPPEND: c_int = 0x20;
    let appends = (entry.append() || flags & libc::RWF_APPEND != 0) && flags & NOAPPEND == 0;
    let end = match offset {
        None => rustix::fs::tell(fd)?,
        Some(offset) if !appends => return Ok(offset),
        // Linux appends also what is written at an offset, if the descriptor appends.
        Some(_) => u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0),
    };
    Ok(end.saturating_sub(written as u64))
}

fn kernel_write(
    fd: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    offset: Option<u64>,
    flags: c_int,
) -> Result<usize, Errno> {
    match (parts, offset) {
        ([part], None) if flags == 0 => rustix::io::write(fd, part),
        ([part], Some(offset)) if flags == 0 => rustix::io::pwrite(fd, part, offset),
        (parts, None) if flags == 0 => rustix::io::writev(fd, parts),
        (parts, Some(offset)) if flags == 0 => rustix::io::pwritev(fd, parts, offset),
        (parts, offset) => {
            let flags = ReadWriteFlags::from_bits_retain(flags as u32);
            rustix::io::pwritev2(fd, parts, offset.unwrap_or(u64::MAX), flags)
        }
    }
}

/// `fsync`, `fdatasync`, `sync_file_range`, `msync` of an absorbed `fd`: everything that was written to it is durable when this
/// returns.
///
/// # Errors
/// The kernel's, if the file cannot be synced.
pub fn sync(fd: c_int) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let (number, session) = match (table::entry(fd).and_then(Entry::file), session::current()) {
        (Some(number), Some(session)) if !FORKED.load(Relaxed) => (number, session),
        _ => return rustix::fs::fsync(raw),
    };
    let shared = &session.page.files[number];
    shared.syncs.fetch_add(1, Relaxed);
    if FILES[number].unlogged.load(Acquire) {
        session.settle()?;
        let guard = FILES[number].file.lock();
        rustix::fs::fsync(raw)?;
        FILES[number].unlogged.store(false, Release);
        drop(guard);
    } else if shared.errno.load(Relaxed) != 0 {
        session.settle()?;
    }
    if shared.retire.load(Relaxed) != 0 {
        return retire_file(session, number);
    }
    Ok(())
}

/// Does `call` while nobody moves the file position of an absorbed `fd`: for `read`, `readv`, `lseek`.
pub fn at_position<T>(fd: c_int, call: impl FnOnce() -> T) -> T {
    let number = table::entry(fd).and_then(Entry::file);
    let _guard = match number {
        Some(number) if !FORKED.load(Relaxed) => Some(FILES[number].file.lock()),
        _ => None,
    };
    call()
}

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
    let mut known = existing.and_then(|file| find(file));
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
        known = find(key);
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
fn restore_flags(fd: c_int, flags: c_int) {
    let Some(raw) = sys::borrow(fd) else { return };
    let path = format!("/proc/self/fd/{fd}");
    let again = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW);
    let reopened = rustix::fs::open(path, OFlags::from_bits_retain(again as u32), Mode::empty());
    let cloexec = flags & libc::O_CLOEXEC != 0;
    if reopened.is_err() || sys::replace(raw, reopened, cloexec).is_err() {
        // Then at least what they ask for is emulated.
        table::set_entry(fd, Some(Entry::new(None, flags)));
    }
}

/// Device and inode.
type Key = (u64, u64);

fn key(stat: &Stat) -> Key {
    (stat.st_dev, stat.st_ino)
}

fn stat_at(dir: c_int, path: &CStr, flags: AtFlags) -> Option<Key> {
    let stat = rustix::fs::statat(sys::directory(dir), path, flags).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| key(&stat))
}

fn regular(fd: BorrowedFd<'_>) -> Result<(Stat, Key), Errno> {
    let stat = rustix::fs::fstat(fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let key = key(&stat);
    Ok((stat, key))
}

/// True if a pattern names the file: one with a slash in it the end of the path, another its last part.
fn wanted(config: &Config, path: &CStr) -> bool {
    let bytes = path.to_bytes_with_nul();
    config.patterns.iter().any(|pattern| {
        let slashes = pattern.to_bytes().iter().filter(|b| **b == b'/').count();
        let from = bytes.iter().enumerate().rev().filter(|(_, b)| **b == b'/');
        let from = from.map(|(at, _)| at + 1).nth(slashes).unwrap_or(0);
        let name = CStr::from_bytes_with_nul(&bytes[from..]).unwrap_or(c"");
        sys::matches(pattern, name, libc::FNM_PATHNAME)
    })
}

/// The number of the absorbed file with this key. Under the registry's lock.
fn find(wanted: Key) -> Option<usize> {
    session::current()?;
    (0..FILES_MAX).find(|number| {
        let guard = FILES[*number].file.lock();
        let cell = guard.try_borrow();
        cell.is_ok_and(|cell| cell.as_ref().is_some_and(|f| (f.dev, f.ino) == wanted))
    })
}

/// Begins to absorb a file that is open as `fd`: its number.
fn register(
    config: &Config,
    fd: BorrowedFd<'_>,
    stat: &Stat,
    (dev, ino): Key,
) -> Result<usize, Errno> {
    if RETIRED.lock().contains(&(dev, ino)) || stat.st_nlink == 0 {
        return Err(Errno::PERM);
    }
    let session = session::begin(&config.address).map_err(|why| {
        GIVEN_UP.store(true, Release);
        sys::complain(&format!("files stay plain: {why}"));
        Errno::NOTCONN
    })?;
    let identity = identity::of(fd)?;
    let path = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
    let path = path.into_bytes();
    reclaim(session);
    let number = match free() {
        Some(number) => number,
        None => {
            session.drain()?;
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
    });
    Ok(number)
}

fn free() -> Option<usize> {
    (0..FILES_MAX).find(|number| {
        let guard = FILES[*number].file.lock();
        guard.try_borrow().is_ok_and(|cell| cell.is_none())
    })
}

/// Frees the numbers of files that are closed and drained. Under the registry's lock.
fn reclaim(session: &Session) {
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

/// The end of a file of which the lane holds nothing.
fn forget(session: &Session, number: usize, cell: &mut RefMut<'_, Option<File>>) {
    **cell = None;
    session.tell(&Request::Forget {
        file: number as u32,
    });
}

/// True if this process has another descriptor of the file, for writing, which would go round the lane.
fn written_elsewhere(fd: BorrowedFd<'_>, file: Key) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
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

/// Before `fd` is closed, or something else is put in its place (`dup2`).
pub fn closing(fd: c_int) {
    let Some(entry) = table::entry(fd) else {
        return;
    };
    // A vforked child shares our memory, but not our descriptors.
    if sys::in_vforked_child() {
        return;
    }
    if let Some(number) = entry.file()
        && !FORKED.load(Relaxed)
    {
        let guard = FILES[number].file.lock();
        if let Ok(mut cell) = guard.try_borrow_mut()
            && let Some(file) = &mut *cell
        {
            file.descriptors = file.descriptors.saturating_sub(1);
        }
    }
    table::set_entry(fd, None);
}

/// After `to` became a duplicate of `from`.
pub fn duplicated(from: c_int, to: c_int) {
    let Some(entry) = table::entry(from) else {
        return;
    };
    if from == to || sys::in_vforked_child() {
        return;
    }
    let Some(number) = entry.file() else {
        table::set_entry(to, Some(entry));
        return;
    };
    if FORKED.load(Relaxed) {
        table::set_entry(to, Some(entry));
        return;
    }
    let guard = FILES[number].file.lock();
    if let Ok(mut cell) = guard.try_borrow_mut()
        && let Some(file) = &mut *cell
        && table::set_entry(to, Some(entry))
    {
        file.descriptors += 1;
        return;
    }
    drop(guard);
    // A number too large for the table would write round the lane.
    if let Some(session) = session::current() {
        let _ = retire_file(session, number);
    }
}

/// After `fcntl(F_SETFL)` changed the flags of an absorbed `fd`.
pub fn flags_changed(fd: c_int, flags: c_int) {
    let Some(entry) = table::entry(fd) else {
        return;
    };
    let flags = entry.hidden() | flags & libc::O_APPEND;
    match entry.file() {
        // Duplicates share their flags.
        Some(number) if !FORKED.load(Relaxed) => {
            for (fd, _) in table::descriptors_of(number) {
                table::set_entry(fd, Some(Entry::new(Some(number), flags)));
            }
        }
        file => {
            table::set_entry(fd, Some(Entry::new(file, flags)));
        }
    }
}

/// `ftruncate` of an absorbed `fd`.
///
/// # Errors
/// The kernel's.
pub fn truncate(fd: c_int, bytes: u64) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let real = || rustix::fs::ftruncate(raw, bytes);
    match table::entry(fd).and_then(Entry::file) {
        Some(number) if FORKED.load(Relaxed) => {
            leave(raw, number);
            real()
        }
        Some(number) => truncate_file(number, bytes, real),
        None => real(),
    }
}

fn truncate_file(
    number: usize,
    bytes: u64,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let guard = FILES[number].file.lock();
    real()?;
    match (guard.try_borrow_mut(), session::current()) {
        (Ok(mut cell), Some(session)) => {
            if let Some(file) = &mut *cell {
                session.log_head(number, file, KIND_TRUNCATE, bytes);
            }
        }
        _ => FILES[number].unlogged.store(true, Release),
    }
    Ok(())
}

/// Truncates by path: `real` does it. Logged if the file is absorbed.
///
/// # Errors
/// The kernel's.
pub fn truncate_path(
    path: &CStr,
    bytes: u64,
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match named(libc::AT_FDCWD, path, AtFlags::empty()) {
        Some(Named::Ours(number)) => truncate_file(number, bytes, real),
        Some(Named::Foreign((dev, ino))) => {
            if let Some(config) = CONFIG.get() {
                let _ = config.address.foreign(dev, ino);
            }
            real()
        }
        None => real(),
    }
}

/// A file that somebody may absorb.
enum Named {
    Ours(usize),
    /// We are a forked child, or the name is one that others may absorb.
    Foreign(Key),
}

fn named(dir: c_int, path: &CStr, flags: AtFlags) -> Option<Named> {
    let config = CONFIG.get()?;
    let forked = FORKED.load(Relaxed);
    if !forked && session::current().is_none() && !wanted(config, path) {
        return None;
    }
    let key = stat_at(dir, path, flags)?;
    if !forked {
        let _registry = REGISTRY.lock();
        if let Some(number) = find(key) {
            return Some(Named::Ours(number));
        }
    }
    wanted(config, path).then_some(Named::Foreign(key))
}

/// Before an absorbed `fd`'s file is changed in a way that is not logged (shared writable mapping, `copy_file_range`, `sendfile` or
/// `splice` into it, `fallocate` that changes data, stdio, asynchronous I/O): everything in the pool is drained; from then on
/// the file is plain.
///
/// # Errors
/// If it cannot be drained: then the change must not be made.
pub fn retire(fd: c_int) -> Result<(), Errno> {
    let Some(number) = table::entry(fd).and_then(Entry::file) else {
        return Ok(());
    };
    if FORKED.load(Relaxed) {
        if let Some(raw) = sys::borrow(fd) {
            leave(raw, number);
        }
        return Ok(());
    }
    session::current().map_or(Ok(()), |session| retire_file(session, number))
}

/// As [`retire`], of the file at a path, if it is absorbed: before stdio opens it for writing.
///
/// # Errors
/// As [`retire`].
pub fn retire_path(dir: c_int, path: &CStr) -> Result<(), Errno> {
    match (named(dir, path, AtFlags::empty()), session::current()) {
        (Some(Named::Ours(number)), Some(session)) => retire_file(session, number),
        (Some(Named::Foreign((dev, ino))), _) => {
            if let Some(config) = CONFIG.get() {
                let _ = config.address.foreign(dev, ino);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Drains the lane, and lets the file be plain.
fn retire_file(session: &Session, number: usize) -> Result<(), Errno> {
    let guard = FILES[number].file.lock();
    let Ok(mut cell) = guard.try_borrow_mut() else {
        return Err(Errno::DEADLK);
    };
    let Some(file) = &*cell else { return Ok(()) };
    session.drain()?;
    if FILES[number].unlogged.load(Acquire) {
        let descriptor = table::descriptors_of(number).next();
        if let Some(fd) = descriptor.and_then(|(fd, _)| sys::borrow(fd)) {
            rustix::fs::fsync(fd)?;
        }
        FILES[number].unlogged.store(false, Release);
    }
    RETIRED.lock().push((file.dev, file.ino));
    for (fd, entry) in table::descriptors_of(number) {
        table::set_entry(fd, entry.plain());
    }
    session.page.files[number].retire.store(0, Relaxed);
    forget(session, number, &mut cell);
    Ok(())
}

/// Renames: `real` does it. `from` may be absorbed, and so may what `to` replaces.
///
/// # Errors
/// The kernel's.
pub fn rename(
    from: (c_int, &CStr),
    to: (c_int, &CStr),
    real: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (Some(session), false) = (session::current(), FORKED.load(Relaxed)) else {
        return real();
    };
    let renamed = ours(from);
    // Another name of the same file replaces nothing.
    let replaced = ours(to).filter(|replaced| renamed.is_none_or(|renamed| renamed.0 != replaced.0));
    if let Some((number, _)) = replaced {
        with_file(number, |file| session.log_head(number, file, KIND_GONE, 0));
    }
    let unlinked = |done: &Result<(), Errno>| {
        if let (Ok(()), Some((number, true))) = (done, replaced) {
            tell_unlinked(session, number, to);
        }
    };
    let Some((number, _)) = renamed else {
        let done = real();
        unlinked(&done);
        return done;
    };
    let target = absolute(to);
    let mut old = PathBuf::new();
    // It may have either name after a crash.
    with_file(number, |file| {
        old = std::mem::replace(&mut file.path, target);
        session.log_name(number, file);
    });
    let done = real();
    if done.is_err() {
        with_file(number, |file| {
            file.path = old;
            session.log_name(number, file);
        });
    }
    unlinked(&done);
    done
}

fn with_file(number: usize, change: impl FnOnce(&mut File)) {
    let guard = FILES[number].file.lock();
    if let Ok(mut cell) = guard.try_borrow_mut()
        && let Some(file) = &mut *cell
    {
        change(file);
    }
}

/// The path, from the root.
fn absolute((dir, path): (c_int, &CStr)) -> PathBuf {
    let path = PathBuf::from(OsString::from_vec(path.to_bytes().to_vec()));
    if path.is_absolute() {
        return path;
    }
    let base = match sys::borrow(dir) {
        Some(dir) => std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())),
        None => std::env::current_dir(),
    };
    base.unwrap_or_default().join(path)
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
    let (Some(session), false) = (session::current(), FORKED.load(Relaxed)) else {
        return real();
    };
    let Some((number, last_name)) = ours((dir, path)) else {
        return real();
    };
    // Before: if the machine stops now, the file may be there or not.
    with_file(number, |file| session.log_head(number, file, KIND_GONE, 0));
    real()?;
    if last_name {
        tell_unlinked(session, number, (dir, path));
    }
    Ok(())
}

/// The absorbed file that has this name, and whether it has no other.
fn ours((dir, path): (c_int, &CStr)) -> Option<(usize, bool)> {
    let stat = rustix::fs::statat(sys::directory(dir), path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let _registry = REGISTRY.lock();
    Some((find(key(&stat))?, stat.st_nlink == 1))
}

fn tell_unlinked(session: &Session, number: usize, name: (c_int, &CStr)) {
    session.tell(&Request::Unlinked {
        file: number as u32,
        path: absolute(name).into_os_string().into_vec(),
    });
}

/// The status flags (`O_SYNC`, `O_DSYNC`, `O_DIRECT`) that `fcntl(F_GETFL)` of an absorbed `fd` must show beside the kernel's.
#[must_use]
pub fn hidden_flags(fd: c_int) -> c_int {
    table::entry(fd).map_or(0, Entry::hidden)
}

/// In a forked child, before `fork` returns there: nothing is absorbed by it any more. The locks are as the parent's threads left
/// them, so none is taken. A child of a process that absorbed nothing yet (a daemon on its way into the background) is a process
/// like any other.
pub fn forked() {
    sys::note_process();
    if session::current().is_none() && REGISTRY.try_lock().is_some() {
        return;
    }
    FORKED.store(true, Release);
    session::close_own();
}

/// In a forked child: `fd`, inherited, is about to be written to. Whoever absorbs the file lets it be plain; so do we.
fn leave(fd: BorrowedFd<'_>, number: usize) {
    if let (Some(config), Ok((_, (dev, ino)))) = (CONFIG.get(), regular(fd)) {
        // Without a supervisor the parent may be writing to the lane still, and cannot be told.
        let _ = config.address.foreign(dev, ino);
    }
    for (fd, entry) in table::descriptors_of(number) {
        table::set_entry(fd, entry.plain());
    }
}

/// Retires every file and absorbs none from now on: the database does something that cannot be followed (`io_uring`).
pub fn give_up(reason: &'static str) {
    if GIVEN_UP.swap(true, AcqRel) || FORKED.load(Relaxed) {
        return;
    }
    if let Some(session) = session::current() {
        sys::complain(&format!("files are plain from now on: {reason}"));
        for number in 0..FILES_MAX {
            if retire_file(session, number).is_err() {
                FILES[number].unlogged.store(true, Release);
            }
        }
    }
}

/// Before the process exits in the normal way.
pub fn exiting() {
    if let Some(session) = session::current()
        && !FORKED.load(Relaxed)
    {
        session.end();
    }
}
