//! A program that this library does not fit is executed by `forebay notify-enter`, which gets it an
//! agent and keeps its process. docs/notify.md, "A child of a program with the library".
//!
//! Whether the program can be executed is asked before: afterwards it is too late for the caller to
//! hear of an error. Whatever speaks against it, or fails, leaves the program to be executed as it
//! was to be.
#![expect(unsafe_code, reason = "makes arrays of the caller's strings")]

use super::{
    ExecutedImage, ExecutedProgram, StringArray,
    environment::variables,
    executed_program::{in_search_path, text},
};
use crate::{call_context::is_client, front_ends};
use forebay_files::{
    ENTER_COMMAND, ENV_PRELOAD, ENV_SOCKET, ENV_TOKEN, client,
    program::{is_for_agent, is_for_musl},
};
use libc::c_char;
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    mm::{MapFlags, ProtFlags, mmap_anonymous, munmap},
    process::{Resource, getrlimit},
};
use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr, slice,
};

/// So many pointers and bytes are kept on the stack: what a child of `vfork` maps stays in its
/// parent.
const FEW: usize = 100;
const SHORT: usize = 900;

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// A program that is executed, its caller, and the meaning of a path that is not absolute to the
/// child.
pub(super) struct Execution<'a> {
    pub(super) program: &'a ExecutedProgram,
    pub(super) arguments: StringArray,
    pub(super) environment: StringArray,
    pub(super) is_in_place: bool,
}

/// Executes the program so by `real`, and gives its result. None if the program is to be executed
/// as it was to be.
pub(super) fn by_agent<T>(
    execution: &Execution<'_>,
    real: impl FnOnce(&ExecutedImage) -> T,
) -> Option<T> {
    let command = client::enter_command()?;
    let path = execution.served_path(command)?;
    let wanted = EntrySize::of(execution, &path);
    if wanted.pointers <= FEW && wanted.bytes <= SHORT {
        return Some(on_stack(&wanted, execution, (command, path), real));
    }
    if client::in_vforked_child() {
        return None;
    }
    in_memory(&wanted, execution, (command, path), real)
}

impl Execution<'_> {
    /// The program's path, if it is to have an agent.
    fn served_path(&self, command: &CStr) -> Option<CString> {
        let has_name = || {
            // SAFETY: an array of strings that ends with a null pointer.
            !self.arguments.is_null() && !unsafe { *self.arguments }.is_null()
        };
        let is_of_run = !is_client() && client::may_join() && !front_ends::is_below_agent();
        if !is_of_run || !has_name() || !self.tells_of_run() {
            return None;
        }
        let path = self.program.path()?;
        let is_lasting = path.is_absolute() || self.is_in_place;
        if !is_lasting || !is_for_agent(&path) || is_traced() {
            return None;
        }
        let is_there = accessat(CWD, command, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
        let is_wanted = is_there && is_unlimited() && client::is_table_in_reach();
        let path = CString::new(path.into_os_string().as_bytes()).ok()?;
        is_wanted.then_some(path)
    }

    /// True if the environment says how to find the supervisor.
    fn tells_of_run(&self) -> bool {
        let has = |name: &str| {
            let names = |variable: &[u8]| {
                let value = variable.strip_prefix(name.as_bytes());
                value.is_some_and(|value| value.starts_with(b"="))
            };
            variables(self.environment).any(names)
        };
        !self.environment.is_null() && has(ENV_SOCKET) && has(ENV_TOKEN)
    }
}

impl ExecutedProgram {
    /// Its path, if that can be handed on. One below a descriptor may be gone by then.
    fn path(&self) -> Option<PathBuf> {
        match *self {
            Self::Path(path) => text(path).map(PathBuf::from),
            Self::Named(name) => {
                let name = text(name)?;
                if name.as_bytes().contains(&b'/') {
                    return Some(name.into());
                }
                let can_be = |path: &PathBuf| {
                    path.is_file()
                        && accessat(CWD, path.as_path(), Access::EXEC_OK, AtFlags::EACCESS).is_ok()
                };
                in_search_path(name).find(can_be)
            }
            Self::Below(..) | Self::Shell | Self::Unknown => None,
        }
    }
}

/// True if this process has a debugger: the command would be a program that this does not expect.
fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

/// True if no limit may keep the command from beginning, or the agent from serving.
fn is_unlimited() -> bool {
    [Resource::As, Resource::Data, Resource::Fsize]
        .into_iter()
        .all(|resource| getrlimit(resource).current.is_none())
}

