//! `syscall`: the kernel's functions by their numbers. Those that have a hook of their own go
//! there, if a descriptor is absorbed or a name may be an absorbed file's.
//!
//! A library that is put before the C library's functions as this one is may make the calls by
//! their numbers: what a hook goes on to then comes back here. So a hook that is called from here
//! goes on to the kernel, and what comes back from a call of the client goes there at once.
#![expect(unsafe_code, reason = "exports a C function; calls the others")]

use crate::{
    asynchronous,
    call_context::{missing, without_cancellation},
    clone, descriptor, dynamic, execute, fd_changes, forked_child, identity, ioctl_targets,
    kernel::{self, by_number},
    layer, map, message, metadata, open, pages, path_calls, plain, position, process,
    real::{Hook, Real, c_name, signature},
    received_fds, ring, sync, times, truncated_fds, write,
};
use forebay_files::client;
use libc::{c_int, c_long, c_void};
use std::{
    arch::naked_asm,
    ops::ControlFlow::{self, Break, Continue},
};

// SAFETY: the signature is that of the manual page.
static SYSCALL: Real<
    signature!((number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long),
> = unsafe { Real::new(c_name!(syscall)) };

/// The function of this module.
pub(crate) static HOOKS: &[Hook] = &[Hook::new(&SYSCALL.hidden, syscall as *const ())];

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
    let Some(real) = SYSCALL.get() else {
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

/// Whether a system call makes a process that has a copy of this one's memory, for which no handler
/// of `fork` is called.
fn may_fork(number: c_long) -> bool {
    match number {
        libc::SYS_clone | libc::SYS_clone3 => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => true,
        _ => false,
    }
}

/// Whether a descriptor argument is one whose calls have hooks that do something.
fn is_ours(fd: c_long) -> bool {
    !plain::is_plain(fd as c_int)
}

/// As a system call, which returns 0.
unsafe fn synced_all() -> c_long {
    // SAFETY: it takes nothing.
    unsafe { sync::over::sync(by_number::of_0::<{ libc::SYS_sync }, _>) };
    0
}

fn is_plain(fd: c_long) -> bool {
    write::is_plain(fd as c_int)
}

fn is_own(fd: c_long) -> bool {
    client::is_own(fd as c_int)
}

/// The function that makes the system call of this number, with as many arguments as are named.
macro_rules! by_number {
    ($number:ident, $a:tt) => {
        by_number::of_1::<{ libc::$number }, _, _>
    };
    ($number:ident, $a:tt, $b:tt) => {
        by_number::of_2::<{ libc::$number }, _, _, _>
    };
    ($number:ident, $a:tt, $b:tt, $c:tt) => {
        by_number::of_3::<{ libc::$number }, _, _, _, _>
    };
    ($number:ident, $a:tt, $b:tt, $c:tt, $d:tt) => {
        by_number::of_4::<{ libc::$number }, _, _, _, _, _>
    };
    ($number:ident, $a:tt, $b:tt, $c:tt, $d:tt, $e:tt) => {
        by_number::of_5::<{ libc::$number }, _, _, _, _, _, _>
    };
    ($number:ident, $a:tt, $b:tt, $c:tt, $d:tt, $e:tt, $f:tt) => {
        by_number::of_6::<{ libc::$number }, _, _, _, _, _, _, _>
    };
}

/// Does `call`, in the place of a system call that `caller` makes; unless that is the end of a call
/// of the client.
fn instead(caller: *const c_void, call: impl FnOnce() -> c_long) -> ControlFlow<c_long> {
    match is_ours_already(caller) {
        true => Continue(()),
        false => Break(without_cancellation(call)),
    }
}

/// Whether a system call is what a call of the client comes to. The client goes on to the next
/// library's function, and that one may make the system call by its number, as an allocator or a
/// library that fakes users does: then all has been done, and the client may have locks. A signal
/// handler, which makes its own call above the client's, is no such library's.
fn is_ours_already(caller: *const c_void) -> bool {
    client::is_inside() && dynamic::is_interposer(caller.addr())
}

/// Calls the hook of a system call, if it has one and that would do anything, over the kernel: the
/// next library's function of that name may be what makes the system call. No system call is a
/// cancellation point here, the hooks are.
///
/// # Safety
///
/// As the system call with this number.
#[rustfmt::skip]
unsafe fn translate(number: c_long, [a, b, c, d, e, f]: [c_long; 6], caller: *const c_void) -> ControlFlow<c_long> {
    /// Calls a hook over the system call of a number, or over a function, with the arguments as its
    /// types.
    macro_rules! call {
        ($number:ident => $module:ident::$hook:ident, $($argument:tt),*) => {
            call!(by_number!($number, $($argument),*) => $module::$hook, $($argument),*)
        };
        ($real:expr => $module:ident::$hook:ident, $($argument:tt),*) => {
            // SAFETY: a hook takes what the system call takes; our caller vouches for that.
            instead(caller, || unsafe { $module::over::$hook($real, $($argument as _),*) as c_long })
        };
    }
    match number {
        libc::SYS_write if !is_plain(a) => call!(SYS_write => write::write, a, b, c),
        libc::SYS_pwrite64 if !is_plain(a) => call!(SYS_pwrite64 => write::pwrite, a, b, c, d),
        libc::SYS_writev if !is_plain(a) => call!(SYS_writev => write::writev, a, b, c),
        libc::SYS_pwritev if !is_plain(a) => call!(SYS_pwritev => write::pwritev, a, b, c, d),
        libc::SYS_pwritev2 if !is_plain(a) => call!(by_number::at_offset::<{ libc::SYS_pwritev2 }> => write::pwritev2, a, b, c, d, f),
        libc::SYS_sendmsg => call!(SYS_sendmsg => message::sendmsg, a, b, c),
        libc::SYS_sendmmsg => call!(SYS_sendmmsg => message::sendmmsg, a, b, c, d),
        libc::SYS_sendto => call!(SYS_sendto => message::sendto, a, b, c, d, e, f),
        libc::SYS_read if is_ours(a) => call!(SYS_read => position::read, a, b, c),
        libc::SYS_readv if is_ours(a) => call!(SYS_readv => position::readv, a, b, c),
        libc::SYS_preadv2 if is_ours(a) => call!(by_number::at_offset::<{ libc::SYS_preadv2 }> => position::preadv2, a, b, c, d, f),
        libc::SYS_pread64 if is_ours(a) => call!(SYS_pread64 => position::pread, a, b, c, d),
        libc::SYS_preadv if is_ours(a) => call!(SYS_preadv => position::preadv, a, b, c, d),
        libc::SYS_lseek if is_ours(a) => call!(SYS_lseek => position::lseek, a, b, c),
        libc::SYS_fsync if is_ours(a) || client::commits() => call!(SYS_fsync => sync::fsync, a),
        libc::SYS_fdatasync if is_ours(a) || client::commits() => call!(SYS_fdatasync => sync::fdatasync, a),
        // SAFETY: it takes nothing.
        libc::SYS_sync if client::commits() => instead(caller, || unsafe { synced_all() }),
        libc::SYS_syncfs if client::commits() => call!(SYS_syncfs => sync::syncfs, a),
        libc::SYS_msync if client::commits() => call!(SYS_msync => sync::msync, a, b, c),
        libc::SYS_sync_file_range if is_ours(a) => call!(SYS_sync_file_range => sync::sync_file_range, a, b, c, d),
        libc::SYS_ftruncate if is_ours(a) || client::counts_changes() => call!(SYS_ftruncate => fd_changes::ftruncate, a, b),
        libc::SYS_fallocate if is_ours(a) || client::counts_changes() => call!(SYS_fallocate => fd_changes::fallocate, a, b, c, d),
        libc::SYS_copy_file_range if is_ours(c) || is_ours(a) || client::counts_changes() => call!(SYS_copy_file_range => fd_changes::copy_file_range, a, b, c, d, e, f),
        libc::SYS_sendfile if is_ours(a) || is_ours(b) || client::counts_changes() => call!(SYS_sendfile => fd_changes::sendfile, a, b, c, d),
        libc::SYS_splice if is_ours(c) || is_ours(a) || client::counts_changes() => call!(SYS_splice => fd_changes::splice, a, b, c, d, e, f),
        libc::SYS_ioctl if is_ours(a) || client::counts_changes() || ioctl_targets::may_concern(b as _) => call!(SYS_ioctl => fd_changes::ioctl, a, b, c),
        libc::SYS_munmap => call!(SYS_munmap => map::munmap, a, b),
        libc::SYS_mprotect => call!(SYS_mprotect => map::mprotect, a, b, c),
        libc::SYS_mremap => call!(SYS_mremap => map::mremap, a, b, c, d, e),
        libc::SYS_mmap => call!(SYS_mmap => map::mmap, a, b, c, d, e, f),
        libc::SYS_close if is_ours(a) || is_own(a) || truncated_fds::is_marked(a as c_int) => call!(SYS_close => descriptor::close, a),
        libc::SYS_close_range => call!(SYS_close_range => descriptor::close_range, a, b, c),
        libc::SYS_unshare => call!(SYS_unshare => descriptor::unshare, a),
        libc::SYS_dup if is_ours(a) || truncated_fds::is_marked(a as c_int) => call!(SYS_dup => descriptor::dup, a),
        libc::SYS_dup3 => call!(SYS_dup3 => descriptor::dup3, a, b, c),
        libc::SYS_fcntl => call!(SYS_fcntl => descriptor::fcntl, a, b, c),
        libc::SYS_openat if layer::is_there() || pages::is_configured() || open::may_matter(c as c_int) => call!(SYS_openat => open::openat, a, b, c, d),
        libc::SYS_open_by_handle_at => call!(SYS_open_by_handle_at => received_fds::open_by_handle_at, a, b, c),
        libc::SYS_pidfd_getfd => call!(SYS_pidfd_getfd => received_fds::pidfd_getfd, a, b, c),
        libc::SYS_openat2 => call!(SYS_openat2 => open::openat2, a, b, c, d),
        libc::SYS_renameat2 => call!(SYS_renameat2 => path_calls::renameat2, a, b, c, d, e),
        libc::SYS_unlinkat => call!(SYS_unlinkat => path_calls::unlinkat, a, b, c),
        libc::SYS_linkat => call!(SYS_linkat => path_calls::linkat, a, b, c, d, e),
        libc::SYS_truncate => call!(SYS_truncate => path_calls::truncate, a, b),
        // Without a name it is the descriptor's, which the C library has a function of its own for.
        libc::SYS_utimensat if b == 0 && d == 0 && a as c_int >= 0 => call!(by_number::futimens => times::futimens, a, c),
        libc::SYS_utimensat if b != 0 => call!(SYS_utimensat => times::utimensat, a, b, c, d),
        // What is hooked only to be counted.
        libc::SYS_mkdirat if client::counts_changes() => call!(SYS_mkdirat => metadata::mkdirat, a, b, c),
        libc::SYS_symlinkat if client::counts_changes() => call!(SYS_symlinkat => metadata::symlinkat, a, b, c),
        libc::SYS_mknodat if client::counts_changes() => call!(SYS_mknodat => metadata::mknodat, a, b, c, d),
        libc::SYS_fchmod if client::counts_changes() => call!(SYS_fchmod => metadata::fchmod, a, b),
        libc::SYS_fchmodat if client::counts_changes() => call!(SYS_fchmodat => metadata::fchmodat, a, b, c, 0),
        SYS_FCHMODAT2 if client::counts_changes() => call!(by_number::of_4::<SYS_FCHMODAT2, _, _, _, _, _> => metadata::fchmodat, a, b, c, d),
        libc::SYS_fchown if client::counts_changes() => call!(SYS_fchown => metadata::fchown, a, b, c),
        libc::SYS_fchownat if client::counts_changes() => call!(SYS_fchownat => metadata::fchownat, a, b, c, d, e),
        libc::SYS_setxattr if client::counts_changes() => call!(SYS_setxattr => metadata::setxattr, a, b, c, d, e),
        libc::SYS_lsetxattr if client::counts_changes() => call!(SYS_lsetxattr => metadata::lsetxattr, a, b, c, d, e),
        libc::SYS_fsetxattr if client::counts_changes() => call!(SYS_fsetxattr => metadata::fsetxattr, a, b, c, d, e),
        libc::SYS_removexattr if client::counts_changes() => call!(SYS_removexattr => metadata::removexattr, a, b),
        libc::SYS_lremovexattr if client::counts_changes() => call!(SYS_lremovexattr => metadata::lremovexattr, a, b),
        libc::SYS_fremovexattr if client::counts_changes() => call!(SYS_fremovexattr => metadata::fremovexattr, a, b),
        libc::SYS_bind if client::counts_changes() => call!(SYS_bind => metadata::bind, a, b, c),
        SYS_SETXATTRAT | SYS_REMOVEXATTRAT | SYS_FILE_SETATTR if client::counts_changes() => {
            client::changed_on(None);
            Continue(())
        }
        libc::SYS_execve => Break(execute::by_number((libc::AT_FDCWD, a as _), c as _, |environment| {
            // SAFETY: our caller's arguments, but for the environment, which is one.
            unsafe { kernel::call(number, [a, b, environment.expose_provenance() as c_long, d, e, f]) }
        })),
        libc::SYS_execveat => Break(execute::by_number((a as _, b as _), d as _, |environment| {
            // SAFETY: as above.
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
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open if layer::is_there() || pages::is_configured() || open::may_matter(b as c_int) => call!(SYS_open => open::open, a, b, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => call!(SYS_creat => open::creat, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => call!(SYS_dup2 => descriptor::dup2, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => call!(SYS_rename => path_calls::rename, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_renameat => call!(SYS_renameat => path_calls::renameat, a, b, c, d),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink => call!(SYS_unlink => path_calls::unlink, a),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link => call!(SYS_link => path_calls::link, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir if client::counts_changes() => call!(SYS_mkdir => metadata::mkdir, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rmdir if client::counts_changes() => call!(SYS_rmdir => metadata::rmdir, a),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink if client::counts_changes() => call!(SYS_symlink => metadata::symlink, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mknod if client::counts_changes() => call!(SYS_mknod => metadata::mknod, a, b, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod if client::counts_changes() => call!(SYS_chmod => metadata::chmod, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown if client::counts_changes() => call!(SYS_chown => metadata::chown, a, b, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown if client::counts_changes() => call!(SYS_lchown => metadata::lchown, a, b, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat => call!(SYS_futimesat => times::futimesat, a, b, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes => call!(SYS_utimes => times::utimes, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime => call!(SYS_utime => times::utime, a, b),
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
