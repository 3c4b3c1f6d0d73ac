//! Executing a program. It inherits descriptors, also of absorbed files, and writes past this library if that is not loaded into it: a static program, one of
//! another user, one that is executed without our environment. Then the files are made plain before.
#![expect(
    unsafe_code,
    reason = "exports C functions; reads the strings they are given"
)]

use crate::{
    call_context::{Failed, is_client, missing, set_errno},
    client_call::client,
    real::hooks,
};
use forebay_files::{ENV_ABSORB, ENV_SOCKET, ENV_TABLE, ENV_TOKEN, client, program};
use libc::{c_char, c_int, c_void, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use std::{
    ffi::{CStr, OsStr},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

type Strings = *const *const c_char;

unsafe extern "C" {
    static environ: Strings;
}

fn own_environment() -> Strings {
    // SAFETY: as the C library's own functions read it.
    unsafe { environ }
}

hooks! {
    fn [execve] (path: *const c_char, arguments: Strings, environment: Strings) -> c_int;
    missing missing(-1);
    plain if is_client();
    else |real| match before(Program::Path(path), environment) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(path, arguments, environment) },
        Err(failed) => failed.with(-1),
    };

    fn [execv] (path: *const c_char, arguments: Strings) -> c_int;
    missing missing(-1);
    plain if is_client();
    else |real| match before(Program::Path(path), own_environment()) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(path, arguments) },
        Err(failed) => failed.with(-1),
    };

    fn [execvp] (file: *const c_char, arguments: Strings) -> c_int;
    missing missing(-1);
    plain if is_client();
    else |real| match before(Program::Named(file), own_environment()) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(file, arguments) },
        Err(failed) => failed.with(-1),
    };

    fn [execvpe] (file: *const c_char, arguments: Strings, environment: Strings) -> c_int;
    missing missing(-1);
    plain if is_client();
    else |real| match before(Program::Named(file), environment) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(file, arguments, environment) },
        Err(failed) => failed.with(-1),
    };

    fn [fexecve] (fd: c_int, arguments: Strings, environment: Strings) -> c_int;
    missing missing(-1);
    plain if is_client();
    else |real| match before(Program::Below(fd, c"".as_ptr()), environment) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(fd, arguments, environment) },
        Err(failed) => failed.with(-1),
    };

    fn [execveat] (dir: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int) -> c_int;
    missing missing(-1);
    plain if is_client();
    else |real| match before(Program::Below(dir, path), environment) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(dir, path, arguments, environment, flags) },
        Err(failed) => failed.with(-1),
    };

    fn [posix_spawn] (pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: Strings, environment: Strings) -> c_int;
    missing libc::ENOSYS;
    plain if is_client();
    else |real| match before(Program::Path(path), environment) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(pid, path, actions, attributes, arguments, environment) },
        Err(failed) => failed.number(),
    };

    fn [posix_spawnp] (pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: Strings, environment: Strings) -> c_int;
    missing libc::ENOSYS;
    plain if is_client();
    else |real| match before(Program::Named(file), environment) {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(pid, file, actions, attributes, arguments, environment) },
        Err(failed) => failed.number(),
    };

    fn [posix_spawn_file_actions_adddup2] (actions: *mut posix_spawn_file_actions_t, from: c_int, to: c_int) -> c_int;
    missing libc::ENOSYS;
    plain if is_client();
    else |real| {
        note_given(from);
        // SAFETY: our caller's arguments.
        unsafe { real(actions, from, to) }
    };

    fn [system] (command: *const c_char) -> c_int;
    missing missing(-1);
    plain if is_client() || command.is_null();
    else |real| match before_shell() {
        // SAFETY: our caller's arguments.
        Ok(()) => unsafe { real(command) },
        Err(failed) => failed.with(-1),
    };
}

/// What is to be executed.
enum Program {
    Path(*const c_char),
    /// Searched for, if there is no slash in it.
    Named(*const c_char),
    /// Below a directory; without a path, what is open itself.
    Below(c_int, *const c_char),
    Shell,
    /// Its environment is not known.
    Unknown,
}

impl Program {
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
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut found = std::env::split_paths(&search).map(|dir: PathBuf| dir.join(name));
    found.all(|path| program::is_followed(&path))
}

/// Whether an environment has this library loaded, and tells it of the run.
fn has_library(environment: Strings) -> bool {
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
        has[4] |= value("LD_PRELOAD")
            .is_some_and(|libraries| libraries.windows(LIBRARY.len()).any(|part| part == LIBRARY));
        // SAFETY: it was not the last.
        at = unsafe { at.add(1) };
    }
    has == [true; 5]
}

/// Begins the name of this library, and of the laboratory's.
const LIBRARY: &[u8] = b"libforebay";

