//! A trace of the writes and syncs of a program, seen by `ptrace(2)`: for `forebay learn`.
//!
//! The program runs plainly. Its calls that write, sync, allocate or map files stop it on their way
//! into the kernel and out again. What it forks and executes is seen too. It need not be linked to
//! anything.
//!
//! * [`trace`] starts a program and [`attach`] goes to a running one; both return a [`Trace`];
//! * `filter`: which calls stop the program (a seccomp filter, so that all others cost nothing);
//! * `launch`: how a program is started below the filter;
//! * `tracer`: the loop over the stops;
//! * `ptrace`: the kernel's calls that it makes;
//! * `calls`: what a call says by its number and arguments;
//! * [`files`]: what is noted of each file.
//!
//! # Limits
//! Not seen: what a kernel thread writes for the program (`io_uring`, Linux AIO; counted in
//! [`Trace::rings`]), what a mapping writes (the file is [`mapped`](files::TracedFile::is_mapped)),
//! calls of another kind of machine (i386, x32), and copies between files at an offset. A call's
//! time includes the two stops, and that the tracer, which is one thread, may be busy with others.
//! A program that is attached to stops at *each* call, and calls that wait (`epoll_wait`) may fail
//! with `EINTR` when that begins and ends. One that is started gets no rights beyond its caller's
//! (setuid), cannot trace, and a process that it makes with `CLONE_UNTRACED` cannot write.

#![cfg(target_os = "linux")]

mod calls;
mod error;
pub mod files;
mod filter;
mod launch;
mod ptrace;
mod tracer;

pub use error::TraceError;

use files::{CallTimes, TracedFile};
use std::{
    ffi::{OsStr, OsString},
    time::Duration,
};

/// The trace of a program.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Time that it was looked at.
    pub took: Duration,
    /// The end of the program's first process.
    pub end: ProgramEnd,
    /// The files that it wrote to or synced, each under each name that it had.
    pub files: Vec<TracedFile>,
    /// Calls that sync whole file systems (`sync`, `syncfs`), and what they took.
    pub whole_syncs: CallTimes,
    /// `msync`s that wait, and what they took.
    pub mapped_syncs: CallTimes,
    /// The number of rings (`io_uring`) and contexts (Linux AIO) that it made: writes by them are
    /// not seen.
    pub rings: u64,
    /// Calls on files of which nothing is noted, since there are too many.
    pub unnoted_calls: u64,
    /// Threads and processes that this user may not look at, or that another tracer has.
    pub unseen_tasks: u64,
}

/// The end of the look at a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// It ended with this status.
    Exited(u8),
    /// A signal of this number killed it.
    Killed(u8),
    /// It still runs.
    Runs,
}

/// Starts `program` (a path, or a name that is looked for in `PATH`) with `arguments`, and looks
/// until all of its processes have ended. SIGTERM and SIGHUP are passed on to it; of SIGINT and
/// SIGQUIT the terminal tells it itself. Once its first process has ended, `in_background` is
/// called if others go on, and they get all of these signals as SIGTERM. If the calling process
/// dies, so does the program. It has `defaults`, signals that this process ignores and its caller
/// did not, at their default.
///
/// # Errors
/// [`TraceError::NotRun`] if there is no such program or it cannot be executed, and
/// [`TraceError::Refused`] if the kernel does not let this process trace.
pub fn trace(
    program: &OsStr,
    arguments: &[OsString],
    defaults: &[i32],
    in_background: &dyn Fn(),
) -> Result<Trace, TraceError> {
    let before = tracer::block_signals();
    let signals = launch::ProgramSignals {
        blocked: &before,
        defaults,
        ignores_children: ptrace::listen_for_children(),
    };
    let traced = launch::start(program, arguments, &signals)
        .map(tracer::Tracer::of_child)
        .and_then(|tracer| tracer.follow(in_background));
    tracer::restore_signals(&before);
    traced
}

/// Looks at the process `pid` and what it forks for `limit`, until it ends, or until SIGINT or
/// SIGTERM, and lets it go on.
///
/// # Errors
/// [`TraceError::NoProcess`]; [`TraceError::Refused`] if this user may not look at it.
pub fn attach(pid: u32, limit: Option<Duration>) -> Result<Trace, TraceError> {
    let before = tracer::block_signals();
    let traced = tracer::Tracer::attach(pid, limit).and_then(|tracer| tracer.follow(&|| {}));
    tracer::restore_signals(&before);
    traced
}
