//! A file's extents (FIEMAP): blocks that it has, and those that were never written. And the
//! write-back that a file system does before it lists them.
#![expect(unsafe_code, reason = "an ioctl that no library has")]

use rustix::io::Errno;
use std::{
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

/// Extents that are asked for at a time.
const EXTENTS: usize = 64;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    bytes: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// `struct fiemap`.
#[repr(C)]
#[derive(Default)]
struct ExtentsHead {
    start: u64,
    bytes: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
}

/// The same with room for so many.
#[repr(C)]
struct Extents {
    head: ExtentsHead,
    extents: [Extent; EXTENTS],
}

/// `FS_IOC_FIEMAP`.
const FIEMAP: u32 = 0xC020_660B;
/// `FIEMAP_FLAG_SYNC`.
const WRITE_BACK: u32 = 0x1;
const EXTENT_LAST: u32 = 0x1;
const EXTENT_UNWRITTEN: u32 = 0x800;
/// `FIEMAP_EXTENT_UNKNOWN`, `_DELALLOC`, `_ENCODED`, `_UNWRITTEN`, `_SHARED`: written next, such a
/// block gets another place, or its place is noted.
const EXTENT_MOVES: u32 = 0x2 | 0x4 | 0x8 | EXTENT_UNWRITTEN | 0x2000;

/// Calls `see` with each extent of the range, in order, until it says that this is enough.
///
/// # Errors
/// The file system's: it does not say.
fn each(
    file: BorrowedFd<'_>,
    range: &Range<u64>,
    mut see: impl FnMut(&Extent) -> bool,
) -> Result<(), Errno> {
    let mut from = range.start;
    while from < range.end {
        let mut asked = Extents {
            head: ExtentsHead {
                start: from,
                bytes: range.end - from,
                room: EXTENTS as u32,
                ..ExtentsHead::default()
            },
            extents: [Extent::default(); EXTENTS],
        };
        // SAFETY: the structure is the kernel's, with room for as many extents as it says.
        let done = unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP as libc::Ioctl, &raw mut asked) };
        if done != 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        let mut next = None;
        for extent in asked.extents.iter().take(asked.head.mapped as usize) {
            if see(extent) {
                return Ok(());
            }
            let is_last = extent.flags & EXTENT_LAST != 0;
            next = Some(extent.logical.saturating_add(extent.bytes)).filter(|_| !is_last);
        }
        match next {
            Some(next) if next > from => from = next,
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Has all that a file holds written, and returns when it is. Neither is it flushed out of the
/// disk's cache, nor are the file's size and places committed. Of an error the program's next sync
/// hears, as if this had not been asked: a wait by `sync_file_range` would have heard it instead.
pub fn write_back(file: impl AsFd) {
    let mut asked = ExtentsHead {
        bytes: 1,
        flags: WRITE_BACK,
        ..ExtentsHead::default()
    };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the structure is the kernel's, with room for no extent, as it says.
    unsafe { libc::ioctl(fd, FIEMAP as libc::Ioctl, &raw mut asked) };
}

/// True if the file system has something of the range for unwritten. One that does not say is
/// believed.
pub(crate) fn has_unwritten(file: BorrowedFd<'_>, range: &Range<u64>) -> bool {
    let mut is_found = false;
    let asked = each(file, range, |extent| {
        is_found = extent.flags & EXTENT_UNWRITTEN != 0 && extent.logical < range.end;
        is_found
    });
    asked.is_ok() && is_found
}

/// True if all of the first `bytes` bytes have blocks that were written before, and that no other
/// file shares. What is written there goes to the same place, and the file system has nothing to
/// note of it. False where it does not say.
pub fn is_all_written(file: impl AsFd, bytes: u64) -> bool {
    let mut to = 0;
    let asked = each(file.as_fd(), &(0..bytes), |extent| {
        let goes_on = extent.logical <= to && extent.flags & EXTENT_MOVES == 0;
        if goes_on {
            to = extent.logical.saturating_add(extent.bytes);
        }
        !goes_on || to >= bytes
    });
    asked.is_ok() && to >= bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_is_written_once_it_has_all_its_blocks() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert!(is_all_written(&file, 0));
        file.set_len(1 << 20).unwrap();
        assert!(!is_all_written(&file, 1 << 20));
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
        file.sync_all().unwrap();
        assert!(!is_all_written(&file, 1 << 20));
        file.write_all(&vec![1; 1 << 19]).unwrap();
        file.sync_all().unwrap();
        let is_told = is_all_written(&file, 1 << 19);
        assert!(!is_told || !is_all_written(&file, 1 << 20));
        file.write_all(&vec![1; 1 << 19]).unwrap();
        file.sync_all().unwrap();
        assert_eq!(is_told, is_all_written(&file, 1 << 20));
    }
}
