//! `kill` without a signal: whether there is a process of this number. Linux says yes of a thread's
//! number, too, and the supervisor has threads of the program's user. A server that was killed
//! leaves its number in a file. Where numbers begin anew (a container, another boot), one of these
//! threads may have it at the next start: PostgreSQL would take it for another server, and refuse
//! to start. POSIX knows processes only, so a thread of another process is none.
#![expect(unsafe_code, reason = "exports C functions; makes a system call")]

use crate::{
    call_context::{FailedCall, errno, missing, set_errno},
    handler::handlers,
    kernel,
};
use libc::{c_int, pid_t};
use rustix::io::Errno;

handlers! {
    fn kill(process: pid_t, signal: c_int) -> c_int;
    missing missing(-1);
    plain if signal != 0 || process <= 0;
    else |real| {
        // SAFETY: our caller's arguments.
        match unsafe { real(process, signal) } {
            0 if is_thread_of_another(process) => FailedCall::of(Errno::SRCH).with(-1),
            found => found,
        }
    };
}

/// True if a thread has this number, and neither a process nor a thread of this one.
fn is_thread_of_another(number: pid_t) -> bool {
    let before = errno();
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // The thread that has its process's number is the first, without which the number is free.
    let is_another = !has_thread(number, number) && !has_thread(own, number);
    set_errno(before);
    is_another
}

/// Whether the process has that thread. It sends nothing.
fn has_thread(process: pid_t, thread: pid_t) -> bool {
    let words = [process.into(), thread.into(), 0, 0, 0, 0];
    // SAFETY: it takes numbers alone.
    let asked = unsafe { kernel::call(libc::SYS_tgkill, words) };
    // Whatever else it says, there is something of that number.
    asked == 0 || errno() != libc::ESRCH
}
