//! `syscall`: the kernel's functions by their numbers. Those that have a hook of their own go there, if a descriptor is absorbed or a name
//! may be an absorbed file's.
#![expect(unsafe_code, reason = "exports a C function; calls the others")]

use crate::{
    asynchronous,
    call_context::{missing, without_cancellation},
    change, child, clone, descriptor, execute, identity, layer, map, message, metadata, name,
    named, open, pages, plain, position, process,
    real::hooks,
    sync, times, write,
};
use forebay_files::client;
use libc::{c_int, c_long};
use std::ops::ControlFlow::{self, Break, Continue};

hooks! {
    fn [syscall] (number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
    missing missing(-1);
    plain if false;
    else |real| {
        // SAFETY: our caller's arguments.
        match unsafe { translate(number, [a, b, c, d, e, f]) } {
            Break(result) => result,
            Continue(()) if may_fork(number) => {
                clone::before_system_call(number, a);
                process::forking();
                // SAFETY: as above.
                let result = unsafe { real(number, a, b, c, d, e, f) };
                if result == 0 && client::is_new_process() {
                    child::forked();
                }
                result
            }
            Continue(()) => {
                // SAFETY: as above.
                unsafe { real(number, a, b, c, d, e, f) }
            }
        }
    };
}

/// Whether a system call makes a process that has a copy of this one's memory, for which no handler of `fork` is called.
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
unsafe fn synced_all() -> c_int {
    // SAFETY: it takes nothing.
    unsafe { sync::sync() };
    0
}

fn is_plain(fd: c_long) -> bool {
    write::is_plain(fd as c_int)
}

fn is_own(fd: c_long) -> bool {
    client::is_own(fd as c_int)
}

/// Calls the hook of a system call, if it has one and that would do anything. No system call is a cancellation point here, the hooks are.
///
/// # Safety
///
/// As the system call with this number.
#[rustfmt::skip]
unsafe fn translate(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> ControlFlow<c_long> {
    /// Calls a hook, with the arguments as its types.
    macro_rules! call {
        ($hook:path, $($argument:expr),*) => {
            // SAFETY: a hook takes what the system call takes; our caller vouches for that.
            Break(without_cancellation(|| unsafe { $hook($($argument as _),*) as c_long }))
        };
    }
    match number {
        libc::SYS_write if !is_plain(a) => call!(write::write, a, b, c),
        libc::SYS_pwrite64 if !is_plain(a) => call!(write::pwrite, a, b, c, d),
        libc::SYS_writev if !is_plain(a) => call!(write::writev, a, b, c),
        libc::SYS_pwritev if !is_plain(a) => call!(write::pwritev, a, b, c, d),
        libc::SYS_pwritev2 if !is_plain(a) => call!(write::pwritev2, a, b, c, d, f),
        libc::SYS_sendmsg => call!(message::sendmsg, a, b, c),
        libc::SYS_sendmmsg => call!(message::sendmmsg, a, b, c, d),
        libc::SYS_sendto => call!(message::sendto, a, b, c, d, e, f),
        libc::SYS_read if is_ours(a) => call!(position::read, a, b, c),
        libc::SYS_readv if is_ours(a) => call!(position::readv, a, b, c),
        libc::SYS_preadv2 if is_ours(a) => call!(position::preadv2, a, b, c, d, f),
        libc::SYS_pread64 if is_ours(a) => call!(position::pread, a, b, c, d),
        libc::SYS_preadv if is_ours(a) => call!(position::preadv, a, b, c, d),
        libc::SYS_lseek if is_ours(a) => call!(position::lseek, a, b, c),
        libc::SYS_fsync if is_ours(a) || client::commits() => call!(sync::fsync, a),
        libc::SYS_fdatasync if is_ours(a) || client::commits() => call!(sync::fdatasync, a),
        libc::SYS_sync if client::commits() => call!(synced_all,),
        libc::SYS_syncfs if client::commits() => call!(sync::syncfs, a),
        libc::SYS_msync if client::commits() => call!(sync::msync, a, b, c),
        libc::SYS_sync_file_range if is_ours(a) => call!(sync::sync_file_range, a, b, c, d),
        libc::SYS_ftruncate if is_ours(a) => call!(change::ftruncate, a, b),
        libc::SYS_fallocate if is_ours(a) => call!(change::fallocate, a, b, c, d),
        libc::SYS_copy_file_range if is_ours(c) || is_ours(a) => call!(change::copy_file_range, a, b, c, d, e, f),
        libc::SYS_sendfile if is_ours(a) || is_ours(b) => call!(change::sendfile, a, b, c, d),
        libc::SYS_splice if is_ours(c) || is_ours(a) => call!(change::splice, a, b, c, d, e, f),
        libc::SYS_ioctl if is_ours(a) || named::may_concern(b as _) => call!(change::ioctl, a, b, c),
        libc::SYS_munmap => call!(map::munmap, a, b),
        libc::SYS_mprotect => call!(map::mprotect, a, b, c),
        libc::SYS_mremap => call!(map::mremap, a, b, c, d, e),
        libc::SYS_mmap => call!(map::mmap, a, b, c, d, e, f),
        libc::SYS_close if is_ours(a) || is_own(a) => call!(descriptor::close, a),
        libc::SYS_close_range => call!(descriptor::close_range, a, b, c),
        libc::SYS_unshare => call!(descriptor::unshare, a),
        libc::SYS_dup if is_ours(a) => call!(descriptor::dup, a),
        libc::SYS_dup3 => call!(descriptor::dup3, a, b, c),
        libc::SYS_fcntl => call!(descriptor::fcntl, a, b, c),
        libc::SYS_openat if layer::is_there() || pages::is_configured() || open::may_matter(c as c_int) => call!(open::openat, a, b, c, d),
        libc::SYS_openat2 => call!(open::openat2, a, b, c, d),
        libc::SYS_renameat2 => call!(name::renameat2, a, b, c, d, e),
        libc::SYS_unlinkat => call!(name::unlinkat, a, b, c),
        libc::SYS_linkat => call!(name::linkat, a, b, c, d, e),
        libc::SYS_truncate => call!(name::truncate, a, b),
        // Without a name it is the descriptor's, which the C library has a function of its own for.
        libc::SYS_utimensat if b == 0 && d == 0 && a as c_int >= 0 => call!(times::futimens, a, c),
        libc::SYS_utimensat if b != 0 => call!(times::utimensat, a, b, c, d),
        // What is hooked only to be counted.
        libc::SYS_mkdirat if metadata::is_counted() => call!(metadata::mkdirat, a, b, c),
        libc::SYS_symlinkat if metadata::is_counted() => call!(metadata::symlinkat, a, b, c),
        libc::SYS_mknodat if metadata::is_counted() => call!(metadata::mknodat, a, b, c, d),
        libc::SYS_fchmod if metadata::is_counted() => call!(metadata::fchmod, a, b),
        libc::SYS_fchmodat if metadata::is_counted() => call!(metadata::fchmodat, a, b, c, 0),
        SYS_FCHMODAT2 if metadata::is_counted() => call!(metadata::fchmodat, a, b, c, d),
        libc::SYS_fchown if metadata::is_counted() => call!(metadata::fchown, a, b, c),
        libc::SYS_fchownat if metadata::is_counted() => call!(metadata::fchownat, a, b, c, d, e),
        libc::SYS_setxattr if metadata::is_counted() => call!(metadata::setxattr, a, b, c, d, e),
        libc::SYS_lsetxattr if metadata::is_counted() => call!(metadata::lsetxattr, a, b, c, d, e),
        libc::SYS_fsetxattr if metadata::is_counted() => call!(metadata::fsetxattr, a, b, c, d, e),
        libc::SYS_removexattr if metadata::is_counted() => call!(metadata::removexattr, a, b),
        libc::SYS_lremovexattr if metadata::is_counted() => call!(metadata::lremovexattr, a, b),
        libc::SYS_fremovexattr if metadata::is_counted() => call!(metadata::fremovexattr, a, b),
        libc::SYS_bind if metadata::is_counted() => call!(metadata::bind, a, b, c),
        SYS_SETXATTRAT | SYS_REMOVEXATTRAT if metadata::is_counted() => {
            client::changed_on(None);
            Continue(())
        }
        libc::SYS_execve => refuse(execute::before_system_call(libc::AT_FDCWD, a as _, c as _)),
        libc::SYS_execveat => refuse(execute::before_system_call(a as _, b as _, d as _)),
        libc::SYS_io_submit => refuse(asynchronous::retire_submitted(b, c as *mut _)),
        libc::SYS_setuid => refuse(identity::before([a as _; 3])),
        libc::SYS_setreuid => refuse(identity::before([a as _, b as _, libc::uid_t::MAX])),
        libc::SYS_setresuid => refuse(identity::before([a as _, b as _, c as _])),
        libc::SYS_io_setup if asynchronous::is_refused() => Break(missing(-1)),
        libc::SYS_io_uring_setup if asynchronous::is_ring_refused() => Break(missing(-1)),
        libc::SYS_io_uring_setup => {
            asynchronous::give_up();
            Continue(())
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open if layer::is_there() || pages::is_configured() || open::may_matter(b as c_int) => call!(open::open, a, b, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => call!(open::creat, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => call!(descriptor::dup2, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => call!(name::rename, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_renameat => call!(name::renameat, a, b, c, d),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink => call!(name::unlink, a),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link => call!(name::link, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir if metadata::is_counted() => call!(metadata::mkdir, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rmdir if metadata::is_counted() => call!(metadata::rmdir, a),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink if metadata::is_counted() => call!(metadata::symlink, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mknod if metadata::is_counted() => call!(metadata::mknod, a, b, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod if metadata::is_counted() => call!(metadata::chmod, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown if metadata::is_counted() => call!(metadata::chown, a, b, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown if metadata::is_counted() => call!(metadata::lchown, a, b, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat => call!(times::futimesat, a, b, c),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes => call!(times::utimes, a, b),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime => call!(times::utime, a, b),
        _ => Continue(()),
    }
}

/// `fchmodat2`, `setxattrat`, `removexattrat`: younger than the C library's headers, and the same on all architectures.
const SYS_FCHMODAT2: c_long = 452;
const SYS_SETXATTRAT: c_long = 463;
const SYS_REMOVEXATTRAT: c_long = 466;

/// Goes on to the kernel, unless what had to be done before failed.
fn refuse(prepared: Result<(), crate::call_context::Failed>) -> ControlFlow<c_long> {
    match prepared {
        Ok(()) => Continue(()),
        Err(failed) => Break(failed.with(-1)),
    }
}
