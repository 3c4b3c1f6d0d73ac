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
use forebay_files::{ENV_ABSORB, ENV_SOCKET, ENV_TABLE, ENV_TOKEN, client, program};
use libc::{c_char, c_int, c_long, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    io::Errno,
};
use std::{
    ffi::{CStr, OsStr},
    fs::File,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
};

mod environment;

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
    else |real| execute(ExecutedProgram::Path(path), environment, |environment| {
        // SAFETY: our caller's arguments.
        unsafe { real(path, arguments, environment) }
    });

    fn execv(path: *const c_char, arguments: StringArray) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Path(path), own_environment(), |environment| match execve::hidden() {
        // SAFETY: our caller's arguments.
        Some(execve) if environment != own_environment() => unsafe { execve(path, arguments, environment) },
        // SAFETY: as above.
        _ => unsafe { real(path, arguments) },
    });

    fn execvp(file: *const c_char, arguments: StringArray) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Named(file), own_environment(), |environment| match execvpe::hidden() {
        // SAFETY: our caller's arguments.
        Some(execvpe) if environment != own_environment() => unsafe { execvpe(file, arguments, environment) },
        // SAFETY: as above.
        _ => unsafe { real(file, arguments) },
    });

    fn execvpe(file: *const c_char, arguments: StringArray, environment: StringArray) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Named(file), environment, |environment| {
        // SAFETY: our caller's arguments.
        unsafe { real(file, arguments, environment) }
    });

    fn fexecve(fd: c_int, arguments: StringArray, environment: StringArray) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Below(fd, c"".as_ptr()), environment, |environment| {
        // SAFETY: our caller's arguments.
        unsafe { real(fd, arguments, environment) }
    });

    fn execveat(dir: c_int, path: *const c_char, arguments: StringArray, environment: StringArray, flags: c_int) -> c_int;
    missing missing(-1);
    plain if false;
    else |real| execute(ExecutedProgram::Below(dir, path), environment, |environment| {
        // SAFETY: our caller's arguments.
        unsafe { real(dir, path, arguments, environment, flags) }
    });

    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: StringArray, environment: StringArray) -> c_int;
    missing libc::ENOSYS;
    plain if false;
    else |real| spawn(ExecutedProgram::Path(path), environment, |environment| {
        // SAFETY: our caller's arguments.
        unsafe { real(pid, path, actions, attributes, arguments, environment) }
    });

    fn posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: StringArray, environment: StringArray) -> c_int;
    missing libc::ENOSYS;
    plain if false;
    else |real| spawn(ExecutedProgram::Named(file), environment, |environment| {
        // SAFETY: our caller's arguments.
        unsafe { real(pid, file, actions, attributes, arguments, environment) }
    });

    // In the C library since glibc 2.39.
    fn pidfd_spawn(pidfd: *mut c_int, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: StringArray, environment: StringArray) -> c_int;
    missing libc::ENOSYS;
    plain if false;
    else |real| spawn(ExecutedProgram::Path(path), environment, |environment| {
        // SAFETY: our caller's arguments.
        unsafe { real(pidfd, path, actions, attributes, arguments, environment) }
    });

    fn pidfd_spawnp(pidfd: *mut c_int, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: StringArray, environment: StringArray) -> c_int;
    missing libc::ENOSYS;
    plain if false;
    else |real| spawn(ExecutedProgram::Named(file), environment, |environment| {
        // SAFETY: our caller's arguments.
        unsafe { real(pidfd, file, actions, attributes, arguments, environment) }
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

/// What is to be executed.
enum ExecutedProgram {
    Path(*const c_char),
    /// Searched for, if there is no slash in it.
    Named(*const c_char),
    /// Below a directory; without a path, what is open itself.
    Below(c_int, *const c_char),
    Shell,
    /// Its environment is not known.
    Unknown,
}

impl ExecutedProgram {
    /// Whether its dynamic linker is one that this library cannot be given to.
    fn has_other_linker(&self) -> bool {
        let has = |path: &Path| program::has_other_linker(path);
        match *self {
            Self::Path(path) => text(path).is_some_and(|path| has(Path::new(path))),
            Self::Named(name) => match text(name) {
                Some(name) if !name.as_bytes().contains(&b'/') => {
                    let found = in_search_path(name).find(|path| path.is_file());
                    found.is_some_and(|path| has(&path))
                }
                name => name.is_some_and(|name| has(Path::new(name))),
            },
            Self::Below(dir, path) => match text(path) {
                Some(path) if Path::new(path).is_absolute() || dir == libc::AT_FDCWD => {
                    has(Path::new(path))
                }
                path => {
                    let below = PathBuf::from(format!("/proc/self/fd/{dir}"));
                    match path.filter(|path| !path.is_empty()) {
                        Some(path) => has(&below.join(path)),
                        None => has(&below),
                    }
                }
            },
            Self::Shell | Self::Unknown => false,
        }
    }

    /// Whether it is followed. One that is not found is not executed.
    fn is_followed(&self) -> bool {
        let followed =
            |path: Option<&OsStr>| path.is_none_or(|path| program::is_followed(Path::new(path)));
        match *self {
            Self::Path(path) => followed(text(path)),
            Self::Named(name) => match text(name) {
                Some(name) if !name.as_bytes().contains(&b'/') => searched(name),
                name => followed(name),
            },
            Self::Below(dir, path) => {
                let below = format!("/proc/self/fd/{dir}");
                match text(path) {
                    Some(path) if Path::new(path).is_absolute() || dir == libc::AT_FDCWD => {
                        followed(Some(path))
                    }
                    Some(path) if !path.is_empty() => {
                        program::is_followed(&Path::new(&below).join(path))
                    }
                    _ => program::is_followed(Path::new(&below)),
                }
            }
            Self::Shell => program::is_followed(Path::new("/bin/sh")),
            Self::Unknown => false,
        }
    }
}

fn text<'a>(of: *const c_char) -> Option<&'a OsStr> {
    // SAFETY: our caller gives a string, or nothing, and does not change it meanwhile.
    (!of.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(of) }.to_bytes()))
}

