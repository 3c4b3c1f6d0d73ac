//! The kernel's calls of a tracer: tasks that stop at the system calls of a filter, and their
//! registers. x86-64 alone.
#![allow(
    unsafe_code,
    reason = "ptrace, waitpid and what a child does before it executes"
)]

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JUMP, BPF_K, BPF_LD, BPF_RET, BPF_STMT, BPF_W, c_int, c_long,
    c_uint, pid_t, sock_filter, user_regs_struct,
};
use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command},
    ptr,
};

/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xC000_003E;

/// The change of a task that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It has ended.
    Gone,
    /// It is about to do a call of the filter.
    Entry,
    /// It has done a call.
    Exit,
    /// It has made another task.
    Made(pid_t),
    /// It has made another task, and goes on once that has executed a program.
    MadeAndWaits(pid_t),
    /// It is another program now.
    Executed,
    /// It was stopped when it began.
    Begun,
    /// A signal is about to be delivered.
    Signal(c_int),
}

/// Starts a program whose calls of these numbers stop it, and which is stopped at its first
/// instruction. Its addresses are the same each time.
pub fn start(command: &mut Command, calls: &[c_long]) -> io::Result<Child> {
    let filter = program(calls);
    // SAFETY: the child makes system calls alone, and its program was made before.
    unsafe {
        command.pre_exec(move || {
            const FIXED: libc::c_ulong = libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
            let described = libc::sock_fprog {
                len: filter.len() as u16,
                filter: filter.as_ptr().cast_mut(),
            };
            let done = libc::personality(FIXED) >= 0
                && libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::syscall(
                    libc::SYS_seccomp,
                    libc::SECCOMP_SET_MODE_FILTER,
                    0,
                    &raw const described,
                ) == 0;
            done.then_some(()).ok_or_else(io::Error::last_os_error)
        });
    }
    let child = command.spawn()?;
    let task = child.id().cast_signed();
    wait(task)?;
    let options = libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SETOPTIONS, task, options.into())?;
    Ok(child)
}

fn program(calls: &[c_long]) -> Vec<sock_filter> {
    const LOAD: u16 = (BPF_LD | BPF_W | BPF_ABS) as u16;
    const EQUAL: u16 = (BPF_JMP | BPF_JEQ | BPF_K) as u16;
    const RETURN: u16 = (BPF_RET | BPF_K) as u16;
    // SAFETY: they make values of their arguments.
    let (step, jump) = unsafe {
        (
            |code, k| BPF_STMT(code, k),
            |code, k, yes, no| BPF_JUMP(code, k, yes, no),
        )
    };
    let mut code = vec![
        step(LOAD, 4),
        jump(EQUAL, ARCHITECTURE, 1, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW),
        step(LOAD, 0),
    ];
    for call in calls {
        code.push(jump(EQUAL, *call as u32, 0, 1));
        code.push(step(RETURN, libc::SECCOMP_RET_TRACE));
    }
    code.push(step(RETURN, libc::SECCOMP_RET_ALLOW));
    code
}

/// Waits for the task's next change.
pub fn wait(task: pid_t) -> io::Result<Stop> {
    let mut status = 0;
    let options = libc::__WALL | libc::__WNOTHREAD;
    loop {
        // SAFETY: the kernel writes one number there.
        let found = unsafe { libc::waitpid(task, &raw mut status, options) };
        if found == task {
            break;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(Stop::Gone),
            _ => return Err(error),
        }
    }
    if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
        return Ok(Stop::Gone);
    }
    let signal = libc::WSTOPSIG(status);
    Ok(match status >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => Stop::Exit,
        0 => Stop::Signal(signal),
        libc::PTRACE_EVENT_SECCOMP => Stop::Entry,
        libc::PTRACE_EVENT_EXEC => Stop::Executed,
        libc::PTRACE_EVENT_VFORK => Stop::MadeAndWaits(message(task)?),
        libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK => Stop::Made(message(task)?),
        _ => Stop::Begun,
    })
}

fn message(task: pid_t) -> io::Result<pid_t> {
    let mut message: libc::c_ulong = 0;
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel writes one number there.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, task, none, &raw mut message) };
    (done == 0)
        .then_some(message as pid_t)
        .ok_or_else(io::Error::last_os_error)
}

/// Lets the task go on to its next call, with this signal.
pub fn go_on(task: pid_t, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, task, signal.into())
}

/// Lets the task do the call that it is stopped at.
pub fn do_call(task: pid_t) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, task, 0)
}

fn request(request: c_uint, task: pid_t, data: c_long) -> io::Result<()> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests take numbers.
    let done = unsafe { libc::ptrace(request, task, none, data) };
    (done == 0)
        .then_some(())
        .ok_or_else(io::Error::last_os_error)
}

pub fn registers(task: pid_t) -> io::Result<user_regs_struct> {
    let mut registers = MaybeUninit::<user_regs_struct>::zeroed();
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel fills the structure, of which zeros are a value.
    unsafe {
        let done = libc::ptrace(libc::PTRACE_GETREGS, task, none, registers.as_mut_ptr());
        (done == 0)
            .then(|| registers.assume_init())
            .ok_or_else(io::Error::last_os_error)
    }
}

pub fn set_registers(task: pid_t, registers: &user_regs_struct) -> io::Result<()> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel reads the structure.
    let done = unsafe { libc::ptrace(libc::PTRACE_SETREGS, task, none, &raw const *registers) };
    (done == 0)
        .then_some(())
        .ok_or_else(io::Error::last_os_error)
}

/// Another process's descriptor, as one of this process.
pub fn copy_of_descriptor(process: &File, fd: c_int) -> io::Result<OwnedFd> {
    // SAFETY: the number that the kernel gives is a new descriptor's.
    unsafe {
        let copy = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0);
        (copy >= 0)
            .then(|| OwnedFd::from_raw_fd(copy as c_int))
            .ok_or_else(io::Error::last_os_error)
    }
}

/// The descriptor by which [`copy_of_descriptor`] knows a process.
pub fn process(pid: pid_t) -> io::Result<File> {
    // SAFETY: as above.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0)
            .then(|| File::from_raw_fd(fd as c_int))
            .ok_or_else(io::Error::last_os_error)
    }
}

pub fn kill(process: pid_t) {
    // SAFETY: it takes numbers.
    unsafe { libc::kill(process, libc::SIGKILL) };
}
