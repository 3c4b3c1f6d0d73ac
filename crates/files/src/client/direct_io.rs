//! `O_DIRECT`, which is taken from a descriptor that is absorbed: the page cache has its writes,
//! and the pool makes them durable. What the kernel refuses a program that has asked for it is
//! refused all the same, or the program would take its disk for another one.

use super::fd_table::{self, FdEntry};
use crate::sys;
use rustix::{
    fs::{AtFlags, StatxFlags},
    io::Errno,
};
use std::{ffi::c_int, io::IoSlice, os::fd::BorrowedFd};

/// `RWF_ATOMIC`, and the question by what units a file can be so written, which are younger than
/// the libraries' headers.
const RWF_ATOMIC: c_int = 0x40;
const STATX_WRITE_ATOMIC: u32 = 0x1_0000;

/// The entry of a descriptor that was opened with these flags, of the absorbed file with this
/// number.
pub(super) fn entry_of(fd: BorrowedFd<'_>, number: usize, flags: c_int) -> FdEntry {
    let entry = FdEntry::new(Some(number), flags);
    if flags & libc::O_DIRECT == 0 {
        return entry;
    }
    let found = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    match found.map(|found| [found.stx_dio_offset_align, found.stx_dio_mem_align]) {
        // Zeros: the file system does it by the page cache, or does not say.
        Ok(alignment) if alignment[0] > 0 => entry.aligned(alignment),
        _ => entry,
    }
}

/// Before a write by a descriptor: the flags to make it with. One that asks not to wait for the
/// disk does not: it goes to the page cache.
///
/// # Errors
/// `EINVAL`: it is not aligned.
#[inline]
pub(super) fn before_write(
    fd: BorrowedFd<'_>,
    entry: FdEntry,
    parts: &[IoSlice<'_>],
    offset: Option<u64>,
    flags: c_int,
) -> Result<c_int, Errno> {
    if entry.hidden() & libc::O_DIRECT == 0 {
        return Ok(flags);
    }
    let aligned_to = entry.alignment();
    if aligned_to != [1, 1] && parts.iter().any(|part| !part.is_empty()) {
        let at = position(fd, entry, offset)?;
        let mut places = parts.iter().map(|part| (part.as_ptr().addr(), part.len()));
        if !fit(aligned_to, &mut places, at) {
            return Err(Errno::INVAL);
        }
    }
    match flags & RWF_ATOMIC {
        0 => Ok(flags & !libc::RWF_NOWAIT),
        _ => atomic(fd, parts, offset, flags & !libc::RWF_NOWAIT),
    }
}

/// Before a read by a descriptor to these places, each with its address and bytes. At the end of
/// the file there is nothing to be aligned.
///
/// # Errors
/// `EINVAL`: it is not aligned.
pub fn before_read(
    fd: c_int,
    mut places: impl Iterator<Item = (usize, usize)>,
    offset: Option<u64>,
) -> Result<(), Errno> {
    let (Some(entry), Some(raw)) = (fd_table::entry(fd), sys::borrow(fd)) else {
        return Ok(());
    };
    let aligned_to = entry.alignment();
    if entry.file().is_none() || aligned_to == [1, 1] {
        return Ok(());
    }
    let at = offset.map_or_else(|| rustix::fs::tell(raw), Ok)?;
    let is_aligned = fit(aligned_to, &mut places, at);
    match is_aligned || at >= sys::stat_of(raw)?.st_size.unsigned_abs() {
        true => Ok(()),
        false => Err(Errno::INVAL),
    }
}

/// True if reads by a descriptor are to be asked about.
#[inline]
#[must_use]
pub fn is_direct(fd: c_int) -> bool {
    fd_table::entry(fd).is_some_and(|entry| entry.alignment() != [1, 1])
}

/// True if places are aligned, each with its address and bytes. Without any byte, and where there
/// is no memory, it is the kernel's to say what it does.
fn fit(
    [offset, memory]: [u64; 2],
    places: &mut dyn Iterator<Item = (usize, usize)>,
    at: u64,
) -> bool {
    let (mut is_aligned, mut any) = (at & (offset - 1) == 0, false);
    for (address, bytes) in places {
        let is_odd = address as u64 & (memory - 1) != 0;
        if is_odd && !sys::may_be_read(address) {
            return true;
        }
        is_aligned &= bytes as u64 & (offset - 1) == 0 && !is_odd;
        any |= bytes > 0;
    }
    is_aligned || !any
}

/// The place of a write.
fn position(fd: BorrowedFd<'_>, entry: FdEntry, offset: Option<u64>) -> Result<u64, Errno> {
    match offset {
        _ if entry.append() => Ok(sys::stat_of(fd)?.st_size.unsigned_abs()),
        Some(offset) => Ok(offset),
        None => rustix::fs::tell(fd),
    }
}

/// A write that is torn by no power cut is none that the pool has in one record. What the file does
/// not take so is the kernel's to refuse.
#[cold]
fn atomic(
    fd: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    offset: Option<u64>,
    flags: c_int,
) -> Result<c_int, Errno> {
    let wanted = StatxFlags::from_bits_retain(STATX_WRITE_ATOMIC);
    let found = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted)?;
    let units = found.stx_atomic_write_unit_min..=found.stx_atomic_write_unit_max;
    if *units.end() == 0 {
        return Ok(flags);
    }
    let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
    let at = offset.map_or_else(|| rustix::fs::tell(fd), Ok)?;
    let is_unit = u32::try_from(bytes).is_ok_and(|bytes| units.contains(&bytes));
    match is_unit && bytes.is_power_of_two() && at & (bytes - 1) == 0 {
        true => Ok(flags & !RWF_ATOMIC),
        false => Err(Errno::INVAL),
    }
}
