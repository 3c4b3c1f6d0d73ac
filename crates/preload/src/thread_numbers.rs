//! `kill` without a signal: whether there is a process of this number. Linux says yes of a thread's
//! number, too, and the supervisor has threads of the program's user. A server that was killed
//! leaves its number in a file. Where numbers begin anew (a container, another boot), one of these
//! threads may have it at the next start: PostgreSQL would take it for another server, and refuse
//! to start. POSIX knows processes only, so a thread of forebay's is none.
#![expect(unsafe_code, reason = "exports C functions; makes a system call")]

use crate::{
    call_context::{FailedCall, errno, missing, set_errno},
    handler::handlers,
    kernel,
};
use libc::{c_int, pid_t};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{ffi::CStr, io::Write};

handlers! {
    fn kill(process: pid_t, signal: c_int) -> c_int;
    missing missing(-1);
    plain if signal != 0 || process <= 0;
    else |real| {
        // SAFETY: our caller's arguments.
        match unsafe { real(process, signal) } {
            0 if is_thread_of_forebay(process) => FailedCall::of(Errno::SRCH).with(-1),
            found => found,
        }
    };
}

/// True if a thread of forebay's has this number: no process, and no thread of this one. Of others'
/// threads the kernel's answer stands, on which a program may rely.
fn is_thread_of_forebay(number: pid_t) -> bool {
    let before = errno();
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // The thread that has its process's number is the first, without which the number is free.
    let is_forebays =
        !has_thread(number, number) && !has_thread(own, number) && is_forebays(number);
    set_errno(before);
    is_forebays
}

/// Whether the thread is called as those of the supervisor and of agents are. False where /proc
/// does not tell.
fn is_forebays(thread: pid_t) -> bool {
    // Without an allocation: it may be a signal's handler that asks.
    let mut path = [0; 32];
    let written = write!(&mut path[..], "/proc/{thread}/comm\0");
    let Some(path) = written
        .ok()
        .and_then(|()| CStr::from_bytes_until_nul(&path).ok())
    else {
        return false;
    };
    let mut name = [0; 16];
    let read = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(file, &mut name));
    read.is_ok() && name.starts_with(b"forebay")
}

/// Whether the process has that thread. It sends nothing.
fn has_thread(process: pid_t, thread: pid_t) -> bool {
    let words = [process.into(), thread.into(), 0, 0, 0, 0];
    // SAFETY: it takes numbers alone.
    let asked = unsafe { kernel::call(libc::SYS_tgkill, words) };
    // Whatever else it says, there is something of that number.
    asked == 0 || errno() != libc::ESRCH
}
