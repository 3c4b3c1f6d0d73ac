//! The environment of a program whose dynamic linker cannot load this library: without it. The
//! linker of musl would end the program. That of another machine complains, and so does each that
//! cannot open the library (below another root, for another user).
#![expect(unsafe_code, reason = "makes an array of the caller's strings")]

use super::{
    ExecutedProgram, StringArray, executed_program::text, is_in_reach, is_ours, libraries,
};
use crate::call_context::is_client;
use libc::c_char;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::{ffi::c_void, os::unix::ffi::OsStrExt, ptr, slice};

/// So many variables, and so long a list of libraries, are kept on the stack: what a child of
/// `vfork` maps stays in its parent.
const FEW: usize = 100;
const SHORT: usize = 400;

const NAME: &[u8] = b"LD_PRELOAD=";

/// Calls `real` with the variables that a program is to be given of this environment.
pub(super) fn fitting<T>(
    program: &ExecutedProgram,
    environment: StringArray,
    real: impl FnOnce(StringArray) -> T,
) -> T {
    let Some(wanted) = EnvironmentSize::of(program, environment) else {
        return real(environment);
    };
    match wanted.variables <= FEW && wanted.libraries <= SHORT {
        true => on_stack(&wanted, environment, real),
        false => in_memory(&wanted, environment, real),
    }
}

/// The same, for good: the environment is never given back.
pub(super) fn kept(program: &ExecutedProgram, environment: StringArray) -> Option<StringArray> {
    let wanted = EnvironmentSize::of(program, environment)?;
    let (memory, _) = wanted.memory()?;
    // SAFETY: as `memory` says; nothing else is in it.
    Some(unsafe { wanted.fill_memory(memory, environment) })
}

/// The size of an environment, of a program that this library is not for.
struct EnvironmentSize {
    /// With the null pointer behind them.
    variables: usize,
    /// Bytes of the list of libraries, with its name and the NUL.
    libraries: usize,
}

impl EnvironmentSize {
    /// None if the environment stays as it is.
    fn of(program: &ExecutedProgram, environment: StringArray) -> Option<Self> {
        if environment.is_null() || is_client() {
            return None;
        }
        let mut wanted = Self {
            variables: 1,
            libraries: 0,
        };
        let mut is_out_of_reach = false;
        for variable in variables(environment) {
            wanted.variables += 1;
            if let Some(list) = list_with_ours(variable) {
                wanted.libraries = variable.len() + 1;
                is_out_of_reach |= has_out_of_reach(list);
            }
        }
        let is_unfit = || is_out_of_reach || program.has_other_linker();
        (wanted.libraries > 0 && is_unfit()).then_some(wanted)
    }

    /// Memory for it, and its bytes.
    fn memory(&self) -> Option<(*mut c_void, usize)> {
        let bytes = self.variables * size_of::<*const c_char>() + self.libraries;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new memory, at an address of the kernel's choice.
        let memory = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        memory.ok().map(|memory| (memory, bytes))
    }

    /// # Safety
    ///
    /// The memory is [this one's](Self::memory).
    unsafe fn fill_memory(&self, memory: *mut c_void, environment: StringArray) -> StringArray {
        let places = memory.cast::<*const c_char>();
        // SAFETY: both have room in it, one behind the other, and zeros are pointers and bytes.
        let (places, space) = unsafe {
            (
                slice::from_raw_parts_mut(places, self.variables),
                slice::from_raw_parts_mut(places.add(self.variables).cast(), self.libraries),
            )
        };
        fill(places, space, environment)
    }
}

#[inline(never)]
fn on_stack<T>(
    wanted: &EnvironmentSize,
    environment: StringArray,
    real: impl FnOnce(StringArray) -> T,
) -> T {
    let mut places = [ptr::null(); FEW];
    let mut space = [0; SHORT];
    let places = &mut places[..wanted.variables];
    real(fill(places, &mut space, environment))
}

#[inline(never)]
fn in_memory<T>(
    wanted: &EnvironmentSize,
    environment: StringArray,
    real: impl FnOnce(StringArray) -> T,
) -> T {
    let Some((memory, bytes)) = wanted.memory() else {
        return real(environment);
    };
    // SAFETY: it is this one's.
    let result = real(unsafe { wanted.fill_memory(memory, environment) });
    // SAFETY: nothing is executed, or another process does: it is not used any more.
    let _ = unsafe { munmap(memory, bytes) };
    result
}

/// The variables of an environment.
pub(super) fn variables<'a>(environment: StringArray) -> impl Iterator<Item = &'a [u8]> {
    // SAFETY: an array of strings that ends with a null pointer.
    let strings = (0..).map(move |at| text(unsafe { *environment.add(at) }));
    strings.map_while(|string| string.map(OsStrExt::as_bytes))
}

/// The list of libraries that a variable has, if this one is among them.
fn list_with_ours(variable: &[u8]) -> Option<&[u8]> {
    let list = variable.strip_prefix(NAME)?;
    libraries(list).any(is_ours).then_some(list)
}

/// True if the dynamic linker would not find this library. What it puts in place of a `$` is not
/// known.
fn has_out_of_reach(list: &[u8]) -> bool {
    let mut ours = libraries(list).filter(|path| is_ours(path) && !path.contains(&b'$'));
    ours.any(|path| !is_in_reach(path))
}

/// Fills `places` with the variables, and `space` with the list of the other libraries, if there
/// are any. There is room.
fn fill(places: &mut [*const c_char], space: &mut [u8], environment: StringArray) -> StringArray {
    let mut at = 0;
    for variable in variables(environment) {
        let mut string = variable.as_ptr();
        if let Some(list) = list_with_ours(variable) {
            let others = write_others(space, list);
            if others == 0 {
                continue;
            }
            string = space.as_ptr();
        }
        places[at] = string.cast();
        at += 1;
    }
    places[at] = ptr::null();
    places.as_ptr()
}

/// Writes the variable without this library; how many others there are.
fn write_others(space: &mut [u8], list: &[u8]) -> usize {
    space[..NAME.len()].copy_from_slice(NAME);
    let (mut at, mut others) = (NAME.len(), 0);
    for library in libraries(list).filter(|path| !is_ours(path)) {
        if others > 0 {
            space[at] = b':';
            at += 1;
        }
        space[at..at + library.len()].copy_from_slice(library);
        at += library.len();
        others += 1;
    }
    space[at] = 0;
    others
}
