//! Starts a program below the filter.
//!
//! 1. The parent finds out, by a child that does nothing else, whether a filter may be installed.
//! 2. It forks. The child waits at a pipe until the parent has become its tracer: below the filter,
//!    without a tracer, its calls would fail.
//! 3. The child installs the filter and executes the program. If that fails, it writes the error to
//!    a second pipe.
#![expect(unsafe_code, reason = "fork, and the child's calls before it executes")]

use crate::{TraceError, filter, ptrace};
use libc::{c_char, pid_t, sock_filter};
use nix::{errno::Errno, sys::signal::SigSet};
use std::{
    ffi::{CString, OsStr, OsString},
    io::{self, PipeReader, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::ffi::OsStrExt,
    },
    ptr,
};

/// The status of a child that was not given a program.
const NOT_RUN: i32 = 127;

/// The signals of the program: as its caller had them, and not as this process.
pub(crate) struct ProgramSignals<'a> {
    pub(crate) blocked: &'a SigSet,
    pub(crate) defaults: &'a [i32],
    pub(crate) ignores_children: bool,
}

/// Starts the program.
///
/// # Errors
/// [`TraceError::NotRun`] for names with a zero; [`TraceError::Refused`]; [`TraceError::Call`].
pub(crate) fn start(
    program: &OsStr,
    arguments: &[OsString],
    signals: &ProgramSignals<'_>,
) -> Result<StartedProgram, TraceError> {
    let not_run = |source: io::Error| TraceError::NotRun {
        program: program.to_owned(),
        source,
    };
    let words: Vec<CString> = std::iter::once(program)
        .chain(arguments.iter().map(OsString::as_os_str))
        .map(|word| CString::new(word.as_bytes()).map_err(|zero| not_run(zero.into())))
        .collect::<Result<_, _>>()?;
    let mut pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(ptr::null());
    let (go, mut release) = io::pipe().map_err(not_run)?;
    let (failure, report) = io::pipe().map_err(not_run)?;
    let filter = filter::program();
    let is_filtered = may_filter(&filter)?;
    let forked = fork()?;
    if forked == 0 {
        let filter = is_filtered.then_some(filter.as_slice());
        drop(release);
        become_program(
            &pointers,
            filter,
            signals,
            go.as_raw_fd(),
            report.as_raw_fd(),
        );
    }
    drop(report);
    ptrace::seize(forked, ptrace::options(true, is_filtered)).map_err(|source| {
        TraceError::Refused {
            what: program.display().to_string(),
            source,
        }
    })?;
    release.write_all(&[1]).map_err(not_run)?;
    Ok(StartedProgram {
        pid: forked,
        is_filtered,
        failure: NotExecuted {
            program: program.to_owned(),
            failure,
        },
    })
}

/// A program that is traced, and about to be executed.
pub(crate) struct StartedProgram {
    pub(crate) pid: pid_t,
    /// Of its calls those stop it that the filter names; else all.
    pub(crate) is_filtered: bool,
    pub(crate) failure: NotExecuted,
}

/// The source of a child's error, if it could not execute its program.
pub(crate) struct NotExecuted {
    program: OsString,
    failure: PipeReader,
}

impl NotExecuted {
    /// The error, once the child has ended.
    pub(crate) fn error(mut self) -> Option<TraceError> {
        let mut number = [0; size_of::<i32>()];
        io::Read::read_exact(&mut self.failure, &mut number).ok()?;
        Some(TraceError::NotRun {
            program: self.program,
            source: io::Error::from_raw_os_error(i32::from_ne_bytes(number)),
        })
    }
}

fn fork() -> Result<pid_t, TraceError> {
    // SAFETY: the child makes only calls that are allowed between fork and exec.
    Errno::result(unsafe { libc::fork() }).map_err(TraceError::call("starting a process"))
}

/// True if a child may install the filter; else each of the program's calls stops it.
fn may_filter(filter: &[sock_filter]) -> Result<bool, TraceError> {
    let child = fork()?;
    if child == 0 {
        let is_refused = filter::install(filter).is_err();
        // SAFETY: it ends the process.
        unsafe { libc::_exit(i32::from(is_refused)) }
    }
    let mut status = 0;
    // SAFETY: the kernel writes one number there.
    let done = unsafe { libc::waitpid(child, &raw mut status, 0) };
    Errno::result(done).map_err(TraceError::call("waiting for a process"))?;
    Ok(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
}

/// The child. Async-signal-safe.
fn become_program(
    words: &[*const c_char],
    filter: Option<&[sock_filter]>,
    signals: &ProgramSignals<'_>,
    go: RawFd,
    report: RawFd,
) -> ! {
    let mut byte = 0u8;
    // SAFETY: one byte is read into one byte; the words end with a null and are C strings, which
    // live in the parent's copy of the memory; the rest takes numbers and a set.
    unsafe {
        if libc::read(go, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(NOT_RUN);
        }
        let mut done = Ok(());
        if let Some(filter) = filter {
            done = filter::install(filter);
        }
        for &signal in signals.defaults {
            libc::signal(signal, libc::SIG_DFL);
        }
        if signals.ignores_children {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        libc::sigprocmask(libc::SIG_SETMASK, signals.blocked.as_ref(), ptr::null_mut());
        if done.is_ok() {
            libc::execvp(words[0], words.as_ptr());
        }
        let number = done
            .err()
            .map_or_else(Errno::last_raw, |errno| errno as i32);
        libc::write(report, (&raw const number).cast(), size_of::<i32>());
        libc::_exit(NOT_RUN)
    }
}
