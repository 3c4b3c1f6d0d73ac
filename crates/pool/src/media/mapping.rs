//! A shared mapping of a file: the raw memory under [`FileMedia`](super::FileMedia).
#![expect(
    unsafe_code,
    reason = "maps memory and touches it through raw pointers"
)]

use super::ProcessMark;
use crate::{
    checksum::Checksum,
    persist::{LINE, Persist},
};
use rustix::param::page_size;
use std::{
    fs::File,
    io::{self, IoSlice},
    ops::Range,
    os::{fd::AsRawFd, unix::fs::FileTypeExt},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

/// The way a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MappingKind {
    /// `MAP_SHARED_VALIDATE | MAP_SYNC`: block allocations are durable before a fault returns,
    /// so that fences alone make data durable.
    Sync,
    /// `MAP_SHARED`: plain file or tmpfs.
    Shared,
}

/// The access to a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolAccess {
    /// It is read, and the kernel lets nothing be stored.
    Read,
    ReadWrite,
}

/// A mapping that lives as long as the value.
pub(super) struct SharedMapping {
    base: NonNull<u8>,
    bytes: usize,
    persist: Persist,
    /// The process that has mapped it: it is not there in a forked child.
    process: ProcessMark,
    /// A devdax device.
    device: bool,
    access: PoolAccess,
}

