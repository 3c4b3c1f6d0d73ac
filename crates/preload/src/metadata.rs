//! Counts the calls that change a name, a size or an attribute of a file, so that an absorbed sync
//! keeps its order with them ([`forebay_files::client`], docs/files-write.md, "Order with the rest
//! of the file system"). `mkdir`, `symlink`, `chmod`, `setxattr` and the like are hooked for
//! nothing else; other modules call this one for what they hook anyway.
//!
//! As long as the run has absorbed no file, a change costs two loads.
#![expect(unsafe_code, reason = "exports C functions; reads an address")]

use crate::{
    call_context::missing,
    file_status::{device_at, device_of, stat_at, stat_of},
    handler::handlers,
    memory, truncated_fds,
};
use forebay_files::client;
use libc::{
    AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_void, dev_t, gid_t, mode_t, size_t, sockaddr,
    sockaddr_un, socklen_t, ssize_t, uid_t,
};
use std::mem::offset_of;

handlers! {
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: our caller's arguments, here and below.
    else |real| named((AT_FDCWD, path), NOFOLLOW, || unsafe { real(path, mode) });

    fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((dir, path), NOFOLLOW, || unsafe { real(dir, path, mode) });

    fn mkdtemp(template: *mut c_char) -> *mut c_char;
    missing missing(std::ptr::null_mut());
    plain if !client::counts_changes();
    else |real| {
        // SAFETY: as above.
        let made = unsafe { real(template) };
        if !made.is_null() {
            count(device_at(AT_FDCWD, made, NOFOLLOW));
        }
        made
    };

    fn rmdir(path: *const c_char) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| removed((AT_FDCWD, path), || unsafe { real(path) });

    fn symlink(target: *const c_char, path: *const c_char) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), NOFOLLOW, || unsafe { real(target, path) });

    fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((dir, path), NOFOLLOW, || unsafe { real(target, dir, path) });

    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), NOFOLLOW, || unsafe { real(path, mode, device) });

    fn mknodat(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((dir, path), NOFOLLOW, || unsafe { real(dir, path, mode, device) });

    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), NOFOLLOW, || unsafe { real(path, mode) });

    fn mkfifoat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((dir, path), NOFOLLOW, || unsafe { real(dir, path, mode) });

    fn mkstemp(template: *mut c_char) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| made(|| unsafe { real(template) });

    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| made(|| unsafe { real(template, flags) });

    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| made(|| unsafe { real(template, suffix) });

    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| made(|| unsafe { real(template, suffix, flags) });

    fn bind(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    else |real| {
        // SAFETY: as above.
        let result = unsafe { real(socket, address, bytes) };
        if result == 0 && makes_name(address, bytes) {
            count(None);
        }
        result
    };

    fn chmod(path: *const c_char, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), 0, || unsafe { real(path, mode) });

    fn lchmod(path: *const c_char, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), NOFOLLOW, || unsafe { real(path, mode) });

    fn fchmod(fd: c_int, mode: mode_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| open(fd, || unsafe { real(fd, mode) });

    fn fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((dir, path), flags, || unsafe { real(dir, path, mode, flags) });

    fn chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), 0, || unsafe { real(path, user, group) });

    fn lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), NOFOLLOW, || unsafe { real(path, user, group) });

    fn fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| open(fd, || unsafe { real(fd, user, group) });

    fn fchownat(dir: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((dir, path), flags, || unsafe { real(dir, path, user, group, flags) });

    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), 0, || unsafe { real(path, name, value, bytes, flags) });

    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), NOFOLLOW, || unsafe { real(path, name, value, bytes, flags) });

    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| open(fd, || unsafe { real(fd, name, value, bytes, flags) });

    fn removexattr(path: *const c_char, name: *const c_char) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), 0, || unsafe { real(path, name) });

    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| named((AT_FDCWD, path), NOFOLLOW, || unsafe { real(path, name) });

    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int;
    missing missing(-1);
    plain if !client::counts_changes();
    // SAFETY: as above.
    else |real| open(fd, || unsafe { real(fd, name) });
}

const NOFOLLOW: c_int = AT_SYMLINK_NOFOLLOW;

/// Counts a change on a device; where that is not known, on all.
pub(crate) fn count(device: Option<u64>) {
    client::changed_on(device);
}

/// Does `real`, a call that a signal handler makes above the client: where it changes something is
/// not asked.
pub(crate) fn somewhere(real: impl FnOnce() -> c_int) -> c_int {
    let result = real();
    if result >= 0 && client::counts_changes() {
        count(None);
    }
    result
}

