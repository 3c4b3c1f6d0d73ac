//! `dlsym` and `dlvsym`: a look-up of a function of the C library that this library hides gets
//! ours, by whatever handle (Python's `ctypes`, Java's JNA and .NET look up those of `libc.so.6`
//! itself). What another library has under such a name is left alone.
//!
//! `dlopen` and `dlmopen`: what is loaded with `RTLD_DEEPBIND` finds the C library before us, and
//! what is loaded into another namespace has a C library of its own. Neither's calls are seen, if
//! it calls anything that is hidden ([`dlopen_imports`](crate::dlopen_imports)). Where the flag
//! changes nothing else (Valkey loads each module with it), the library is loaded without it.
//! Otherwise this process absorbs nothing any more, before that library runs.
//!
//! The dynamic linker asks who calls: for the libraries behind the caller (`RTLD_NEXT`), its scope,
//! its namespace and where its libraries are searched. So each of the four goes on to the hidden
//! function by a jump, with the caller's return address in place. `RTLD_NEXT` and `RTLD_DEFAULT`
//! are the hidden function's alone: the search that they ask for has this library in its place, and
//! an interposer that is behind it must find what it hides, and not us.
#![expect(unsafe_code, reason = "exports C functions, in assembly")]

use crate::{
    client_call::tell_client,
    dlopen_imports::{DlopenCall, LoadEffect},
    hooks,
    linker::{
        DLMOPEN, DLOPEN, DLSYM, DLVSYM, FUNCTIONS, JumpTarget, hidden_dlsym, is_c_librarys,
        is_loaded, or_fail,
    },
    next_definition::{NextDefinition, library_of, note_first},
    real::{HiddenSymbol, hidden},
    system_call, table,
};
use forebay_files::client;
use libc::{c_char, c_int, c_long, c_void};
use std::{
    arch::naked_asm,
    ffi::CStr,
    sync::atomic::{AtomicPtr, Ordering},
};

/// Finds the hidden functions, when the library starts.
pub(crate) fn find_all() {
    note_first();
    for next in FUNCTIONS {
        next.get();
    }
    for hook in HOOKS.iter().filter(|hook| !hook.is_late) {
        hook.hidden.address();
    }
}

fn is_for_caller(handle: *mut c_void) -> bool {
    handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT
}

extern "C-unwind" fn before_dlsym(handle: *mut c_void) -> JumpTarget {
    match is_for_caller(handle) {
        true => or_fail(&DLSYM),
        false => dlsym_in as JumpTarget,
    }
}

extern "C-unwind" fn before_dlvsym(handle: *mut c_void) -> JumpTarget {
    match is_for_caller(handle) {
        true => or_fail(&DLVSYM),
        false => dlvsym_in as JumpTarget,
    }
}

extern "C-unwind" fn before_dlopen(
    path: *const c_char,
    flags: c_int,
    _: usize,
    caller: usize,
) -> JumpTarget {
    let real = or_fail(&DLOPEN);
    if flags & libc::RTLD_DEEPBIND == 0 || !may_load(path, flags) {
        return real;
    }
    match effect_of(path, caller, Some(is_loaded)) {
        LoadEffect::CallsNothing => real,
        // What it looks up later it might find in what is loaded meanwhile.
        LoadEffect::MissesHooks if flags & libc::RTLD_NOW != 0 => {
            REAL_DLOPEN.store(real, Ordering::Release);
            dlopen_flat as JumpTarget
        }
        LoadEffect::MissesHooks | LoadEffect::Differs => {
            tell_client(|| client::give_up(DEEP));
            real
        }
    }
}

extern "C-unwind" fn before_dlmopen(
    space: c_long,
    path: *const c_char,
    flags: c_int,
    caller: usize,
) -> JumpTarget {
    let (is_unseen, is_loaded, why): (_, Option<fn(_) -> _>, _) = match space {
        libc::LM_ID_BASE => (flags & libc::RTLD_DEEPBIND != 0, Some(is_loaded), DEEP),
        _ => (true, None, APART),
    };
    if is_unseen
        && may_load(path, flags)
        && effect_of(path, caller, is_loaded) != LoadEffect::CallsNothing
    {
        tell_client(|| client::give_up(why));
    }
    or_fail(&DLMOPEN)
}

const DEEP: &str = "a library was loaded with RTLD_DEEPBIND, whose calls are not seen";
const APART: &str =
    "a library was loaded into another namespace (dlmopen), whose calls are not seen";

/// The function at which [`dlopen_flat`] goes on.
static REAL_DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The hidden `dlopen` without `RTLD_DEEPBIND`, by a jump.
#[unsafe(naked)]
unsafe extern "C-unwind" fn dlopen_flat() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "and esi, {others}",
        "jmp qword ptr [rip + {real}]",
        others = const (!libc::RTLD_DEEPBIND) as u32,
        real = sym REAL_DLOPEN,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "and w1, w1, {others}",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        others = const (!libc::RTLD_DEEPBIND) as u32,
        real = sym REAL_DLOPEN,
    );
}

/// True if it may load anything.
fn may_load(path: *const c_char, flags: c_int) -> bool {
    !path.is_null() && flags & libc::RTLD_NOLOAD == 0
}

/// The effect of loading it past the hooks; none if nobody has to know.
fn effect_of(
    path: *const c_char,
    caller: usize,
    is_loaded: Option<fn(*const c_char) -> bool>,
) -> LoadEffect {
    let mut effect = LoadEffect::CallsNothing;
    tell_client(|| {
        // SAFETY: the caller's argument, which is not null: the name of a library.
        let name = unsafe { CStr::from_ptr(path) };
        let load = DlopenCall {
            name,
            caller,
            is_loaded,
            is_hidden: |name| hidden::ALL.iter().any(|one| one.name().to_bytes() == name),
        };
        effect = load.effect();
    });
    effect
}

