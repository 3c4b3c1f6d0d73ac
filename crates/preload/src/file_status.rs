//! The kernel's status of a file, for those that count changes by device.
#![expect(unsafe_code, reason = "asks the kernel")]

use crate::call_context::{errno, set_errno};
use libc::{c_char, c_int};
use std::mem::MaybeUninit;

/// The device of the file with a name. None if the kernel does not say.
pub(crate) fn device_at(dir: c_int, path: *const c_char, flags: c_int) -> Option<u64> {
    stat_at(dir, path, flags).map(|stat| stat.st_dev)
}

/// The device of the file that is open as `fd`.
pub(crate) fn device_of(fd: c_int) -> Option<u64> {
    stat_of(fd).map(|stat| stat.st_dev)
}

/// The status of the file that is open as `fd`. Leaves errno alone.
pub(crate) fn stat_of(fd: c_int) -> Option<libc::stat> {
    // SAFETY: the kernel writes a whole structure, or fails.
    stat_by(|stat| unsafe { libc::fstat(fd, stat) })
}

/// The status of the file with a name; only those flags count that decide the meaning of a name.
/// Leaves errno alone.
pub(crate) fn stat_at(dir: c_int, path: *const c_char, flags: c_int) -> Option<libc::stat> {
    let flags = flags & (libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH);
    // SAFETY: the kernel looks at the path, whatever it is, and writes a whole structure, or fails.
    stat_by(|stat| unsafe { libc::fstatat(dir, path, stat, flags) })
}

fn stat_by(ask: impl FnOnce(*mut libc::stat) -> c_int) -> Option<libc::stat> {
    let before = errno();
    let mut stat = MaybeUninit::uninit();
    let result = ask(stat.as_mut_ptr());
    set_errno(before);
    // SAFETY: the kernel has written it.
    (result == 0).then(|| unsafe { stat.assume_init() })
}
