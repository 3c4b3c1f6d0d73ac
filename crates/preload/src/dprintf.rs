//! `dprintf`, which is variadic.
#![expect(unsafe_code, reason = "exports C functions, in assembly")]

use crate::{
    call_context::FailedCall,
    real::{Hook, Real, c_name},
    retire::retire,
    variadic::{HiddenFunction, forward, go_on},
};
use forebay_files::client;
use libc::c_int;

// SAFETY: jumped to, with all arguments in place.
static DPRINTF: Real<HiddenFunction> = unsafe { Real::new(c_name!(dprintf)) };
// SAFETY: as above.
static DPRINTF_CHK: Real<HiddenFunction> = unsafe { Real::new(c_name!(__dprintf_chk)) };

/// The functions of this module.
pub(crate) static HOOKS: &[Hook] = &[
    Hook::new(&DPRINTF.hidden, dprintf as *const ()),
    Hook::new(&DPRINTF_CHK.hidden, __dprintf_chk as *const ()),
];

extern "C-unwind" fn before_dprintf(fd: c_int) -> HiddenFunction {
    go_on(&DPRINTF, || before(fd))
}

extern "C-unwind" fn before_dprintf_chk(fd: c_int) -> HiddenFunction {
    go_on(&DPRINTF_CHK, || before(fd))
}

fn before(fd: c_int) -> Result<(), FailedCall> {
    match client::absorbs(fd) {
        true => retire(fd),
        false => Ok(()),
    }
}

forward!(dprintf, before_dprintf);
forward!(__dprintf_chk, before_dprintf_chk);
