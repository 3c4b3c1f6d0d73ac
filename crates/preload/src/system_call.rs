//! `syscall`: the kernel's functions by their numbers. Those that have a hook of their own go
//! there, if a descriptor is absorbed or a name may be an absorbed file's.
//!
//! A library that is put before the C library's functions as this one is may make the calls by
//! their numbers: what a hook goes on to then comes back here. So a hook that is called from here
//! goes on to the kernel, and what comes back from a call of the client goes there at once.
#![expect(unsafe_code, reason = "exports a C function; calls the others")]

use crate::{
    asynchronous,
    call_context::missing,
    clone, descriptor, execute, forked_child, hooks, identity,
    interposers::instead,
    kernel::{self, by_number, hidden_syscall, numbered},
    metadata, plain, position, process, ring, sync, times, truncated_fds, write,
};
use forebay_files::client;
use libc::{c_int, c_long, c_void};
use std::{
    arch::naked_asm,
    ops::ControlFlow::{self, Break, Continue},
};

/// `syscall`: goes on with the address of its caller as one more argument.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn syscall() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        ".cfi_startproc",
        "mov rax, [rsp]",
        "mov r10, [rsp + 8]",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "push r10",
        ".cfi_adjust_cfa_offset 8",
        "call {called}",
        "add rsp, 24",
        ".cfi_adjust_cfa_offset -24",
        "ret",
        ".cfi_endproc",
        called = sym called,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x7, x30", "b {called}", called = sym called);
}

extern "C-unwind" fn called(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
    caller: *const c_void,
) -> c_long {
    let Some(real) = hidden_syscall() else {
        return missing(-1);
    };
    // SAFETY: our caller's arguments.
    let real = || unsafe { real(number, a, b, c, d, e, f) };
    // SAFETY: as above.
    match unsafe { translate(number, [a, b, c, d, e, f], caller) } {
        Break(result) => result,
        Continue(()) if may_fork(number) => {
            clone::before_system_call(number, a);
            process::forking();
            let result = real();
            if result == 0 && client::is_new_process() {
                forked_child::forked();
            }
            result
        }
        Continue(()) => real(),
    }
}

/// True if a system call makes a process that has a copy of this one's memory, for which no handler
/// of `fork` is called.
fn may_fork(number: c_long) -> bool {
    match number {
        libc::SYS_clone | libc::SYS_clone3 => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        _ => false,
    }
}

/// As a system call, which returns 0.
unsafe fn synced_all() -> c_long {
    // SAFETY: it takes nothing.
    unsafe { sync::sync::over(by_number::of_0::<{ libc::SYS_sync }, _>) };
    0
}

/// Calls the hook of a system call, if it has one and that would do anything. The table says which;
/// where the system call takes other arguments than the function, or there is more to it, this file
/// does.
///
/// # Safety
///
/// As the system call with this number.
unsafe fn translate(
    number: c_long,
    words: [c_long; 6],
    caller: *const c_void,
) -> ControlFlow<c_long> {
    // SAFETY: our caller's promise.
    match unsafe { hooks::by_number(number, &words, caller) } {
        Some(done) => done,
        // SAFETY: as above.
        None => unsafe { translate_otherwise(number, words, caller) },
    }
}

/// The same of those without a number in the table.
///
/// # Safety
///
/// As above.
#[rustfmt::skip]
#[inline]
unsafe fn translate_otherwise(number: c_long, [a, b, c, d, e, f]: [c_long; 6], caller: *const c_void) -> ControlFlow<c_long> {
    /// Calls a handler over a function, with the arguments as its types.
    macro_rules! call {
        ($real:expr => $module:ident::$handler:ident, $($argument:tt),*) => {
            // SAFETY: a handler takes what the system call takes; our caller vouches for that.
            instead(caller, || unsafe { $module::$handler::over($real, $($argument as _),*) as c_long })
        };
    }
    match number {
        libc::SYS_pwritev2 if !write::is_plain(a as c_int) => call!(by_number::at_offset::<{ libc::SYS_pwritev2 }> => write::pwritev2, a, b, c, d, f),
        libc::SYS_preadv2 if !plain::is_plain(a as c_int) => call!(by_number::at_offset::<{ libc::SYS_preadv2 }> => position::preadv2, a, b, c, d, f),
        // SAFETY: it takes nothing.
        libc::SYS_sync if client::commits() => instead(caller, || unsafe { synced_all() }),
        libc::SYS_dup if !plain::is_plain(a as c_int) || truncated_fds::is_marked(a as c_int) => call!(numbered!(SYS_dup, a) => descriptor::dup, a),
        // Without a name it is the descriptor's, which the C library has a function of its own for.
        libc::SYS_utimensat if b == 0 && d == 0 && a as c_int >= 0 => call!(by_number::futimens => times::futimens, a, c),
        libc::SYS_utimensat if b != 0 => call!(numbered!(SYS_utimensat, a, b, c, d) => times::utimensat, a, b, c, d),
        // What is hooked only to be counted.
        libc::SYS_fchmodat if client::counts_changes() => call!(numbered!(SYS_fchmodat, a, b, c, d) => metadata::fchmodat, a, b, c, 0),
        SYS_FCHMODAT2 if client::counts_changes() => call!(by_number::of_4::<SYS_FCHMODAT2, _, _, _, _, _> => metadata::fchmodat, a, b, c, d),
        SYS_SETXATTRAT | SYS_REMOVEXATTRAT | SYS_FILE_SETATTR if client::counts_changes() => {
            client::changed_on(None);
            Continue(())
        }
        libc::SYS_execve => Break(execute::execve_by_number(a as _, (b as _, c as _), |[a, b, c]| {
            // SAFETY: our caller's arguments, or what stands for them.
            unsafe { kernel::call(number, [a, b, c, d, e, f]) }
        })),
        libc::SYS_execveat => Break(execute::execveat_by_number((a as _, b as _), d as _, |environment| {
            // SAFETY: our caller's arguments, but for the environment, which is one.
            unsafe { kernel::call(number, [a, b, c, environment.expose_provenance() as c_long, e, f]) }
        })),
        libc::SYS_io_submit => refuse(asynchronous::retire_submitted(b, c as *mut _)),
        libc::SYS_setuid => refuse(identity::before([a as _; 3])),
        libc::SYS_setreuid => refuse(identity::before([a as _, b as _, libc::uid_t::MAX])),
        libc::SYS_setresuid => refuse(identity::before([a as _, b as _, c as _])),
        libc::SYS_io_setup if asynchronous::is_refused() => Break(missing(-1)),
        libc::SYS_io_uring_setup if asynchronous::is_ring_refused() => Break(missing(-1)),
        libc::SYS_io_uring_setup => {
            asynchronous::give_up();
            // SAFETY: our caller vouches for its arguments.
            Break(unsafe { ring::announced(a, b) })
        }
        _ => Continue(()),
    }
}

/// `fchmodat2`, `setxattrat`, `removexattrat`: younger than the C library's headers, and the same
/// on all architectures.
const SYS_FCHMODAT2: c_long = 452;
const SYS_SETXATTRAT: c_long = 463;
const SYS_FILE_SETATTR: c_long = 469;
const SYS_REMOVEXATTRAT: c_long = 466;

/// Goes on to the kernel, unless what had to be done before failed.
fn refuse(prepared: Result<(), crate::call_context::FailedCall>) -> ControlFlow<c_long> {
    match prepared {
        Ok(()) => Continue(()),
        Err(failed) => Break(failed.with(-1)),
    }
}
