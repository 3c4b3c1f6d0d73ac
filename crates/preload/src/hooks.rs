//! Made from the [`table`](crate::table) and the [handlers](crate::handler): the exported
//! functions, and the calls that are made by their numbers.
//!
//! Each function goes on to the hidden one of exactly its own name (`pwrite` to `pwrite`,
//! `pwrite64` to `pwrite64`), so that another preloaded library behind this one sees what it would
//! see without.
//!
//! The ABI is "C-unwind", and nothing on the way to the hidden function has to be dropped:
//! `pthread_cancel` unwinds through it.
#![expect(unsafe_code, reason = "exports C functions; calls handlers")]

use crate::{
    asynchronous, clone, descriptor, directory, dprintf, execute, fd_changes,
    handler::{FunctionSignature, HookHandler},
    identity, interposers, kernel, map, message, metadata, open, path_calls, position, process,
    real::hidden,
    received_fds, stdio, sync, table, thread_numbers, times, variadic, write,
};
use libc::{c_long, c_void};
use std::ops::ControlFlow::{self, Continue};

/// The type of a handler's function.
type FunctionOf<H> = <H as HookHandler>::Function;

/// Exports the functions.
macro_rules! exports {
    ($($kind:ident $module:ident $handler:ident $arguments:tt $name:ident;)+) => {
        $(export! { $kind $module::$handler $arguments $name })+
    };
}

/// Exports one function under one of its names.
macro_rules! export {
    (hook $module:ident::$handler:ident ($($argument:ident)*) $name:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(
            $($argument: <FunctionOf<$module::$handler> as FunctionSignature>::$argument),*
        ) -> <FunctionOf<$module::$handler> as FunctionSignature>::Output {
            // Apart, so that the plain way needs no stack: it is a few loads and a jump.
            #[inline(never)]
            fn in_full(
                $($argument: <FunctionOf<$module::$handler> as FunctionSignature>::$argument),*
            ) -> <FunctionOf<$module::$handler> as FunctionSignature>::Output {
                // SAFETY: the signatures are those of the manual pages.
                match unsafe { hidden::$name.get::<FunctionOf<$module::$handler>>() } {
                    // SAFETY: it is called with what our caller wanted to call it with.
                    Some(real) => unsafe { $module::$handler::over(real, $($argument),*) },
                    None => $module::$handler::missing($($argument),*),
                }
            }
            // SAFETY: as above.
            match unsafe { hidden::$name.found::<FunctionOf<$module::$handler>>() } {
                // SAFETY: as above.
                Some(real) if $module::$handler::is_plain($($argument),*) => unsafe {
                    real($($argument),*)
                },
                _ => in_full($($argument),*),
            }
        }
    };
    (late $module:ident::$handler:ident $arguments:tt $name:ident) => {
        export! { hook $module::$handler $arguments $name }
    };
    (jump $module:ident::$handler:ident () $name:ident) => {
        variadic::forward! { $name, $module::$handler }
    };
    (itself $module:ident::$handler:ident () $name:ident) => {};
}

table::names! { exports }

/// Defines [`by_number`].
macro_rules! numbers {
    (
        dynamic $others:tt
        $($module:ident { $(
            $kind:ident $handler:ident $arguments:tt
            $(as $($alias:ident)+)? $(, $number:ident $(on $architecture:literal)?)?;
        )+ })+
    ) => {
        /// Calls the handler of a system call, if the table has one and that would do anything,
        /// over the kernel: the next library's function of that name may itself make the system
        /// call. None if the table has none.
        ///
        /// # Safety
        ///
        /// As the system call with this number.
        #[inline(always)]
        pub(crate) unsafe fn by_number(
            number: c_long,
            words: &[c_long; 6],
            caller: *const c_void,
        ) -> Option<ControlFlow<c_long>> {
            match number {
                $($($(
                    $(#[cfg(target_arch = $architecture)])?
                    libc::$number => Some(
                        instead! { $module::$handler $arguments $number, words, caller }
                    ),
                )?)+)+
                _ => None,
            }
        }
    };
}

/// Calls one handler in the place of a system call. All have the one copy of its arguments, so that
/// the function with all of them takes little of a stack.
macro_rules! instead {
    (
        $module:ident::$handler:ident ($($argument:ident)+) $number:ident,
        $words:ident, $caller:ident
    ) => {{
        let [$($argument,)+ ..] = *$words;
        match $module::$handler::is_plain($($argument as _),+) {
            true => Continue(()),
            false => interposers::instead($caller, || {
                let [$($argument,)+ ..] = *$words;
                let real = kernel::numbered!($number, $($argument),+);
                // SAFETY: a handler takes what the system call takes; our caller vouches for that.
                unsafe { $module::$handler::over(real, $($argument as _),+) as c_long }
            }),
        }
    }};
}

table::calls! { numbers }