unsafe extern "C-unwind" fn dlsym_in(
    handle: *mut c_void,
    name: *const c_char,
    _: *const c_char,
    caller: *mut c_void,
) -> *mut c_void {
    // SAFETY: our caller's arguments; a name that was found is a string.
    unsafe { ours_for(hidden_dlsym(handle, name), name, caller) }
}

unsafe extern "C-unwind" fn dlvsym_in(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *mut c_void,
) -> *mut c_void {
    let address = or_fail(&DLVSYM);
    // SAFETY: as in `hidden_dlsym`, of `dlvsym`; our caller's arguments.
    unsafe {
        let real: unsafe extern "C-unwind" fn(
            *mut c_void,
            *const c_char,
            *const c_char,
        ) -> *mut c_void = std::mem::transmute(address);
        ours_for(real(handle, name, version), name, caller)
    }
}

/// The answer to a look-up of `name`, which was `found`: ours, if it hides that.
///
/// # Safety
///
/// `name` is a string, if anything was found.
unsafe fn ours_for(found: *mut c_void, name: *const c_char, caller: *mut c_void) -> *mut c_void {
    if found.is_null() {
        return found;
    }
    // SAFETY: our caller says so.
    let name = unsafe { CStr::from_ptr(name) };
    match own_for(found).or_else(|| hook_for(found, name)) {
        Some(ours) if !is_hidden(caller, name) => ours,
        _ => found,
    }
}

/// Of this module.
fn own_for(found: *mut c_void) -> Option<*mut c_void> {
    let own = [
        (&DLSYM, dlsym as *const ()),
        (&DLVSYM, dlvsym as *const ()),
        (&DLOPEN, dlopen as *const ()),
        (&DLMOPEN, dlmopen as *const ()),
    ];
    let (_, ours) = own.into_iter().find(|(next, _)| next.get() == found)?;
    Some(ours.cast_mut().cast())
}

fn hook_for(found: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    let is_it = |hook: &&HookedFunction| hook.hidden.address() == found || is_c_librarys(found);
    let named = HOOKS
        .iter()
        .find(|hook| hook.hidden.name() == name)
        .filter(is_it);
    // Or it has another name, which we do not know.
    let hook = named.or_else(|| {
        HOOKS
            .iter()
            .find(|hook| hook.hidden.found_address() == found)
    });
    hook.map(HookedFunction::ours)
}

/// True if this code is of a library whose function of that name is called by ours, or by one that
/// ours calls: it asks for the function that it hides itself, and would call ours again.
fn is_hidden(code: *mut c_void, name: &CStr) -> bool {
    let Some(library) = library_of(code.addr()).filter(|library| library.is_behind_us) else {
        return false;
    };
    let all = hidden::ALL.iter().map(|one| one.found_address());
    let mut all = all.chain(FUNCTIONS.map(NextDefinition::get));
    // SAFETY: it is loaded: its code calls us.
    let defines = unsafe { library.defines(name) };
    // One that has `pwrite` may ask for `pwrite64`.
    defines || all.any(|function| library.addresses.contains(&function.addr()))
}

/// A function of ours, and what it hides.
struct HookedFunction {
    hidden: &'static HiddenSymbol,
    ours: *const (),
    is_late: bool,
}

// SAFETY: addresses of functions, which are the same for all threads.
unsafe impl Sync for HookedFunction {}

impl HookedFunction {
    fn ours(&self) -> *mut c_void {
        self.ours.cast_mut().cast()
    }
}

/// Defines [`HOOKS`].
macro_rules! hooks {
    ($($kind:ident $module:ident $handler:ident $arguments:tt $name:ident;)+) => {
        /// All functions of ours but those of this module.
        static HOOKS: &[HookedFunction] = &[$(
            HookedFunction {
                hidden: &hidden::$name,
                ours: ours!($kind $module $name),
                is_late: is_late!($kind),
            },
        )+];
    };
}

/// The address of ours: a module's own function, or the one that is made of its handler.
macro_rules! ours {
    (itself $module:ident $name:ident) => {
        $module::$name as *const ()
    };
    ($kind:ident $module:ident $name:ident) => {
        hooks::$name as *const ()
    };
}

macro_rules! is_late {
    (late) => {
        true
    };
    ($kind:ident) => {
        false
    };
}

table::names! { hooks }

/// Defines an exported function that goes on to where the function `before` says, which gets its
/// arguments. There, and in `before`, the caller's address is the fourth argument.
macro_rules! forward {
    ($name:ident, $before:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                ".cfi_startproc",
                "sub rsp, 24",
                ".cfi_def_cfa_offset 32",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov rcx, [rsp + 24]",
                "call {before}",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "add rsp, 24",
                ".cfi_def_cfa_offset 8",
                "mov rcx, [rsp]",
                "jmp rax",
                ".cfi_endproc",
                before = sym $before,
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-48]!",
                ".cfi_def_cfa_offset 48",
                ".cfi_offset x29, -48",
                ".cfi_offset x30, -40",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "mov x3, x30",
                "bl {before}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "mov x3, x30",
                "br x16",
                ".cfi_endproc",
                before = sym $before,
            );
        }
    };
}

forward!(dlsym, before_dlsym);
forward!(dlvsym, before_dlvsym);
forward!(dlopen, before_dlopen);
forward!(dlmopen, before_dlmopen);
