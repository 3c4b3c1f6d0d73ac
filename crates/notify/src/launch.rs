//! Starting the program with the filter.
//!
//! 1. The child is made with the agent's table of descriptors (`CLONE_FILES`), and with memory of
//!    its own. It has the signals and limits that the program is to have.
//! 2. It installs the filter. The listener is then open in the agent, too, under the number that
//!    the child says by a pipe.
//! 3. The agent has others hold the listener and begins to serve, and then lets the child go on.
//! 4. The child takes descriptors of its own and executes the program. If that fails, it says why
//!    by the pipe, which else is closed.
//!
//! The agent has one thread until then, so the child may do what it likes.
#![expect(
    unsafe_code,
    reason = "makes a process, and acts in it before it is a program"
)]

use crate::{filter::filter, listener::last_errno, number_window::NumberWindow};
use forebay_files::activation;
use libc::{c_char, c_int, c_long, sock_fprog};
use rustix::{
    io::Errno,
    process::{Pid, Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    ffi::CString,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
};

/// A program to be executed.
pub struct ProgramImage {
    /// Its path.
    pub path: CString,
    /// With its name.
    pub arguments: Vec<CString>,
    /// `NAME=value`
    pub environment: Vec<CString>,
    /// The signals that it begins with blocked.
    pub blocked: libc::sigset_t,
    /// The signals that this process ignores and the program does not.
    pub defaults: Vec<c_int>,
}

impl ProgramImage {
    /// Of a child that is not let go.
    pub(crate) fn nothing() -> Self {
        // SAFETY: a set of signals without any.
        let blocked = unsafe { std::mem::zeroed() };
        Self {
            path: CString::default(),
            arguments: Vec::new(),
            environment: Vec::new(),
            blocked,
            defaults: Vec::new(),
        }
    }
}

/// The child's words before it is the program.
#[derive(Clone, Copy)]
#[repr(i64)]
enum ChildWord {
    /// The listener's number follows.
    Listener = 1,
    /// There is no filter: an error number follows.
    Unfiltered = 2,
    /// It has descriptors of its own.
    Apart = 3,
    /// The program cannot be executed: an error number follows.
    NotExecuted = 4,
}

/// A child that has the filter, or cannot have it, and waits.
pub(crate) struct WaitingChild {
    pub(crate) pid: Pid,
    /// The listener, or why there is none.
    pub(crate) listener: Result<OwnedFd, Errno>,
    says: OwnedFd,
    /// The other end, as long as the child has it by this process's table.
    said: OwnedFd,
    goes: OwnedFd,
    _may_go: OwnedFd,
}

/// Starts a child as in the module's head, up to 2. Without a window it gets no filter.
///
/// # Errors
/// There is no process to be had.
pub(crate) fn start(
    program: &ProgramImage,
    window: Option<NumberWindow>,
) -> Result<WaitingChild, Errno> {
    let (says, said) = pipe()?;
    let (may_go, goes) = pipe()?;
    let mut image = ExecImage::new(program);
    let steps = window.map(filter);
    let ends = ChildPipes {
        says: said.as_raw_fd(),
        may_go: may_go.as_raw_fd(),
    };
    // Without a filter there is nothing to be had of its descriptors.
    let shares = window.map_or(0, |_| libc::CLONE_FILES);
    // SAFETY: a child without memory in common; the C library's `fork` would give it descriptors of
    // its own.
    let child = unsafe {
        libc::syscall(
            libc::SYS_clone,
            c_long::from(shares | libc::SIGCHLD),
            0,
            0,
            0,
            0,
        )
    };
    if child == 0 {
        image.name_child();
        child_main(&image, program, steps.as_deref(), window, ends);
    }
    if child < 0 {
        return Err(last_errno());
    }
    let pid = Pid::from_raw(child as i32).ok_or(Errno::CHILD)?;
    let listener = match read_word(&says) {
        Some((word, value)) if word == ChildWord::Listener as i64 => {
            // SAFETY: the child opened it for this process.
            Ok(unsafe { OwnedFd::from_raw_fd(value as c_int) })
        }
        Some((_, value)) => Err(Errno::from_raw_os_error(value as i32)),
        None => Err(Errno::CHILD),
    };
    Ok(WaitingChild {
        pid,
        listener,
        says,
        said,
        goes,
        _may_go: may_go,
    })
}

impl WaitingChild {
    /// Lets the child execute the program.
    ///
    /// # Errors
    /// Why that failed.
    pub(crate) fn go(self) -> Result<(), Errno> {
        rustix::io::write(&self.goes, &[1])?;
        let Some((word, errno)) = read_word(&self.says) else {
            return Err(Errno::CHILD);
        };
        if word != ChildWord::Apart as i64 {
            return Err(Errno::from_raw_os_error(errno as i32));
        }
        drop(self.said);
        match read_word(&self.says) {
            Some((_, errno)) => Err(Errno::from_raw_os_error(errno as i32)),
            None => Ok(()),
        }
    }

    /// Ends the child, which was not let go.
    pub(crate) fn end(self) {
        let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }
}

/// Its reading end, and its writing one.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [0; 2];
    // SAFETY: there is room for both; they are new.
    unsafe {
        match libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) {
            0 => Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))),
            _ => Err(last_errno()),
        }
    }
}