/// Whether every program of this name that may be meant is followed.
fn searched(name: &OsStr) -> bool {
    in_search_path(name).all(|path| program::is_followed(&path))
}

fn in_search_path(name: &OsStr) -> impl Iterator<Item = PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let dirs: Vec<PathBuf> = std::env::split_paths(&search).collect();
    dirs.into_iter().map(move |dir| dir.join(name))
}

/// Whether an environment has this library loaded, and tells it of the run.
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

/// Whether a list of libraries has this one, where the dynamic linker finds it. In a process that
/// has changed its root, or its mounts, or who it is, it may be nowhere, and then the program goes
/// on without it.
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

/// Whether the dynamic linker finds a library at this path, as the process is now. One without a
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

/// Executes a program by `real`, which gets the environment for it.
fn execute(
    program: ExecutedProgram,
    environment: StringArray,
    real: impl FnOnce(StringArray) -> c_int,
) -> c_int {
    match before(&program, environment) {
        Ok(()) => environment::fitting(&program, environment, real),
        Err(failed) => failed.with(-1),
    }
}

/// The same by a function that returns the error number.
fn spawn(
    program: ExecutedProgram,
    environment: StringArray,
    real: impl FnOnce(StringArray) -> c_int,
) -> c_int {
    match before(&program, environment) {
        Ok(()) => {
            let result = environment::fitting(&program, environment, real);
            if result == 0 && client::counts_changes() {
                // The child may have made a file, by an action before it executed the program.
                client::changed_on(None);
            }
            result
        }
        Err(failed) => failed.number(),
    }
}

/// The same by a system call.
pub(crate) fn by_number(
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