/// Calls `real`, which makes or changes the file with this name.
pub(crate) fn named(
    (dir, path): (c_int, *const c_char),
    flags: c_int,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let result = real();
    if result == 0 && client::counts_changes() {
        count(device_at(dir, path, flags));
    }
    result
}

/// Calls `real`, which removes the file with this name.
pub(crate) fn removed((dir, path): (c_int, *const c_char), real: impl FnOnce() -> c_int) -> c_int {
    if !client::counts_changes() {
        return real();
    }
    let device = device_at(dir, path, NOFOLLOW);
    let result = real();
    if result == 0 {
        count(device);
    }
    result
}

/// Calls `real`, which changes the file that is open as `fd`.
pub(crate) fn open(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let result = real();
    if result == 0 && client::counts_changes() {
        count(device_of(fd));
    }
    result
}

/// Does `real`, which makes a file and opens it.
fn made(real: impl FnOnce() -> c_int) -> c_int {
    let fd = real();
    if fd >= 0 {
        count(device_of(fd));
    }
    fd
}

/// Changes of an opening beside the written bytes: it is known when it has been done if it makes a
/// name, or takes away bytes.
pub(crate) struct MayCreate {
    /// The file's size before; none if it was not there.
    before: Option<u64>,
    flags: c_int,
}

/// Before a file is opened with these flags. None if that changes no name and no size.
pub(crate) fn before_open(dir: c_int, path: *const c_char, flags: c_int) -> Option<MayCreate> {
    let may_change = flags & (libc::O_CREAT | libc::O_TRUNC) != 0 && flags & libc::O_PATH == 0;
    if !may_change || !client::counts_changes() {
        return None;
    }
    let is_new = flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL;
    let before = match is_new {
        true => None,
        false => stat_at(dir, path, 0).map(|stat| stat.st_size.unsigned_abs()),
    };
    Some(MayCreate { before, flags })
}

/// A file was opened as `fd`.
pub(crate) fn opened(before: Option<MayCreate>, fd: c_int) {
    let Some(MayCreate { before, flags }) = before.filter(|_| fd >= 0) else {
        return;
    };
    let is_changed = match before {
        None => flags & libc::O_CREAT != 0,
        Some(bytes) => bytes > 0 && flags & libc::O_TRUNC != 0,
    };
    if is_changed {
        count(device_of(fd));
    }
    if before.is_some() && flags & libc::O_TRUNC != 0 {
        truncated_fds::mark(fd);
    }
}

/// The file that is open as `fd` was cut to nothing by it, after it had been opened.
pub(crate) fn cut_off(fd: c_int) {
    if client::counts_changes() {
        count(device_of(fd));
        truncated_fds::mark(fd);
    }
}

/// Does `real`, and counts it if it changes the size of `fd`, or its blocks.
pub(crate) fn resized(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let size = || stat_of(fd).map(|stat| (stat.st_size, stat.st_blocks));
    let before = size();
    let result = real();
    if result != 0 {
        return result;
    }
    let after = size();
    if before.is_none() || after != before {
        count(device_of(fd));
    }
    if after
        .zip(before)
        .is_some_and(|((now, _), (then, _))| now < then)
    {
        truncated_fds::mark(fd);
    }
    result
}

/// Does `real`, an `fallocate` in this mode.
pub(crate) fn allocated(fd: c_int, mode: c_int, real: impl FnOnce() -> c_int) -> c_int {
    match mode {
        0 | libc::FALLOC_FL_KEEP_SIZE => resized(fd, real),
        // Zeroed or unshared, it has as many blocks as before.
        _ => open(fd, real),
    }
}

/// Calls `real`, which copies to `to`, as far as that is open as a file.
pub(crate) fn copied(to: c_int, real: impl FnOnce() -> ssize_t) -> ssize_t {
    let bytes = real();
    let file = || stat_of(to).filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG);
    if bytes > 0
        && let Some(stat) = file()
    {
        count(Some(stat.st_dev));
    }
    bytes
}

/// True if a socket's address is a name in a directory.
fn makes_name(address: *const sockaddr, bytes: socklen_t) -> bool {
    let first = offset_of!(sockaddr_un, sun_path);
    // SAFETY: the kernel has read it; any bytes are numbers.
    let family = unsafe { memory::read(address.cast::<libc::sa_family_t>()) };
    // SAFETY: as above.
    let letter = || unsafe { memory::read(address.cast::<u8>().wrapping_add(first)) };
    family == Some(libc::AF_UNIX as libc::sa_family_t)
        && bytes as usize > first
        && letter() != Some(0)
}
