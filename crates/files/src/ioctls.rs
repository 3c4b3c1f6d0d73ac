//! The table of `ioctl` requests that touch files, for all front ends: some name files in their
//! argument, some change the file that they are made on.
//!
//! The headers of the libc crate have hardly any of these numbers. Of a request the kernel has 32
//! bits.

/// The place of a descriptor in an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentPlace {
    /// It is one.
    Itself,
    /// At this offset of the structure that it points to, in bytes.
    At(usize),
}

/// The effect on a file that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedFileUse {
    /// The file that the request is made on may share its blocks.
    Cloned,
    /// It is changed, now or later: a loop device writes to the file below it, and two files
    /// exchange their contents.
    Changed,
}

/// A request that names files in its argument.
#[derive(Clone, Copy, Debug)]
pub struct NamingRequest {
    /// The request.
    pub number: u32,
    /// The places of the files' descriptors.
    pub places: &'static [ArgumentPlace],
    /// The effect on these files.
    pub named: NamedFileUse,
}

use ArgumentPlace::{At, Itself};
use NamedFileUse::{Changed, Cloned};

/// All of them.
pub const NAMING_REQUESTS: [NamingRequest; 10] = [
    // `FICLONE`, `FICLONERANGE`.
    naming(0x4004_9409, &[Itself], Cloned),
    naming(0x4020_940D, &[At(0)], Cloned),
    // `LOOP_SET_FD`, `LOOP_CHANGE_FD`, `LOOP_CONFIGURE`.
    naming(0x4C00, &[Itself], Changed),
    naming(0x4C06, &[Itself], Changed),
    naming(0x4C0A, &[At(0)], Changed),
    // `EXT4_IOC_MOVE_EXT`.
    naming(0xC028_660F, &[At(4)], Changed),
    // `XFS_IOC_SWAPEXT`, `XFS_IOC_EXCHANGE_RANGE`, `XFS_IOC_COMMIT_RANGE`.
    naming(0xC0C0_586D, &[At(8), At(16)], Changed),
    naming(0x4028_5881, &[At(0)], Changed),
    naming(0x4058_5883, &[At(0)], Changed),
    // `F2FS_IOC_MOVE_RANGE`.
    naming(0xC020_F509, &[At(0)], Changed),
];

const fn naming(
    number: u32,
    places: &'static [ArgumentPlace],
    named: NamedFileUse,
) -> NamingRequest {
    NamingRequest {
        number,
        places,
        named,
    }
}

/// The files that a request names; none if it names nothing.
#[must_use]
pub fn naming_request(number: u32) -> Option<&'static NamingRequest> {
    NAMING_REQUESTS.iter().find(|it| it.number == number)
}

/// True if a request may change the contents of the file that it is made on: cloning, punching and
/// zeroing ranges, exchanging files, atomic writes. That is any of the file systems' families that
/// is not known to leave them alone.
#[must_use]
pub fn changes(request: u32) -> bool {
    /// `FS_IOC_FIEMAP`.
    const FIEMAP: u32 = 0xC020_660B;
    /// Requests that only read say so in their two highest bits.
    const READS: u32 = 2;
    const XFS_AND_GENERIC: u8 = b'X';
    const EXT4_AND_GENERIC: u8 = b'f';
    const BTRFS_AND_GENERIC: u8 = 0x94;
    const F2FS: u8 = 0xF5;
    let family = (request >> 8) as u8;
    [XFS_AND_GENERIC, EXT4_AND_GENERIC, BTRFS_AND_GENERIC, F2FS].contains(&family)
        && request >> 30 != READS
        && request != FIEMAP
}
