//! `kill` without a signal: asks if there is a process of this number. Linux says yes of a thread's
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

/// True if the thread's process is called as the supervisor and agents are. False where /proc does
/// not tell. Without an allocation: it may be a signal's handler that asks.
fn is_forebays(thread: pid_t) -> bool {
    let mut status = [0; 512];
    let said = read_about(thread, "status", &mut status);
    let leader = said
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Tgid:"))
        .and_then(|number| std::str::from_utf8(number).ok()?.trim().parse().ok());
    let mut name = [0; 16];
    leader.is_some_and(|leader| read_about(leader, "comm", &mut name).starts_with(b"forebay"))
}

/// The beginning of a file below the number's directory in /proc; nothing if it cannot be read.
fn read_about<'a>(number: pid_t, file: &str, to: &'a mut [u8]) -> &'a [u8] {
    let mut path = [0; 32];
    let written = write!(&mut path[..], "/proc/{number}/{file}\0");
    let Some(path) = written
        .ok()
        .and_then(|()| CStr::from_bytes_until_nul(&path).ok())
    else {
        return &[];
    };
    let read = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(file, &mut *to));
    to.get(..read.unwrap_or(0)).unwrap_or(&[])
}

/// True if the process has that thread. It sends nothing.
fn has_thread(process: pid_t, thread: pid_t) -> bool {
    let words = [process.into(), thread.into(), 0, 0, 0, 0];
    // SAFETY: it takes numbers alone.
    let asked = unsafe { kernel::call(libc::SYS_tgkill, words) };
    // Whatever else it says, there is something of that number.
    asked == 0 || errno() != libc::ESRCH
}
