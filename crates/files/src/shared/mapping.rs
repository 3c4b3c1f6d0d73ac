//! A mapping of the page. It has as many places as the run can have files, which its limits say: a
//! process maps all of it, so it is not to be larger than is of use.

use super::{SharedFile, SharedPageLayout, page_bytes, places_in};
use crate::FILES_MAX;
use rustix::{
    fs::{MemfdFlags, SealFlags},
    io::Errno,
    mm::{MapFlags, ProtFlags},
};
use std::{
    ops::{Deref, Range},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
};

/// See the module's head.
pub(crate) struct SharedPage(NonNull<SharedPageLayout>);

// SAFETY: it has atomics only.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// A new page with so many places, all zeros, and the descriptor to send to other processes.
    /// Its size is sealed: none of them can take memory away under the others.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn new(name: &str, places: usize) -> Result<(Self, OwnedFd), Errno> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, page_bytes(places.min(FILES_MAX)))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(fd.as_fd())?, fd))
    }

    /// Maps another process's memory, for reading and writing.
    ///
    /// # Errors
    /// What the kernel says; `EINVAL` for what has another size than a page.
    pub(crate) fn map(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let bytes = rustix::fs::fstat(fd)?.st_size.unsigned_abs();
        let places = places_in(bytes);
        if places == 0 || places > FILES_MAX || page_bytes(places) != bytes {
            return Err(Errno::INVAL);
        }
        let bytes = usize::try_from(bytes).map_err(|_| Errno::INVAL)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        // The length of the layout's last field is that of the whole.
        let page = ptr::slice_from_raw_parts_mut(start.cast::<SharedFile>(), places);
        NonNull::new(page as *mut SharedPageLayout)
            .map(Self)
            .ok_or(Errno::NOMEM)
    }

    /// The addresses that it takes.
    pub(crate) fn memory(&self) -> Range<usize> {
        let start = self.0.as_ptr().addr();
        start..start + size_of_val::<SharedPageLayout>(self)
    }
}

impl Deref for SharedPage {
    type Target = SharedPageLayout;

    fn deref(&self) -> &SharedPageLayout {
        // SAFETY: the mapping has the size of a page with so many places, which consists of
        // atomics, for which every bit pattern is valid; it lives as long as `self`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        let memory = self.memory();
        // SAFETY: the mapping is ours, and no reference outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), memory.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::PART;

    #[test]
    fn page_has_as_many_places_as_it_was_made_with() {
        for places in [PART, 3 * PART, FILES_MAX] {
            let (page, fd) = SharedPage::new("forebay-test", places).unwrap();
            let other = SharedPage::map(fd.as_fd()).unwrap();
            assert_eq!((page.files.len(), other.files.len()), (places, places));
            assert_eq!(page.memory().len() as u64, page_bytes(places));
            // The last place of one is that of the other.
            page.set_key(places - 1, (8, 9));
            assert_eq!(other.files[places - 1].key(), (8, 9));
            let end = (&raw const other.files[places - 1]).addr() + size_of::<SharedFile>();
            assert_eq!(end, other.memory().end);
        }
    }

    #[test]
    fn what_has_another_size_is_no_page() {
        let whole = page_bytes(FILES_MAX);
        for bytes in [
            0,
            1,
            page_bytes(0),
            page_bytes(1) - 1,
            page_bytes(1) + 1,
            whole + 1408,
        ] {
            let fd = rustix::fs::memfd_create("forebay-test", MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&fd, bytes).unwrap();
            assert_eq!(
                SharedPage::map(fd.as_fd()).err(),
                Some(Errno::INVAL),
                "{bytes}"
            );
        }
    }
}
