//! Errors of tracing a program.

use nix::errno::Errno;
use std::{ffi::OsString, io};
use thiserror::Error;

/// The reason that a program could not be looked at.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The program was not executed.
    #[error("{}: {source}", .program.display())]
    NotRun {
        /// The program that was to be executed.
        program: OsString,
        /// The system's error.
        source: io::Error,
    },
    /// There is no process with this id.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The kernel does not let this process trace.
    #[error("tracing {what}: {source}; {}", remedy(*.source))]
    Refused {
        /// The program or process.
        what: String,
        /// The kernel's error.
        source: Errno,
    },
    /// A call that should not fail failed.
    #[error("{doing}: {source}")]
    Call {
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}

impl TraceError {
    pub(crate) fn call(doing: &'static str) -> impl FnOnce(Errno) -> Self {
        move |source| Self::Call { doing, source }
    }
}

fn remedy(source: Errno) -> &'static str {
    match source {
        Errno::EPERM => {
            "another tracer (a debugger, strace) may have it already; or run this as its user or as root, with \
             /proc/sys/kernel/yama/ptrace_scope at 0, and in a container with --cap-add SYS_PTRACE"
        }
        _ => "a container may forbid it: give it --security-opt seccomp=unconfined",
    }
}
