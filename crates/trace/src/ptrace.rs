//! The calls of the kernel that a tracer makes. Numbers of signals are plain, since a program may
//! use all of them.
#![expect(
    unsafe_code,
    reason = "ptrace, waitpid and fork have no safe form that knows all signals"
)]

use crate::filter::ARCHITECTURE;
use libc::{c_int, c_long, c_uint, pid_t};
use nix::errno::Errno;
use std::{mem::MaybeUninit, ptr, time::Duration};

/// A stop, by `PTRACE_GET_SYSCALL_INFO`.
pub(crate) enum CallStop {
    /// The call is about to be done.
    Entry { number: u64, arguments: [u64; 6] },
    /// It was done, with this result: an error is negative.
    Exit { result: i64 },
    /// A call of another kind of machine, or no call.
    Other,
}

/// The change of a task that was waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TaskChange {
    /// It ended by itself.
    Exited(u8),
    /// A signal killed it.
    Killed(u8),
    /// At a call.
    AtCall,
    /// At an event (`PTRACE_EVENT_…`), with the signal of the stop.
    AtEvent { event: c_int, signal: c_int },
    /// A signal is about to be delivered.
    AtSignal(c_int),
}

/// Options for the tracing of a task. A program that was started dies with this process: below the
/// filter, without a tracer, an fsync would fail.
pub(crate) fn options(is_started: bool, is_filtered: bool) -> c_int {
    let mut options = libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACESYSGOOD;
    if is_started {
        options |= libc::PTRACE_O_EXITKILL;
    }
    if is_filtered {
        options |= libc::PTRACE_O_TRACESECCOMP;
    }
    options
}

/// Makes this thread the tracer of the task `pid`.
///
/// # Errors
/// The kernel's.
pub(crate) fn seize(pid: pid_t, options: c_int) -> Result<(), Errno> {
    request(libc::PTRACE_SEIZE, pid, options as c_long)
}

/// A request whose third argument is nothing and whose fourth is `data`. A task that has died
/// meanwhile is no error: that it ended will be waited for.
///
/// # Errors
/// The kernel's, but for `ESRCH` of a task that was seized.
pub(crate) fn request(request: c_uint, pid: pid_t, data: c_long) -> Result<(), Errno> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: the requests of this program take numbers here.
    let done = unsafe { libc::ptrace(request, pid, none, data) };
    match Errno::result(done) {
        Err(Errno::ESRCH) if request != libc::PTRACE_SEIZE => Ok(()),
        done => done.map(drop),
    }
}

/// The message of an event: the id of a new task, or that which a task had before it executed.
pub(crate) fn event_message(pid: pid_t) -> Option<pid_t> {
    let mut message: libc::c_ulong = 0;
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel writes one number there.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, none, &raw mut message) };
    (done == 0)
        .then_some(message as pid_t)
        .filter(|&pid| pid > 0)
}

/// The call that the task is stopped at.
///
/// # Errors
/// `EIO`: the kernel cannot say (Linux 5.3 can).
pub(crate) fn call_of(pid: pid_t) -> Result<CallStop, Errno> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let size = size_of::<libc::ptrace_syscall_info>();
    // SAFETY: the kernel writes `size` bytes at most.
    let done = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, size, info.as_mut_ptr()) };
    // SAFETY: zeros are a value of it, and the kernel's are another.
    let info = unsafe { info.assume_init() };
    match Errno::result(done) {
        // It has died meanwhile.
        Err(Errno::ESRCH) => return Ok(CallStop::Other),
        done => done?,
    };
    if info.arch != ARCHITECTURE {
        return Ok(CallStop::Other);
    }
    Ok(match info.op {
        // SAFETY: `op` says which of the union's members the kernel wrote.
        libc::PTRACE_SYSCALL_INFO_ENTRY => unsafe {
            CallStop::Entry {
                number: info.u.entry.nr,
                arguments: info.u.entry.args,
            }
        },
        // SAFETY: as above.
        libc::PTRACE_SYSCALL_INFO_SECCOMP => unsafe {
            CallStop::Entry {
                number: info.u.seccomp.nr,
                arguments: info.u.seccomp.args,
            }
        },
        libc::PTRACE_SYSCALL_INFO_EXIT => CallStop::Exit {
            // SAFETY: as above.
            result: unsafe { info.u.exit.sval },
        },
        _ => CallStop::Other,
    })
}

/// The next change of a traced task. `Ok(None)`: none now, if `is_patient` is false.
///
/// # Errors
/// `ECHILD`: there is no task any more.
pub(crate) fn next_change(is_patient: bool) -> Result<Option<(pid_t, TaskChange)>, Errno> {
    let mut status = 0;
    let options = libc::__WALL | if is_patient { 0 } else { libc::WNOHANG };
    // SAFETY: the kernel writes one number there.
    let pid = Errno::result(unsafe { libc::waitpid(-1, &raw mut status, options) })?;
    Ok((pid != 0).then(|| (pid, change_of(status))))
}

fn change_of(status: c_int) -> TaskChange {
    if libc::WIFEXITED(status) {
        return TaskChange::Exited(libc::WEXITSTATUS(status) as u8);
    }
    if libc::WIFSIGNALED(status) {
        return TaskChange::Killed(libc::WTERMSIG(status) as u8);
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => TaskChange::AtCall,
        0 => TaskChange::AtSignal(signal),
        event => TaskChange::AtEvent { event, signal },
    }
}

/// Waits for one of `signals`, which are blocked. `None` once `limit` has passed.
pub(crate) fn wait_for(signals: &libc::sigset_t, limit: Option<Duration>) -> Option<c_int> {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the kernel reads the set and the time during the call.
    let signal = unsafe { libc::sigtimedwait(signals, ptr::null_mut(), limit) };
    (signal > 0).then_some(signal)
}

/// Sends a signal. That the process has ended is no error.
pub(crate) fn send(pid: pid_t, signal: c_int) {
    // SAFETY: it takes numbers.
    unsafe { libc::kill(pid, signal) };
}

/// Has this process told of its children, as it was perhaps not (a caller may ignore SIGCHLD). True
/// if it was not.
pub(crate) fn listen_for_children() -> bool {
    // SAFETY: the default action runs no code of this process.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_IGN }
}