/// The size of the arrays.
struct EntrySize {
    /// Words and variables, each with a null pointer behind them.
    pointers: usize,
    words: usize,
    /// Of the path, and of the lists of libraries.
    bytes: usize,
    /// This library is left out of them.
    is_for_musl: bool,
}

impl EntrySize {
    fn of(execution: &Execution<'_>, path: &CStr) -> Self {
        /// The command, its first word, the path, and the null pointer.
        const OWN_WORDS: usize = 4;
        let words = OWN_WORDS + variables(execution.arguments).count();
        let mut size = Self {
            pointers: words + 1,
            words,
            bytes: path.to_bytes_with_nul().len(),
            is_for_musl: is_for_musl(Path::new(OsStr::from_bytes(path.to_bytes()))),
        };
        for variable in variables(execution.environment) {
            size.pointers += 1;
            if variable.starts_with(PRELOAD) {
                size.bytes += ENV_PRELOAD.len() + variable.len() + 2;
            }
        }
        size
    }
}

#[inline(never)]
fn on_stack<T>(
    wanted: &EntrySize,
    execution: &Execution<'_>,
    names: (&CStr, CString),
    real: impl FnOnce(&ExecutedImage) -> T,
) -> T {
    let mut places = [ptr::null(); FEW];
    let mut space = [0; SHORT];
    real(&fill((&mut places, &mut space), wanted, execution, names))
}

#[inline(never)]
fn in_memory<T>(
    wanted: &EntrySize,
    execution: &Execution<'_>,
    names: (&CStr, CString),
    real: impl FnOnce(&ExecutedImage) -> T,
) -> Option<T> {
    let bytes = wanted.pointers * size_of::<*const c_char>() + wanted.bytes;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory, at an address of the kernel's choice.
    let memory = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
    let memory = memory.ok()?;
    let places = memory.cast::<*const c_char>();
    // SAFETY: both have room in it, one behind the other, and zeros are pointers and bytes.
    let (places, space) = unsafe {
        (
            slice::from_raw_parts_mut(places, wanted.pointers),
            slice::from_raw_parts_mut(places.add(wanted.pointers).cast(), wanted.bytes),
        )
    };
    let result = real(&fill((places, space), wanted, execution, names));
    // SAFETY: nothing is executed, or another process does: it is not used any more.
    let _ = unsafe { munmap(memory, bytes) };
    Some(result)
}

/// Fills `places` with the words and the variables, and `space` with the path and the lists of
/// libraries. There is room. The path itself is given back: a child of `vfork` that executes
/// something would leave it to its parent.
fn fill(
    (places, space): (&mut [*const c_char], &mut [u8]),
    wanted: &EntrySize,
    execution: &Execution<'_>,
    (command, path): (&CStr, CString),
) -> ExecutedImage {
    let (words, others) = places.split_at_mut(wanted.words);
    let bytes = path.to_bytes_with_nul();
    let (its_path, space) = space.split_at_mut(bytes.len());
    its_path.copy_from_slice(bytes);
    drop(path);
    let own = [
        command.as_ptr(),
        ENTER_COMMAND.as_ptr(),
        its_path.as_ptr().cast(),
    ];
    let given = variables(execution.arguments).map(|word| word.as_ptr().cast());
    let all = own.into_iter().chain(given).chain([ptr::null()]);
    for (place, word) in words.iter_mut().zip(all) {
        *place = word;
    }
    let (mut at, mut used) = (0, 0);
    for variable in variables(execution.environment) {
        let mut string = variable.as_ptr();
        if let Some(list) = variable.strip_prefix(PRELOAD) {
            let written = write_list(&mut space[used..], list, wanted.is_for_musl);
            string = space[used..].as_ptr();
            used += written;
        } else if variable.starts_with(ENV_PRELOAD.as_bytes()) {
            continue;
        }
        others[at] = string.cast();
        at += 1;
    }
    others[at] = ptr::null();
    ExecutedImage {
        file: command.as_ptr(),
        arguments: words.as_ptr(),
        environment: others.as_ptr(),
    }
}

/// Writes a list of libraries as the command gets it, without this one if it is to be left out: its
/// bytes.
fn write_list(space: &mut [u8], list: &[u8], is_alone: bool) -> usize {
    let mut at = 0;
    let mut write = |bytes: &[u8]| {
        space[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    write(ENV_PRELOAD.as_bytes());
    write(b"=");
    if is_alone {
        let others = super::libraries(list).filter(|path| !super::is_ours(path));
        for (number, library) in others.enumerate() {
            if number > 0 {
                write(b":");
            }
            write(library);
        }
    } else {
        write(list);
    }
    write(b"\0");
    at
}
