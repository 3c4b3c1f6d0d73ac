//! Files that an `ioctl` names in its argument ([`ioctls`]): they are made plain before, or their
//! clone is.
#![expect(unsafe_code, reason = "reads the caller's memory")]

use crate::{call_context::FailedCall, client_call::client, memory, retire::retire};
use forebay_files::{
    client,
    ioctls::{self, ArgumentPlace, NamedFileUse},
};
use libc::{c_int, c_ulong};

/// True if a request changes a file that it names, and that may be absorbed.
pub(crate) fn may_concern(request: c_ulong) -> bool {
    let changes = |it: &ioctls::NamingRequest| it.named == NamedFileUse::Changed;
    client::is_absorbing() && ioctls::naming_request(request as u32).is_some_and(changes)
}

/// Before a request is made: of the files that it names.
///
/// # Errors
/// As [`retire`].
pub(crate) fn before(request: c_ulong, argument: c_ulong) -> Result<(), FailedCall> {
    let Some(naming) = ioctls::naming_request(request as u32) else {
        return Ok(());
    };
    for place in naming.places {
        let fd = match place {
            ArgumentPlace::Itself => argument as c_int,
            ArgumentPlace::At(offset) => {
                let place = std::ptr::with_exposed_provenance::<c_int>(argument as usize);
                // SAFETY: our caller does not change it meanwhile; any bytes are a number. What
                // cannot be read the kernel refuses.
                let Some(fd) = (unsafe { memory::read(place.wrapping_byte_add(*offset)) }) else {
                    return Ok(());
                };
                fd
            }
        };
        match naming.named {
            NamedFileUse::Cloned => client(|| client::cloning(fd))?,
            NamedFileUse::Changed => retire(fd)?,
        }
    }
    Ok(())
}
