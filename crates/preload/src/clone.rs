//! `clone`: a child that shares this process's descriptors and not its memory makes other
//! descriptors of their numbers, and this process does not hear of that. What is heard of one that
//! shares its memory and not its descriptors is taken for this process's. So before either is made,
//! nothing is absorbed any more.
#![expect(unsafe_code, reason = "reads the caller's memory")]

use crate::{
    client_call::tell_client,
    memory,
    real::hidden,
    variadic::{HiddenFunction, go_on},
};
use forebay_files::client;
use libc::{c_int, c_long, c_void};
use std::ptr;

pub(crate) extern "C-unwind" fn clone(
    _: *const c_void,
    _: *const c_void,
    flags: c_int,
) -> HiddenFunction {
    go_on(&hidden::clone, || {
        before(flags);
        Ok(())
    })
}

fn before(flags: c_int) {
    let has = |flag| flags & flag != 0;
    let (files, memory) = (has(libc::CLONE_FILES), has(libc::CLONE_VM));
    // The thread that makes it waits for the child of a vfork, which is known by its number.
    let is_vforks = has(libc::CLONE_VFORK) && !has(libc::CLONE_THREAD);
    if files && !memory || memory && !files && !is_vforks {
        tell_client(client::sharing);
    }
}

/// Before the system call with this number, if it is `clone` or `clone3`; with its first argument.
pub(crate) fn before_system_call(number: c_long, first: c_long) {
    match number {
        libc::SYS_clone => before(first as c_int),
        libc::SYS_clone3 => {
            let flags = ptr::with_exposed_provenance::<u64>(first as usize);
            // SAFETY: our caller does not change it meanwhile; any bytes are a number. What cannot
            // be read the kernel refuses.
            if let Some(flags) = unsafe { memory::read(flags) } {
                before(flags as c_int);
            }
        }
        _ => {}
    }
}
