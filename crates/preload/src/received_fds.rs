//! `open_by_handle_at`, `pidfd_getfd`: descriptors of files that may be absorbed, which come in
//! other ways than by a name.
#![expect(unsafe_code, reason = "exports C functions")]

use crate::{
    call_context::is_client, client_call::client, handler::handlers, kernel::by_number, metadata,
    open::can_change,
};
use forebay_files::client;
use libc::{c_int, c_uint, c_void};

handlers! {
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int;
    missing {
        // SAFETY: our caller's arguments.
        unsafe { open_by_handle_at::over(by_number::of_3::<{ libc::SYS_open_by_handle_at }, _, _, _, _>, mount, handle, flags) }
    };
    plain if !can_change(flags) || is_client();
    else |real| {
        let is_cut = flags & libc::O_TRUNC != 0;
        // The client truncates the file itself, once no process absorbs it any more.
        // SAFETY: our caller's arguments, but for the flags.
        let fd = given(unsafe { real(mount, handle, flags & !libc::O_TRUNC) }, |fd| client::opened_by_handle(fd, is_cut));
        if fd >= 0 && is_cut {
            metadata::cut_off(fd);
        }
        fd
    };

    // In the C library since glibc 2.36.
    fn pidfd_getfd(process: c_int, target: c_int, flags: c_uint) -> c_int;
    missing {
        // SAFETY: our caller's arguments.
        unsafe { pidfd_getfd::over(by_number::of_3::<{ libc::SYS_pidfd_getfd }, _, _, _, _>, process, target, flags) }
    };
    plain if is_client();
    // SAFETY: our caller's arguments.
    else |real| given(unsafe { real(process, target, flags) }, client::taken_from_process);
}

/// Gives the program a descriptor that the kernel has made, unless what comes before that fails.
fn given(fd: c_int, before: impl FnOnce(c_int) -> Result<(), rustix::io::Errno>) -> c_int {
    if fd < 0 {
        return fd;
    }
    match client(|| before(fd)) {
        Ok(()) => fd,
        Err(failed) => {
            // SAFETY: the program has not got it yet.
            unsafe { libc::close(fd) };
            failed.with(-1)
        }
    }
}
