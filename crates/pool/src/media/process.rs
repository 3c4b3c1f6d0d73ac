//! The mark of the process that opened something: [`ProcessMark`]. A forked child inherits the
//! bytes of all that its parent had, and nothing of it is its own. The pool's memory is not mapped
//! there, the locks are its parent's, and a mutex may be held by a thread that it does not have.
//!
//! A page that the kernel wipes in a forked child has the process's number: one that no process of
//! its line had before. So a look is one load, and a child that opens something anew has another
//! number than what it inherited. Between `vfork` and `exec` the memory, and so the number, is the
//! parent's.
#![expect(
    unsafe_code,
    reason = "a page that a forked child finds wiped, and a handler of fork's where there is none"
)]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::{
    ptr,
    sync::{
        OnceLock,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

const PAGE: usize = crate::format::layout::PAGE as usize;

/// Numbers given out so far: inherited, so that a child's is new.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// The place of the process's number; 0 in a child that has none yet.
static NUMBER: OnceLock<&'static AtomicU64> = OnceLock::new();
/// It, before Linux 4.14, where no page is wiped.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// The process that took it.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMark {
    present: &'static AtomicU64,
    number: u64,
}

impl ProcessMark {
    /// The mark of this process.
    #[must_use]
    pub fn take() -> Self {
        let present = *NUMBER.get_or_init(|| wiped_page().unwrap_or_else(handled));
        if present.load(SeqCst) == 0 {
            let number = GIVEN.fetch_add(1, SeqCst) + 1;
            // Another thread may have been first.
            let _ = present.compare_exchange(0, number, SeqCst, SeqCst);
        }
        Self {
            present,
            number: present.load(SeqCst),
        }
    }

    /// The process's number: no process of its line had it before.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// True in the process that took it; false in those forked from that.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.present.load(Relaxed) == self.number
    }
}

/// A word that is 0 in a forked child, whatever forked it. None where the kernel cannot do that.
fn wiped_page() -> Option<&'static AtomicU64> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory, at an address of the kernel's choice.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the page is ours, and nothing is in it.
    if unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: as above.
        let _ = unsafe { munmap(page, PAGE) };
        return None;
    }
    // SAFETY: it is aligned, never unmapped from here on, and touched by atomic accesses only.
    Some(unsafe { AtomicU64::from_ptr(page.cast()) })
}

/// The same, but that only the C library's `fork` is noticed.
fn handled() -> &'static AtomicU64 {
    extern "C" fn in_child() {
        HANDLED.store(0, SeqCst);
    }
    // SAFETY: the handler stores a word and nothing else.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    &HANDLED
}
