//! Opening: the choice of files to absorb, and the beginning of it. docs/files-membership.md,
//! "Absorbing a file".

use super::{
    bypass,
    call_depth::interrupted,
    config::{CONFIG, ClientConfig},
    descriptors::{close_again, closing, is_new},
    direct_io::entry_of,
    fd_table::{self, FdEntry, HIDDEN_FLAGS},
    in_signal_handler,
    lookup::{self, AbsorbedNumber, FileKey, NOT_REGULAR, regular},
    membership,
    names::note_kept,
    process::{hold_to_open, process},
    session::{self, MemberSession, is_absorbing},
    size::{truncate_file, truncate_opened},
};
use crate::{
    policy,
    shared::Lock,
    sys::{self, writes},
    wire::ClientRequest,
};
use forebay_pool::with_room;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags},
    io::Errno,
};
use std::{
    ffi::{CStr, CString, c_int},
    os::fd::BorrowedFd,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

/// The longest time that another process may take to open a file that is to be absorbed, before
/// this one does not wait for it any more.
const OPENING_WAIT: Duration = Duration::from_secs(10);

/// Opens a file: `real` opens it with the flags it is given. Those may lack `O_SYNC`, `O_DSYNC`,
/// `O_DIRECT` and `O_TRUNC`, if the file is to be absorbed. The descriptor is absorbed when this
/// returns, if it is for writing and the run absorbs the file already, by whatever name; or if the
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
        Some(config) if (writes(flags) || flags & libc::O_TRUNC != 0) && flags & plain == 0 => {
            config
        }
        _ => return real(flags),
    };
    let is_vforked = sys::in_vforked_child();
    let mut real = |flags| {
        real(flags).inspect(|fd| match is_vforked {
            true => fd_table::differs_in_child(*fd),
            false => is_new(*fd),
        })
    };
    if interrupted() {
        return in_signal_handler::open(config, (dir, path), flags, real);
    }
    if is_vforked {
        // Its descriptor is not our table's, nor its process a member.
        return open_plainly(config, dir, path, flags, &mut real);
    }
    let is_wanted = wanted(config, path);
    let found = match is_wanted || is_absorbing() {
        true => PathTarget::at(dir, path, flags),
        false => PathTarget::Other,
    };
    let existing = match found {
        PathTarget::Other => return open_plainly(config, dir, path, flags, &mut real),
        PathTarget::File(key) => Some(key),
        PathTarget::Nothing => None,
    };
    let session = match is_wanted && writes(flags) {
        true => session::member(config),
        false => session::current(),
    };
    let known = session.and_then(|session| {
        let (number, stamp) = session.find(existing?)?;
        Some((number, stamp.generation))
    });
    if let Some(session) = session.filter(|_| writes(flags) && membership::may_join())
        && (known.is_some() || is_wanted)
    {
        let opening = OpeningLock::of(session, path, known.is_some());
        return with_room(|| {
            let found = (path, opening);
            open_to_absorb((config, session), found, existing, flags, &mut real)
        });
    }
    if let (Some(number), Some(key)) = (known, existing.filter(|_| !writes(flags))) {
        return open_to_truncate(number, key, flags, &mut real);
    }
    let fd = open_plainly(config, dir, path, flags, &mut real)?;
    if is_wanted {
        tell_plain(config, fd, path);
    }
    Ok(fd)
}

/// Opens the absorbed file with this number for reading, and truncates it.
fn open_to_truncate(
    number: AbsorbedNumber,
    key: FileKey,
    flags: c_int,
    real: &mut impl FnMut(c_int) -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    let fd = real(flags & !libc::O_TRUNC)?;
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let is_it = || regular(raw).is_ok_and(|(_, opened)| opened == key);
    let truncate = || sys::truncate_open(raw);
    let truncated =
        truncate_file(number, Some(raw), is_it, 0, truncate).and_then(|done| match done {
            Some(()) => Ok(()),
            // Another took the name meanwhile, or it is absorbed no longer.
            None => truncate(),
        });
    truncated
        .map(|()| fd)
        .map_err(|errno| close_again(fd, errno))
}

/// The target of a path, before it is opened.
enum PathTarget {
    Nothing,
    File(FileKey),
    /// Something that is never absorbed, or whose truncation the kernel is to refuse.
    Other,
}