fn read_word(from: &OwnedFd) -> Option<(i64, i64)> {
    let mut bytes = [0; 16];
    let read = rustix::io::read(from, &mut bytes).ok()?;
    let word = |at: usize| i64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    (read == bytes.len()).then(|| (word(0), word(8)))
}

/// Pointers for `execve`, and copies of the variables that are to name the process itself
/// ([`activation`]), with where they stand and where their value begins.
struct ExecImage {
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    naming: Vec<(usize, usize, Vec<u8>)>,
}

impl ExecImage {
    fn new(program: &ProgramImage) -> Self {
        let pointers = |of: &[CString]| {
            let all = of.iter().map(|text| text.as_ptr());
            all.chain([ptr::null()]).collect()
        };
        let naming = program.environment.iter().enumerate();
        let naming = naming.filter_map(|(at, variable)| {
            let bytes = variable.as_bytes_with_nul();
            let value = bytes.iter().position(|byte| *byte == b'=')? + 1;
            let is_naming = variable.as_bytes()[value..] == *activation::PROGRAM.as_bytes();
            is_naming.then(|| (at, value, bytes.to_vec()))
        });
        Self {
            arguments: pointers(&program.arguments),
            environment: pointers(&program.environment),
            naming: naming.collect(),
        }
    }

    /// In the child, without allocating: they name it.
    fn name_child(&mut self) {
        let mut digits = [0; 20];
        let mut rest = std::process::id();
        let mut first = digits.len();
        while rest > 0 || first == digits.len() {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        for (at, value, variable) in &mut self.naming {
            let digits = &digits[first..];
            variable[*value..*value + digits.len()].copy_from_slice(digits);
            variable[*value + digits.len()] = 0;
            self.environment[*at] = variable.as_ptr().cast();
        }
    }
}

#[derive(Clone, Copy)]
struct ChildPipes {
    says: c_int,
    may_go: c_int,
}

/// In the child.
fn child_main(
    image: &ExecImage,
    program: &ProgramImage,
    steps: Option<&[libc::sock_filter]>,
    window: Option<NumberWindow>,
    pipes: ChildPipes,
) -> ! {
    let say = |word: ChildWord, value: i64| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(word as i64).to_ne_bytes());
        bytes[8..].copy_from_slice(&value.to_ne_bytes());
        // SAFETY: the bytes are there.
        unsafe { libc::write(pipes.says, bytes.as_ptr().cast(), bytes.len()) };
    };
    // SAFETY: a process of one thread, and its own memory; each call gets what it takes.
    unsafe {
        // It does not wait for an agent that has died.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for signal in &program.defaults {
            libc::signal(*signal, libc::SIG_DFL);
        }
        if let Some(window) = window {
            raise_limit(window);
        }
        match steps.map_or(Err(Errno::NOSYS), |steps| install(steps, true)) {
            Ok(listener) => say(ChildWord::Listener, listener.into()),
            Err(errno) => say(ChildWord::Unfiltered, errno.raw_os_error().into()),
        }
        let mut byte = 0_u8;
        if libc::read(pipes.may_go, (&raw mut byte).cast(), 1) == 1 {
            if window.is_some() && libc::unshare(libc::CLONE_FILES) != 0 {
                say(ChildWord::NotExecuted, last_errno().raw_os_error().into());
                libc::_exit(127);
            }
            say(ChildWord::Apart, 0);
            libc::prctl(libc::PR_SET_PDEATHSIG, 0);
            libc::sigprocmask(
                libc::SIG_SETMASK,
                &raw const program.blocked,
                ptr::null_mut(),
            );
            libc::execve(
                program.path.as_ptr(),
                image.arguments.as_ptr(),
                image.environment.as_ptr(),
            );
            say(ChildWord::NotExecuted, last_errno().raw_os_error().into());
        }
        libc::_exit(127)
    }
}

/// The program may have logs by the numbers of the window.
pub(crate) fn raise_limit(window: NumberWindow) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = window.end as u64;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(wanted);
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Installs the filter in this thread: the listener. Where that takes a right which the process has
/// not, it gives up gaining rights for it, if it may.
///
/// # Errors
/// The kernel's: `EACCES` if it must not.
pub(crate) fn install(steps: &[libc::sock_filter], costs_rights: bool) -> Result<c_int, Errno> {
    let program = sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_ptr().cast_mut(),
    };
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let install = || {
        // SAFETY: the program is there as long as the call lasts.
        let listener = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        c_int::try_from(listener)
            .ok()
            .filter(|fd| *fd >= 0)
            .ok_or_else(last_errno)
    };
    install().or_else(|errno| match errno {
        Errno::ACCESS if costs_rights => {
            // Without the right, only a process that gains none by executing may.
            // SAFETY: it takes numbers.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            install()
        }
        errno => Err(errno),
    })
}
