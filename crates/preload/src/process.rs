//! A process that forks, and `daemon`.
#![expect(unsafe_code, reason = "runs after fork; exports C functions")]

use crate::{
    call_context::missing, client_call::tell_client, descriptor, forked_child::forked,
    handler::handlers, ring,
};
use forebay_files::client;
use libc::{c_int, pid_t};

handlers! {
    // `fork` calls the handlers of `pthread_atfork`, this does not.
    fn _Fork() -> pid_t;
    missing missing(-1);
    plain if false;
    else |real| {
        forking();
        // SAFETY: our caller's wish.
        let child = unsafe { real() };
        if child == 0 {
            forked();
        }
        child
    };

    fn daemon(stay: c_int, keep: c_int) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| {
        // SAFETY: our caller's wish.
        let result = unsafe { real(stay, keep) };
        if result == 0 && keep == 0 {
            descriptor::standard_replaced();
        }
        result
    };
}

/// From now on forks are heard of. False if they cannot be.
pub(crate) fn hear_of_forks() -> bool {
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    let registered =
        unsafe { libc::pthread_atfork(Some(before_fork), None, Some(forked_in_child)) };
    registered == 0
}

unsafe extern "C" fn before_fork() {
    forking();
}

unsafe extern "C" fn forked_in_child() {
    forked();
}

/// Before this thread forks.
pub(crate) fn forking() {
    if client::is_inside() {
        tell_client(client::forking_above);
    } else {
        ring::forking();
    }
}
