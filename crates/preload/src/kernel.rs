//! The kernel, asked by number: for a function that the C library may not have.
#![expect(unsafe_code, reason = "makes system calls")]

use crate::{
    call_context::missing,
    real::{Real, c_name, signature},
};
use libc::{c_int, c_long};

// SAFETY: the signature is that of the manual page.
static SYSCALL: Real<
    signature!((number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long),
> = unsafe { Real::new(c_name!(syscall)) };

/// A system call of at most four arguments, and nothing else.
///
/// # Safety
///
/// As the system call with this number.
pub(crate) unsafe fn call(number: c_long, [a, b, c, d]: [c_long; 4]) -> c_int {
    match SYSCALL.get() {
        // SAFETY: our caller says so.
        Some(real) => unsafe { real(number, a, b, c, d, 0, 0) as c_int },
        None => missing(-1),
    }
}
