//! `dprintf`, which is variadic.

use crate::{
    call_context::FailedCall,
    real::hidden,
    retire::retire,
    variadic::{HiddenFunction, go_on},
};
use forebay_files::client;
use libc::c_int;

pub(crate) extern "C-unwind" fn dprintf(fd: c_int) -> HiddenFunction {
    go_on(&hidden::dprintf, || before(fd))
}

pub(crate) extern "C-unwind" fn __dprintf_chk(fd: c_int) -> HiddenFunction {
    go_on(&hidden::__dprintf_chk, || before(fd))
}

fn before(fd: c_int) -> Result<(), FailedCall> {
    match client::absorbs(fd) {
        true => retire(fd),
        false => Ok(()),
    }
}
