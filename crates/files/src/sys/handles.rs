//! Files by the handles that the kernel has for them, whatever they are called.
#![expect(unsafe_code, reason = "system calls that no library has")]

use super::last_errno;
use rustix::{fs::OFlags, io::Errno};
use std::{
    ffi::c_int,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// The largest handle that any file system makes (`MAX_HANDLE_SZ`).
const HANDLE_MAX: usize = 128;

#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_MAX],
}

/// Type and bytes of an open file's handle (`name_to_handle_at`).
pub(crate) fn handle_of(fd: BorrowedFd<'_>) -> Result<(i32, Vec<u8>), Errno> {
    let mut handle = FileHandle {
        bytes: HANDLE_MAX as u32,
        kind: 0,
        handle: [0; HANDLE_MAX],
    };
    let mut mount: c_int = 0;
    // SAFETY: `handle` has the layout of `struct file_handle` with room for as many bytes as it
    // says.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            fd.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if done != 0 {
        return Err(last_errno());
    }
    let bytes = (handle.bytes as usize).min(HANDLE_MAX);
    Ok((handle.kind, handle.handle[..bytes].to_vec()))
}

/// Opens a file by its handle on the file system of `mount` (`open_by_handle_at`; needs
/// `CAP_DAC_READ_SEARCH`).
pub(crate) fn open_handle(
    mount: BorrowedFd<'_>,
    kind: i32,
    bytes: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let mut handle = FileHandle {
        bytes: u32::try_from(bytes.len()).map_err(|_| Errno::INVAL)?,
        kind,
        handle: [0; HANDLE_MAX],
    };
    handle
        .handle
        .get_mut(..bytes.len())
        .ok_or(Errno::INVAL)?
        .copy_from_slice(bytes);
    // SAFETY: `handle` has the layout of `struct file_handle` with the bytes it says.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw const handle,
            flags.bits(),
        )
    };
    let fd = c_int::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel made it for us just now.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
