//! Executing a program. It inherits descriptors, also of absorbed files, and writes past this
//! library if that is not loaded into it: a static program, one of another user, one that is
//! executed without our environment. Then the files are made plain before.
#![expect(
    unsafe_code,
    reason = "exports C functions; reads the strings they are given"
)]

use crate::{
    call_context::{FailedCall, is_client, missing},
    client_call::{client, tell_client},
    handler::{HookHandler as _, handlers},
    real::hidden,
    variadic::{HiddenFunction, go_on},
};
use enter::Execution;
use executed_program::{ExecutedProgram, text};
use forebay_files::{ENV_ABSORB, ENV_SOCKET, ENV_TABLE, ENV_TOKEN, client};
use libc::{c_char, c_int, c_long, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    io::Errno,
};
use std::{ffi::OsStr, fs::File, os::unix::ffi::OsStrExt, ptr};

mod enter;
mod environment;
mod executed_program;

type StringArray = *const *const c_char;

unsafe extern "C" {
    static mut environ: StringArray;
}

fn own_environment() -> StringArray {
    // SAFETY: as the C library's own functions read it.
    unsafe { environ }
}

handlers! {
    fn execve(path: *const c_char, arguments: StringArray, environment: StringArray) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Path(path), arguments, environment, |image| {
        // SAFETY: our caller's arguments, or what stands for them.
        unsafe { real(image.file, image.arguments, image.environment) }
    });

    fn execv(path: *const c_char, arguments: StringArray) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Path(path), arguments, own_environment(), |image| match execve::hidden() {
        // SAFETY: our caller's arguments, or what stands for them.
        Some(execve) if image.environment != own_environment() => unsafe { execve(image.file, image.arguments, image.environment) },
        // SAFETY: as above.
        _ => unsafe { real(path, arguments) },
    });

    fn execvp(file: *const c_char, arguments: StringArray) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Named(file), arguments, own_environment(), |image| match execvpe::hidden() {
        // SAFETY: our caller's arguments, or what stands for them.
        Some(execvpe) if image.environment != own_environment() => unsafe { execvpe(image.file, image.arguments, image.environment) },
        // SAFETY: as above.
        _ => unsafe { real(file, arguments) },
    });

    fn execvpe(file: *const c_char, arguments: StringArray, environment: StringArray) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Named(file), arguments, environment, |image| {
        // SAFETY: our caller's arguments, or what stands for them.
        unsafe { real(image.file, image.arguments, image.environment) }
    });

    fn fexecve(fd: c_int, arguments: StringArray, environment: StringArray) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Below(fd, c"".as_ptr()), arguments, environment, |image| {
        // SAFETY: our caller's arguments, or another environment.
        unsafe { real(fd, arguments, image.environment) }
    });

    fn execveat(dir: c_int, path: *const c_char, arguments: StringArray, environment: StringArray, flags: c_int) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Below(dir, path), arguments, environment, |image| {
        // SAFETY: our caller's arguments, or another environment.
        unsafe { real(dir, path, arguments, image.environment, flags) }
    });

    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: StringArray, environment: StringArray) -> c_int;
    missing libc::ENOSYS;
    plain if false;
    else |real| spawn(ExecutedProgram::Path(path), (actions, arguments, environment), |image| {
        // SAFETY: our caller's arguments, or what stands for them.
        unsafe { real(pid, image.file, actions, attributes, image.arguments, image.environment) }
    });

    fn posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: StringArray, environment: StringArray) -> c_int;
    missing libc::ENOSYS;
    plain if false;
    else |real| spawn(ExecutedProgram::Named(file), (actions, arguments, environment), |image| {
        // SAFETY: our caller's arguments, or what stands for them.
        unsafe { real(pid, image.file, actions, attributes, image.arguments, image.environment) }
    });

    // In the C library since glibc 2.39.
    fn pidfd_spawn(pidfd: *mut c_int, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: StringArray, environment: StringArray) -> c_int;
    missing libc::ENOSYS;
    plain if false;
    else |real| spawn(ExecutedProgram::Path(path), (actions, arguments, environment), |image| {
        // SAFETY: our caller's arguments, or what stands for them.
        unsafe { real(pidfd, image.file, actions, attributes, image.arguments, image.environment) }
    });

    fn pidfd_spawnp(pidfd: *mut c_int, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: StringArray, environment: StringArray) -> c_int;
    missing libc::ENOSYS;
    plain if false;
    else |real| spawn(ExecutedProgram::Named(file), (actions, arguments, environment), |image| {
        // SAFETY: our caller's arguments, or what stands for them.
        unsafe { real(pidfd, image.file, actions, attributes, image.arguments, image.environment) }
    });

    fn posix_spawn_file_actions_adddup2(actions: *mut posix_spawn_file_actions_t, from: c_int, to: c_int) -> c_int;
    missing libc::ENOSYS;
    plain if false;
    else |real| {
        tell_client(|| client::given(from));
        // SAFETY: our caller's arguments.
        unsafe { real(actions, from, to) }
    };

    fn system(command: *const c_char) -> c_int;
    missing missing(-1);
    plain if command.is_null();
    else |real| match before_shell() {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(command) },
        Err(failed) => failed.with(-1),
    };
}