impl PathTarget {
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

/// Held from before a file is opened that may be absorbed, until that is decided: of all processes
/// of the run that open one of this name.
struct OpeningLock(&'static Lock);

impl OpeningLock {
    /// None if the run absorbs the file already, which is joined, not registered: its open waits
    /// for no other one. Nor is one waited for that takes too long: it may wait for
    /// a lease, or a server, or a disk.
    fn of(session: &'static MemberSession, path: &CStr, is_known: bool) -> Option<Self> {
        let lock = session.page.opening(path.to_bytes());
        let taken = !is_known && lock.take_for(session.number, OPENING_WAIT);
        taken.then_some(Self(lock))
    }
}

impl Drop for OpeningLock {
    fn drop(&mut self) {
        self.0.free();
    }
}

/// Opens a file for writing without what its flags do to the file, absorbs it, and does that then.
fn open_to_absorb(
    (config, session): (&ClientConfig, &'static MemberSession),
    (path, opening): (&CStr, Option<OpeningLock>),
    existing: Option<FileKey>,
    flags: c_int,
    real: &mut impl FnMut(c_int) -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    // With O_EXCL there is nothing to be truncated.
    let truncates = flags & libc::O_TRUNC != 0 && flags & libc::O_EXCL == 0;
    let taken = HIDDEN_FLAGS | if truncates { libc::O_TRUNC } else { 0 };
    let fd = real(flags & !taken)?;
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    let (stat, key) = match regular(raw) {
        Ok(found) => found,
        // Something else took the name meanwhile, which is not truncated.
        Err(NOT_REGULAR) => {
            emulate(fd, flags);
            return Ok(fd);
        }
        // It may be absorbed, and may have been to be truncated: it is not the program's to change
        // as long as that is not known.
        Err(errno) => return Err(close_again(fd, errno)),
    };
    let truncates = truncates && (existing.is_some() || stat.st_size > 0);
    let absorbed = absorb(session, fd, flags, &stat, key);
    drop(opening);
    if absorbed == Err(TOO_LONG_PATH) {
        tell_too_long(config, path);
    }
    if absorbed == Err(NO_PATH) {
        membership::stays_plain_for(
            "the process cannot see /proc, by which a file's path is found (a chroot, or a mount \
             namespace without it): mount it there",
        );
        tell_plain(config, fd, path);
    }
    let is_plain = absorbed.is_err();
    let may_change = match absorbed {
        Ok(()) => Ok(()),
        Err(Errno::IO) => Err(Errno::IO),
        // Also of one that the supervisor refuses: another process may be having it registered, if
        // this one did not wait for that.
        Err(_) => config.claim_open(fd),
    };
    // Only now: until then another process may have records of it.
    let opened = may_change.and_then(|()| match truncates {
        true => truncate_opened(fd),
        false => Ok(()),
    });
    if let Err(errno) = opened {
        closing(fd);
        return Err(close_again(fd, errno));
    }
    if is_plain && flags & HIDDEN_FLAGS != 0 {
        emulate(fd, flags);
    }
    Ok(fd)
}

/// Opens a file that stays plain here: another process that absorbs it lets go of it, before it is
/// truncated and before it is written to.
fn open_plainly(
    config: &ClientConfig,
    dir: c_int,
    path: &CStr,
    flags: c_int,
    real: &mut impl FnMut(c_int) -> Result<c_int, Errno>,
) -> Result<c_int, Errno> {
    // Who takes the lane over writes a file's bytes again if it is open nowhere: also not here.
    if flags & libc::O_TRUNC != 0 || config.orphaned().is_some() {
        config.claim_at(dir, path)?;
    }
    claimed(config, real(flags)?)
}

/// A descriptor that was opened just now, when no other process absorbs its file any more.
fn claimed(config: &ClientConfig, fd: c_int) -> Result<c_int, Errno> {
    match config.claim_open(fd) {
        Ok(()) => Ok(fd),
        Err(errno) => Err(close_again(fd, errno)),
    }
}

/// Says once why the files that the profile names stay plain in this process, if that is this
/// process's own doing.
fn tell_plain(config: &ClientConfig, fd: c_int, name: &CStr) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let Some(reason) = membership::plain_for() else {
        return;
    };
    let path = sys::borrow(fd).and_then(|fd| {
        regular(fd).ok()?;
        let path = rustix::fs::readlink(sys::link_of(fd), Vec::new());
        Some(path.unwrap_or_else(|_| name.to_owned()))
    });
    let Some(path) = path else { return };
    if !TOLD.swap(true, Relaxed) {
        let shown = path.to_string_lossy();
        sys::complain(&format!(
            "{shown} stays plain, as all files of this process: {reason}"
        ));
        config.address.tell(&ClientRequest::Plain {
            token: config.address.token,
            path: path.into_bytes(),
            reason,
        });
    }
}

/// Says that a file stays plain whose path is too long for the kernel to say.
fn tell_too_long(config: &ClientConfig, name: &CStr) {
    const REASON: &str =
        "its path is longer than the kernel says (4,095 bytes): move the file to a shorter one";
    let shown = name.to_string_lossy();
    sys::complain_repeated(REASON, &format!("{shown} stays plain: {REASON}"));
    config.address.tell(&ClientRequest::Plain {
        token: config.address.token,
        path: name.to_bytes().to_vec(),
        reason: REASON.to_owned(),
    });
}

/// The path of an open file cannot be found.
const NO_PATH: Errno = Errno::NOTDIR;
/// It is longer than the kernel says.
const TOO_LONG_PATH: Errno = Errno::NAMETOOLONG;

/// Makes `fd`, just opened for writing, absorbed; `EBUSY` if the supervisor refuses, `EIO` if it
/// must not be written to.
fn absorb(
    session: &'static MemberSession,
    fd: c_int,
    flags: c_int,
    stat: &Stat,
    key: FileKey,
) -> Result<(), Errno> {
    let raw = sys::borrow(fd).ok_or(Errno::BADF)?;
    if session.is_orphan() {
        return Err(Errno::NOTCONN);
    }
    // It would be written to round the lane.
    if fd_table::must_be_plain(fd) {
        return Err(Errno::PERM);
    }
    // It may be made plain in between; then it stays so.
    for _ in 0..2 {
        let (number, generation) = match session.find(key) {
            Some((number, stamp)) => (number, stamp.generation),
            None if stat.st_nlink == 0 => return Err(Errno::PERM),
            None => {
                // Its name stays until it is known to the run.
                let _registry = process().registry.lock();
                let path = rustix::fs::readlink(sys::link_of(raw), Vec::new());
                let path = path.map_err(|errno| match errno {
                    TOO_LONG_PATH => errno,
                    _ => NO_PATH,
                })?;
                session.register(raw, path.into_bytes())?
            }
        };
        let Some(held) = hold_to_open(session, number, generation)? else {
            continue;
        };
        // The lane may be full of a file that cannot be synced. Then it says of this one, as the
        // page does, that it may be gone, until the next process that opens or names it logs that
        // it is not.
        let _ = note_kept(&held, raw);
        fd_table::set_entry(fd, Some(entry_of(raw, number, flags)));
        drop(held);
        return Ok(());
    }
    Err(Errno::BUSY)
}

/// Gives `fd` what the flags ask for that were taken from it in vain. It is not opened again:
/// closing a descriptor of a file would drop the program's POSIX locks on it.
fn emulate(fd: c_int, flags: c_int) {
    let Some(raw) = sys::borrow(fd) else { return };
    let mut hidden = flags;
    if flags & libc::O_DIRECT != 0
        && let Ok(now) = rustix::fs::fcntl_getfl(raw)
        && rustix::fs::fcntl_setfl(raw, now | OFlags::DIRECT).is_ok()
    {
        hidden &= !libc::O_DIRECT;
    }
    if hidden & HIDDEN_FLAGS != 0 && !fd_table::set_entry(fd, Some(FdEntry::new(None, hidden))) {
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

/// True if a pattern names the file, and it is to be written to.
#[must_use]
pub fn is_wanted(path: &CStr, flags: c_int) -> bool {
    CONFIG
        .get()
        .is_some_and(|config| writes(flags) && wanted(config, path))
}

/// True if [`open`] may do more with a file that is opened with these flags than the kernel does:
/// a pattern names it, or the run absorbs it by whatever name.
#[must_use]
pub fn may_open_log(dir: c_int, path: &CStr, flags: c_int) -> bool {
    is_wanted(path, flags)
        || bypass::any_absorbed() && lookup::named(dir, path, AtFlags::empty()).is_some()
}

/// True if a pattern names the file. Neither allocates nor locks.
pub(super) fn wanted(config: &ClientConfig, path: &CStr) -> bool {
    let matches = |pattern: &CString| policy::matches(pattern.to_bytes(), path.to_bytes());
    config.patterns.iter().any(matches)
}
