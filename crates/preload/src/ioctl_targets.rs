//! Files that an `ioctl` changes, or has the kernel change later, though it is made on another
//! descriptor: it names them in its argument. A loop device writes to what is below it, and two
//! files exchange what they have.
#![expect(unsafe_code, reason = "reads the caller's memory")]

use crate::{call_context::FailedCall, memory, retire::retire};
use forebay_files::client;
use libc::{c_int, c_ulong};

/// Where an argument has a descriptor.
enum ArgumentPlace {
    /// It is one.
    Itself,
    /// At this offset of what it points to.
    At(usize),
}

use ArgumentPlace::{At, Itself};

/// The requests, by their numbers: the headers of the libc crate have none of them.
const REQUESTS: [(c_ulong, &[ArgumentPlace]); 8] = [
    // `LOOP_SET_FD`, `LOOP_CHANGE_FD`, `LOOP_CONFIGURE`.
    (0x4C00, &[Itself]),
    (0x4C06, &[Itself]),
    (0x4C0A, &[At(0)]),
    // `EXT4_IOC_MOVE_EXT`.
    (0xC028_660F, &[At(4)]),
    // `XFS_IOC_SWAPEXT`, `XFS_IOC_EXCHANGE_RANGE`, `XFS_IOC_COMMIT_RANGE`.
    (0xC0C0_586D, &[At(8), At(16)]),
    (0x4028_5881, &[At(0)]),
    (0x4058_5883, &[At(0)]),
    // `F2FS_IOC_MOVE_RANGE`.
    (0xC020_F509, &[At(0)]),
];

fn places(request: c_ulong) -> &'static [ArgumentPlace] {
    // The kernel has 32 bits of it.
    let request = request & 0xFFFF_FFFF;
    let known = REQUESTS.iter().find(|(number, _)| *number == request);
    known.map_or(&[], |(_, places)| places)
}

/// Whether a request names a file that may be absorbed.
pub(crate) fn may_concern(request: c_ulong) -> bool {
    client::is_absorbing() && !places(request).is_empty()
}

/// Makes the files plain that a request names.
///
/// # Errors
/// As [`retire`].
pub(crate) fn retire_named(request: c_ulong, argument: c_ulong) -> Result<(), FailedCall> {
    for place in places(request) {
        let fd = match place {
            Itself => argument as c_int,
            At(offset) => {
                let place = std::ptr::with_exposed_provenance::<c_int>(argument as usize);
                // SAFETY: our caller does not change it meanwhile; any bytes are a number. What
                // cannot be read the kernel refuses.
                let Some(fd) = (unsafe { memory::read(place.wrapping_byte_add(*offset)) }) else {
                    return Ok(());
                };
                fd
            }
        };
        retire(fd)?;
    }
    Ok(())
}