/// True if an environment has this library loaded, and tells it of the run.
fn has_library(environment: StringArray) -> bool {
    if environment.is_null() {
        return false;
    }
    let mut has = [false; 5];
    let mut at = environment;
    // SAFETY: an array of strings that ends with a null pointer.
    while let Some(variable) = text(unsafe { *at }) {
        let variable = variable.as_bytes();
        let value = |name: &str| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=");
        let names = [ENV_SOCKET, ENV_TOKEN, ENV_TABLE, ENV_ABSORB];
        for (has, name) in has.iter_mut().zip(names) {
            *has |= value(name).is_some();
        }
        has[4] |= value("LD_PRELOAD").is_some_and(loads_library);
        // SAFETY: it was not the last.
        at = unsafe { at.add(1) };
    }
    has == [true; 5]
}

/// Begins the name of this library, and of the laboratory's.
const LIBRARY: &[u8] = b"libforebay";

/// True if a list of libraries has this one, at a path where the dynamic linker finds it. In a
/// process that has changed its root, or its mounts, or who it is, it may be nowhere, and then the
/// program goes on without it.
fn loads_library(list: &[u8]) -> bool {
    let mut ours = libraries(list).filter(|path| is_ours(path)).peekable();
    ours.peek().is_some() && ours.all(is_in_reach)
}

/// The libraries of a list.
fn libraries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| matches!(byte, b':' | b' '))
        .filter(|path| !path.is_empty())
}

fn is_ours(path: &[u8]) -> bool {
    path.windows(LIBRARY.len()).any(|part| part == LIBRARY)
}

/// True if the dynamic linker finds a library at this path, as the process is now. One without a
/// slash it searches for.
fn is_in_reach(path: &[u8]) -> bool {
    if !path.contains(&b'/') {
        return true;
    }
    match accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) {
        Ok(()) => true,
        Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR) => false,
        // A process whose effective user is not its real one, or a filter (seccomp).
        Err(_) => File::open(OsStr::from_bytes(path)).is_ok(),
    }
}

/// Before a program is executed, by this process or a child of it.
///
/// # Errors
/// It must not be: it would write past the lane.
fn before(program: &ExecutedProgram, environment: StringArray) -> Result<(), FailedCall> {
    if is_client() {
        return Ok(());
    }
    client(|| {
        let is_followed =
            || has_library(environment) && program.is_followed() && client::is_table_in_reach();
        if !client::any_absorbed() || is_followed() {
            return Ok(());
        }
        client::executing_past()
    })
}

/// As [`before`], of a shell that gets this program's environment.
pub(crate) fn before_shell() -> Result<(), FailedCall> {
    before(&ExecutedProgram::Shell, own_environment())
}

/// The executed image: the caller's own file and arguments, or their stand-ins.
struct ExecutedImage {
    file: *const c_char,
    arguments: StringArray,
    environment: StringArray,
}