/// Before a program is executed, by this process or a child of it.
///
/// # Errors
/// It must not be: it would write past the lane.
fn before(program: Program, environment: Strings) -> Result<(), Failed> {
    client(|| {
        if !client::any_absorbed() || has_library(environment) && program.is_followed() {
            return Ok(());
        }
        client::executing_past(is_given)
    })
}

/// As [`before`], of a shell that gets this program's environment.
pub(crate) fn before_shell() -> Result<(), Failed> {
    before(Program::Shell, own_environment())
}

/// As [`before`], of a system call.
pub(crate) fn before_system_call(
    dir: c_int,
    path: *const c_char,
    environment: Strings,
) -> Result<(), Failed> {
    match is_client() {
        true => Ok(()),
        false => before(Program::Below(dir, path), environment),
    }
}

/// Descriptors that were named to `posix_spawn` to be duplicated: a bit each.
static GIVEN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

fn given_bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((GIVEN.get(fd / 64)?, 1 << (fd % 64)))
}

fn note_given(fd: c_int) {
    if let Some((word, bit)) = given_bit(fd) {
        word.fetch_or(bit, Relaxed);
    }
}

/// Whether a descriptor may have been named so. One that cannot be noted may.
fn is_given(fd: c_int) -> bool {
    given_bit(fd).is_none_or(|(word, bit)| word.load(Relaxed) & bit != 0)
}

// Variadic functions, which stable Rust cannot define: what is done before is called, and then jumped on to the hidden function with everything as it was.
pub(crate) mod listed {
    use super::*;
    use crate::real::{Hook, Real};
    use std::arch::naked_asm;

    type Any = unsafe extern "C-unwind" fn() -> c_int;

    /// The hidden function, or one that says what went wrong.
    fn go_on(real: &Real<Any>, prepared: Result<(), Failed>) -> *const c_void {
        match (prepared, real.get()) {
            (Ok(()), Some(real)) => real as *const c_void,
            (Ok(()), None) => refused as extern "C" fn() -> c_int as *const c_void,
            (Err(failed), _) => {
                failed.with(());
                refused_with_errno as extern "C" fn() -> c_int as *const c_void
            }
        }
    }

    extern "C" fn refused() -> c_int {
        set_errno(libc::ENOSYS);
        -1
    }

    extern "C" fn refused_with_errno() -> c_int {
        -1
    }

    fn prepared(program: Program, environment: Strings) -> Result<(), Failed> {
        match is_client() {
            true => Ok(()),
            false => before(program, environment),
        }
    }

    // SAFETY: called with the arguments that they are called with, whatever these are.
    static EXECL: Real<Any> = unsafe { Real::new(c"execl") };
    // SAFETY: as above.
    static EXECLP: Real<Any> = unsafe { Real::new(c"execlp") };
    // SAFETY: as above.
    static EXECLE: Real<Any> = unsafe { Real::new(c"execle") };

    extern "C" fn before_execl(path: *const c_char) -> *const c_void {
        go_on(&EXECL, prepared(Program::Path(path), own_environment()))
    }

    extern "C" fn before_execlp(name: *const c_char) -> *const c_void {
        go_on(&EXECLP, prepared(Program::Named(name), own_environment()))
    }

    extern "C" fn before_execle(_: *const c_char) -> *const c_void {
        go_on(&EXECLE, prepared(Program::Unknown, ptr::null()))
    }

    macro_rules! listed {
        ($name:ident, $before:ident) => {
            /// # Safety
            ///
            /// As the C library's.
            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    "call {before}",
                    "mov r11, rax",
                    "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "jmp r11",
                    before = sym $before,
                )
            }

            /// # Safety
            ///
            /// As the C library's.
            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    "stp x29, x30, [sp, #-80]!",
                    "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]",
                    "stp x4, x5, [sp, #48]", "stp x6, x7, [sp, #64]",
                    "bl {before}",
                    "mov x16, x0",
                    "ldp x0, x1, [sp, #16]", "ldp x2, x3, [sp, #32]",
                    "ldp x4, x5, [sp, #48]", "ldp x6, x7, [sp, #64]",
                    "ldp x29, x30, [sp], #80",
                    "br x16",
                    before = sym $before,
                )
            }
        };
    }

    /// The functions of this module.
    pub(crate) static HOOKS: &[Hook] = &[
        Hook::new(&EXECL.hidden, execl as *const ()),
        Hook::new(&EXECLP.hidden, execlp as *const ()),
        Hook::new(&EXECLE.hidden, execle as *const ()),
    ];

    listed!(execl, before_execl);
    listed!(execlp, before_execlp);
    listed!(execle, before_execle);
}
