//! The kernel, asked by number: for a function that the C library may not have, and where a program
//! makes a system call by its number ([`by_number`]).
#![expect(unsafe_code, reason = "makes system calls")]

use crate::{call_context::missing, real::hidden};
use libc::{c_int, c_long, c_uint, c_void, iovec, off_t, ssize_t, timespec};

/// The type of `syscall`.
pub(crate) type SyscallFunction =
    unsafe extern "C-unwind" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// The hidden `syscall`.
pub(crate) fn hidden_syscall() -> Option<SyscallFunction> {
    // SAFETY: the signature is that of the manual page.
    unsafe { hidden::syscall.get() }
}

/// A system call, and nothing else.
///
/// # Safety
///
/// As the system call with this number.
pub(crate) unsafe fn call(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    match hidden_syscall() {
        // SAFETY: our caller says so.
        Some(real) => unsafe { real(number, a, b, c, d, e, f) },
        None => missing(-1),
    }
}

/// An argument of a system call.
pub(crate) trait SyscallArgument: Copy {
    fn word(self) -> c_long;
}

/// The return value of a system call, as a C function has it.
pub(crate) trait SyscallResult {
    fn of(word: c_long) -> Self;
}

macro_rules! numbers {
    ($($type:ty)+) => {$(
        impl SyscallArgument for $type {
            fn word(self) -> c_long {
                self as c_long
            }
        }

        impl SyscallResult for $type {
            fn of(word: c_long) -> Self {
                word as $type
            }
        }
    )+};
}

numbers!(c_int c_uint i64 u64 isize usize);

impl<T> SyscallArgument for *const T {
    fn word(self) -> c_long {
        self.expose_provenance() as c_long
    }
}

impl<T> SyscallArgument for *mut T {
    fn word(self) -> c_long {
        self.expose_provenance() as c_long
    }
}

impl SyscallResult for *mut c_void {
    fn of(word: c_long) -> Self {
        std::ptr::with_exposed_provenance_mut(word as usize)
    }
}

impl SyscallResult for () {
    fn of(_: c_long) {}
}

/// Functions with the arguments of a system call, which make it. Each is called as the manual page
/// has it, and in the place of the C library's function: [over](crate::handler::handlers) a handler
/// it is what that goes on to.
pub(crate) mod by_number {
    use super::*;

    macro_rules! functions {
        ($($name:ident: $($argument:ident $type:ident),+;)+) => {$(
            pub(crate) unsafe extern "C-unwind" fn $name<const NUMBER: c_long, $($type: SyscallArgument,)+ R: SyscallResult>(
                $($argument: $type),+
            ) -> R {
                let mut words = [0; 6];
                for (word, argument) in words.iter_mut().zip([$($argument.word()),+]) {
                    *word = argument;
                }
                // SAFETY: our caller says so.
                R::of(unsafe { call(NUMBER, words) })
            }
        )+};
    }

    functions! {
        of_1: a A;
        of_2: a A, b B;
        of_3: a A, b B, c C;
        of_4: a A, b B, c C, d D;
        of_5: a A, b B, c C, d D, e E;
        of_6: a A, b B, c C, d D, e E, f F;
    }

    pub(crate) unsafe extern "C-unwind" fn of_0<const NUMBER: c_long, R: SyscallResult>() -> R {
        // SAFETY: our caller says so.
        R::of(unsafe { call(NUMBER, [0; 6]) })
    }

    /// `preadv2`, `pwritev2`: the kernel takes the offset in two words, of which the second is
    /// empty where a word has 64 bits.
    pub(crate) unsafe extern "C-unwind" fn at_offset<const NUMBER: c_long>(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t {
        let words = [
            fd.word(),
            parts.word(),
            count.word(),
            offset,
            0,
            flags.word(),
        ];
        // SAFETY: our caller says so.
        ssize_t::of(unsafe { call(NUMBER, words) })
    }

    /// `futimens`, which to the kernel is `utimensat` without a name.
    pub(crate) unsafe extern "C-unwind" fn futimens(fd: c_int, times: *const timespec) -> c_int {
        // SAFETY: our caller says so.
        c_int::of(unsafe { call(libc::SYS_utimensat, [fd.word(), 0, times.word(), 0, 0, 0]) })
    }
}

/// The function that makes the system call of this number, with as many arguments as are named.
macro_rules! numbered {
    ($number:ident, $a:tt) => {
        $crate::kernel::by_number::of_1::<{ libc::$number }, _, _>
    };
    ($number:ident, $a:tt, $b:tt) => {
        $crate::kernel::by_number::of_2::<{ libc::$number }, _, _, _>
    };
    ($number:ident, $a:tt, $b:tt, $c:tt) => {
        $crate::kernel::by_number::of_3::<{ libc::$number }, _, _, _, _>
    };
    ($number:ident, $a:tt, $b:tt, $c:tt, $d:tt) => {
        $crate::kernel::by_number::of_4::<{ libc::$number }, _, _, _, _, _>
    };
    ($number:ident, $a:tt, $b:tt, $c:tt, $d:tt, $e:tt) => {
        $crate::kernel::by_number::of_5::<{ libc::$number }, _, _, _, _, _, _>
    };
    ($number:ident, $a:tt, $b:tt, $c:tt, $d:tt, $e:tt, $f:tt) => {
        $crate::kernel::by_number::of_6::<{ libc::$number }, _, _, _, _, _, _, _>
    };
}

pub(crate) use numbered;
