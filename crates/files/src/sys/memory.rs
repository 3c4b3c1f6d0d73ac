//! Memory of the program's that may not be there.
#![expect(unsafe_code, reason = "a system call that no library has")]

use super::last_errno;
use rustix::io::Errno;
use std::{io::IoSlice, ops::Range};

/// The addresses of a part.
pub(crate) fn range_of(part: &IoSlice<'_>) -> Range<usize> {
    let range = part.as_ptr_range();
    range.start.addr()..range.end.addr()
}

/// A copy of the program's bytes in `parts`, `bytes` bytes, made by the kernel.
///
/// # Errors
/// Not all of it is there, or a filter refuses the call.
pub(crate) fn copy_of(parts: &[IoSlice<'_>], bytes: usize) -> Result<Vec<u8>, Errno> {
    let mut copy = vec![0; bytes];
    let to = libc::iovec {
        iov_base: copy.as_mut_ptr().cast(),
        iov_len: bytes,
    };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: it writes to the copy alone, and reads what it may, or says that it may not. A slice
    // for a write has the layout of an `iovec`.
    let read = unsafe {
        libc::process_vm_readv(
            own,
            &raw const to,
            1,
            parts.as_ptr().cast(),
            parts.len() as _,
            0,
        )
    };
    match usize::try_from(read) {
        Ok(read) if read == bytes => Ok(copy),
        Ok(_) => Err(Errno::FAULT),
        Err(_) => Err(last_errno()),
    }
}

/// False if there is certainly no memory at an address.
pub(crate) fn may_be_read(address: usize) -> bool {
    let mut byte = 0_u8;
    let to = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let from = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: 1,
    };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: it writes to the byte alone, and reads what it may, or says that it may not.
    let read = unsafe { libc::process_vm_readv(own, &raw const to, 1, &raw const from, 1, 0) };
    read >= 0 || last_errno() != Errno::FAULT
}