// SAFETY: the memory is shared by nature; all access goes through methods that copy, or through
// `slice`, whose caller answers for exclusion.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps the first `bytes` bytes of `file`. Pages that are not [`populate`](Self::populate)d are
    /// mapped when they are first touched: so a process has in its memory what it uses of a pool,
    /// and no more.
    ///
    /// # Errors
    /// What `mmap` says; `EOPNOTSUPP` where the file system cannot do [`MappingKind::Sync`]; a
    /// device whose pages cannot be had.
    pub(super) fn new(
        file: &File,
        bytes: usize,
        kind: MappingKind,
        access: PoolAccess,
    ) -> io::Result<Self> {
        let device = file.metadata()?.file_type().is_char_device();
        let _allowed = device.then(HugePages::allow);
        let flags = match kind {
            MappingKind::Sync => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            MappingKind::Shared => libc::MAP_SHARED,
        };
        let protection = match access {
            PoolAccess::Read => libc::PROT_READ,
            PoolAccess::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                protection,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        // A forked child must not write to its parent's lanes, nor keep their locks, which the
        // mapping holds as well as the descriptor does. And a core dump is of the program, not of
        // what its files were about to be: a pool on a disk is ordinary memory here.
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            // SAFETY: the range was mapped just now; only children and core dumps are affected.
            if unsafe { libc::madvise(base.as_ptr().cast(), bytes, advice) } != 0 {
                let error = io::Error::last_os_error();
                // SAFETY: mapped just now, and there is no other pointer into it.
                unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
                return Err(error);
            }
        }
        let mapping = Self {
            base,
            bytes,
            persist: Persist::detect(),
            process: ProcessMark::take(),
            device,
            access,
        };
        if device {
            // Whether its pages can be had at all is known before anything is read from it.
            mapping.populate(0, 1, true)?;
        }
        Ok(mapping)
    }

    /// Maps the pages of `[offset, offset + bytes)` now, with `write` so that stores cause no
    /// faults either.
    ///
    /// # Errors
    /// A page that cannot be had: an access would end the process with SIGBUS.
    pub(super) fn populate(&self, offset: u64, bytes: usize, write: bool) -> io::Result<()> {
        let _allowed = self.device.then(HugePages::allow);
        // The kernel's, which has 16 or 64 KiB on some machines: it takes no other start.
        let skip = (offset % page_size() as u64) as usize;
        let first = self.at(offset - skip as u64, bytes + skip);
        // A device's huge page has no other way to come than by a store.
        let advice = if self.access == PoolAccess::ReadWrite && (write || self.device) {
            libc::MADV_POPULATE_WRITE
        } else {
            libc::MADV_POPULATE_READ
        };
        // SAFETY: the range is inside the mapping, which is ours; its content stays as it is.
        if unsafe { libc::madvise(first.cast(), bytes + skip, advice) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        let remedy = match error.raw_os_error() {
            // Kernels before 5.14: pages come when they are touched.
            Some(libc::EINVAL) => return Ok(()),
            _ if self.device => {
                ". If the device's alignment is 2 MiB and the kernel has no huge pages: ndctl create-namespace -m devdax --align 4k"
            }
            _ => "",
        };
        Err(io::Error::new(
            error.kind(),
            format!("its pages at {offset} cannot be mapped: {error}{remedy}"),
        ))
    }

    pub(super) fn memory(&self) -> Range<usize> {
        let start = self.base.as_ptr().addr();
        start..start + self.bytes
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn at(&self, offset: u64, bytes: usize) -> *mut u8 {
        // What is lent out can be looked at without asking the pool; a panic says more than a
        // fault.
        assert!(
            self.process.is_here(),
            "the pool was mapped by the parent before this process was forked: open it again"
        );
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        assert!(
            start
                .checked_add(bytes)
                .is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {offset} lie outside the medium's {} bytes",
            self.bytes
        );
        self.base.as_ptr().wrapping_add(start)
    }

    /// The memory at `offset`, of which `bytes` bytes are there.
    pub(super) fn raw(&self, offset: u64, bytes: usize) -> *mut u8 {
        self.at(offset, bytes)
    }

    /// # Safety
    /// Until it returns nothing else writes these lines, and no slice of them is alive.
    pub(super) unsafe fn stream(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize) {
        let to = self.lines(offset, parts, skip);
        // SAFETY: `lines` checked the range; the caller keeps other writers and readers out.
        unsafe { self.persist.stream(to, parts, skip) };
    }

    /// # Safety
    /// As for [`stream`](Self::stream).
    #[inline]
    pub(super) unsafe fn stream_once(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        skip: usize,
        sum: &mut Checksum,
    ) {
        let to = self.lines(offset, parts, skip);
        // SAFETY: as in `stream`.
        unsafe { self.persist.stream_once(to, parts, skip, sum) };
    }

    /// The whole lines at `offset` that `parts` from byte `skip` on fill: line-aligned, since the
    /// base is page-aligned.
    #[inline]
    fn lines(&self, offset: u64, parts: &[IoSlice<'_>], skip: usize) -> *mut u8 {
        debug_assert!(self.access == PoolAccess::ReadWrite);
        let total: usize = parts.iter().map(|p| p.len()).sum();
        let bytes = total.saturating_sub(skip).next_multiple_of(LINE);
        assert!(
            offset.is_multiple_of(LINE as u64),
            "offset {offset} is not line-aligned"
        );
        self.at(offset, bytes)
    }

    pub(super) fn fence(&self) {
        self.persist.fence();
    }

    pub(super) fn load(&self, offset: u64, to: &mut [u8]) {
        let from = self.at(offset, to.len());
        let mut done = 0;
        while done < to.len() {
            let at = from.wrapping_add(done);
            let start = at.align_offset(align_of::<u64>());
            let word_at = if start == 0 {
                at
            } else {
                at.wrapping_sub(8 - start)
            };
            // SAFETY: the aligned word holds at least one byte of the checked range, and the
            // mapping is made of whole pages. An atomic load may race with another process.
            let word = unsafe { AtomicU64::from_ptr(word_at.cast()) }.load(Ordering::Relaxed);
            let skip = at as usize - word_at as usize;
            let take = (8 - skip).min(to.len() - done);
            to[done..done + take].copy_from_slice(&word.to_ne_bytes()[skip..skip + take]);
            done += take;
        }
    }

    /// # Safety
    /// Nothing writes the range as long as the slice is alive.
    pub(super) unsafe fn slice(&self, offset: u64, bytes: usize) -> &[u8] {
        let at = self.at(offset, bytes);
        // SAFETY: `at` checked the range; the caller keeps writers out.
        unsafe { std::slice::from_raw_parts(at, bytes) }
    }
}

/// Huge pages are allowed in this process as long as this lives; pages that come meanwhile stay. A
/// devdax device has no pages smaller than its alignment, mostly 2 MiB, and some programs disable
/// huge pages for themselves (Redis and Valkey: `disable-thp`).
struct HugePages {
    were_disabled: bool,
}

impl HugePages {
    fn allow() -> Self {
        // SAFETY: reads and sets a flag of the process; no memory of ours is involved.
        let were_disabled = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) } == 1;
        if were_disabled {
            // SAFETY: as above. If it is refused, `populate` says what comes of it.
            unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0) };
        }
        Self { were_disabled }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if self.were_disabled {
            // SAFETY: as in `allow`.
            unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // Something else may be at its addresses.
            return;
        }
        // SAFETY: the mapping is ours, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // That a devdax pool can be mapped then takes a device: the power-cut lab's `redis` on devdax.
    #[test]
    fn disabled_huge_pages_are_allowed_only_while_a_pool_is_mapped() {
        // SAFETY: flags of this process, which no other test looks at.
        let get = || unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) };
        // SAFETY: as above.
        let set = |disabled: libc::c_ulong| unsafe {
            libc::prctl(libc::PR_SET_THP_DISABLE, disabled, 0, 0, 0)
        };
        if cfg!(target_arch = "aarch64") && (set(1), get()) != (0, 1) {
            println!("skipped: qemu-user does not know the flag");
            return;
        }
        for disabled in [1, 0] {
            assert_eq!(set(disabled), 0);
            let allowed = HugePages::allow();
            assert_eq!(get(), 0);
            drop(allowed);
            assert_eq!(get(), disabled as libc::c_int);
        }
    }

    #[test]
    fn a_mapping_is_in_no_core_dump_and_no_child_has_it() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let mapping =
            SharedMapping::new(&file, 1 << 20, MappingKind::Shared, PoolAccess::ReadWrite);
        let mapping = mapping.unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.memory().start);
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = lines.find(|line| line.starts_with("VmFlags"));
        let flags: Vec<&str> = flags.unwrap().split(' ').collect();
        assert!(flags.contains(&"dd") && flags.contains(&"dc"), "{flags:?}");
    }
}