/// Executes a program by `real`.
fn execute(
    program: ExecutedProgram,
    arguments: StringArray,
    environment: StringArray,
    real: impl Fn(&ExecutedImage) -> c_int,
) -> c_int {
    if let Err(failed) = before(&program, environment) {
        return failed.with(-1);
    }
    let execution = Execution {
        program: &program,
        arguments,
        environment,
        is_in_place: true,
    };
    // It returns only if that was not executed.
    let _ = enter::by_agent(&execution, &real);
    execution.as_it_is(real)
}

/// The same by a function that returns the error number, in a child that does `actions` before.
fn spawn(
    program: ExecutedProgram,
    (actions, arguments, environment): (
        *const posix_spawn_file_actions_t,
        StringArray,
        StringArray,
    ),
    real: impl Fn(&ExecutedImage) -> c_int,
) -> c_int {
    if let Err(failed) = before(&program, environment) {
        return failed.number();
    }
    let execution = Execution {
        program: &program,
        arguments,
        environment,
        // It may go to another directory.
        is_in_place: actions.is_null(),
    };
    let entered = enter::by_agent(&execution, &real);
    let result = match entered {
        Some(0) => 0,
        _ => execution.as_it_is(real),
    };
    if result == 0 && client::counts_changes() {
        // The child may have made a file, by an action before it executed the program.
        client::changed_on(None);
    }
    result
}

impl Execution<'_> {
    /// Executes it with an environment that fits it.
    fn as_it_is<T>(&self, real: impl FnOnce(&ExecutedImage) -> T) -> T {
        environment::fitting(self.program, self.environment, |environment| {
            real(&ExecutedImage {
                file: self.program.file(),
                arguments: self.arguments,
                environment,
            })
        })
    }
}

/// `execve`, by the system call.
pub(crate) fn execve_by_number(
    path: *const c_char,
    (arguments, environment): (StringArray, StringArray),
    real: impl Fn([c_long; 3]) -> c_long,
) -> c_long {
    let program = ExecutedProgram::Path(path);
    if let Err(failed) = before(&program, environment) {
        return failed.with(-1);
    }
    let execution = Execution {
        program: &program,
        arguments,
        environment,
        is_in_place: true,
    };
    let by_words = |image: &ExecutedImage| {
        real([
            image.file.expose_provenance() as c_long,
            image.arguments.expose_provenance() as c_long,
            image.environment.expose_provenance() as c_long,
        ])
    };
    let _ = enter::by_agent(&execution, by_words);
    execution.as_it_is(by_words)
}

/// `execveat`, by the system call.
pub(crate) fn execveat_by_number(
    (dir, path): (c_int, *const c_char),
    environment: StringArray,
    real: impl FnOnce(StringArray) -> c_long,
) -> c_long {
    let program = ExecutedProgram::Below(dir, path);
    match before(&program, environment) {
        Ok(()) => environment::fitting(&program, environment, real),
        Err(failed) => failed.with(-1),
    }
}

/// Before one of those with a list of arguments, which are variadic. The C library's function takes
/// this process's own environment: that is changed, unless it is the parent's of a child of
/// `vfork`.
fn before_listed(program: &ExecutedProgram) -> Result<(), FailedCall> {
    before(program, own_environment())?;
    if !client::in_vforked_child()
        && let Some(fitting) = environment::kept(program, own_environment())
    {
        // SAFETY: as `setenv` does. If nothing is executed, later programs are executed without
        // this library, as a program that has changed its environment does.
        unsafe { environ = fitting };
    }
    Ok(())
}

pub(crate) extern "C-unwind" fn execl(path: *const c_char) -> HiddenFunction {
    go_on(&hidden::execl, || {
        before_listed(&ExecutedProgram::Path(path))
    })
}

pub(crate) extern "C-unwind" fn execlp(name: *const c_char) -> HiddenFunction {
    go_on(&hidden::execlp, || {
        before_listed(&ExecutedProgram::Named(name))
    })
}

pub(crate) extern "C-unwind" fn execle() -> HiddenFunction {
    go_on(&hidden::execle, || {
        before(&ExecutedProgram::Unknown, ptr::null())
    })
}
