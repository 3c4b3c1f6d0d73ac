//! Reads and writes of a disk, of all the bytes that are asked for: a write is durable when it
//! returns.

use super::file_size_limit::size_limit_below;
use rustix::io::ReadWriteFlags;
use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::BorrowedFd,
};

/// Writes `bytes`, and returns when the disk has them.
///
/// # Errors
/// What the kernel says.
pub(crate) fn write_durably(
    disk: BorrowedFd<'_>,
    mut offset: u64,
    mut bytes: &[u8],
) -> io::Result<()> {
    let end = offset.saturating_add(bytes.len() as u64);
    // The kernel would end the process, which may be any program.
    if size_limit_below(disk, end).is_some() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    if crate::failpoint::hit("disk:write-half") {
        // Before the disk says so, parts of it may be there in any order.
        let half = (bytes.len() / 2).next_multiple_of(512).min(bytes.len());
        let _ = rustix::io::pwritev2(
            disk,
            &[IoSlice::new(&bytes[half..])],
            offset + half as u64,
            ReadWriteFlags::DSYNC,
        );
        crate::failpoint::announce("disk:write-half");
    }
    let how = match crate::fault_enabled!("no-flush") {
        true => ReadWriteFlags::empty(),
        false => ReadWriteFlags::DSYNC,
    };
    while !bytes.is_empty() {
        let parts = [IoSlice::new(bytes)];
        match rustix::io::pwritev2(disk, &parts, offset, how) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(done) => {
                bytes = &bytes[done..];
                offset += done as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Fills `bytes`.
///
/// # Errors
/// What the kernel says; the file ends before.
pub(crate) fn read_all(
    disk: BorrowedFd<'_>,
    mut offset: u64,
    mut bytes: &mut [u8],
) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = rustix::io::preadv(disk, &mut [IoSliceMut::new(bytes)], offset);
        match read {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(done) => {
                bytes = &mut bytes[done..];
                offset += done as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
