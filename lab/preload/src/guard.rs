//! Read-only mappings of files on an emulated device: a page that is touched for the first time
//! costs a read.
//!
//! The mapping is the kernel's, so its bytes are always the file's; but its pages are inaccessible
//! until they are touched. The fault (`SIGSEGV`) waits for the device, makes the page and those
//! around it accessible, and lets the program go on; any other fault goes to the program's own
//! handler. Where the profile keeps nothing in memory, only the pages that were touched last stay
//! accessible: single accesses cannot be charged. docs/devices.md, "Mappings", has the limits.
//!
//! The table is fixed and without locks, but for the changes of pages' protection: those hold
//! [`Held`], with all signals blocked, so that no handler waits for what it interrupted.
#![expect(
    unsafe_code,
    reason = "changes the protection of memory, in a signal handler"
)]

use crate::devices;
use forebay_device::{FileKey, clock};
use libc::{c_int, sigset_t};
use std::{
    hint,
    mem::MaybeUninit,
    ops::Range,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

mod charge;
pub(crate) mod handler;

pub(crate) use charge::{Mapping, charge};

const PAGE: usize = 4096;

/// Mappings that are charged at a time; more are free. LevelDB makes 1000.
const GUARDS: usize = 4096;

/// Pages that stay accessible where nothing is kept: more than one instruction can touch.
const RECENT: usize = 16;

/// A mapping.
struct Guard {
    /// Its first byte; 0 for none, [`TAKEN`] while it is filled in.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Offset in the file of its first byte, and the file's size when it was mapped.
    offset: AtomicU64,
    file_end: AtomicU64,
    key: AtomicU64,
    device: AtomicUsize,
    protection: AtomicI32,
}

const TAKEN: usize = 1;

static TABLE: [Guard; GUARDS] = [const {
    Guard {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        offset: AtomicU64::new(0),
        file_end: AtomicU64::new(0),
        key: AtomicU64::new(0),
        device: AtomicUsize::new(0),
        protection: AtomicI32::new(0),
    }
}; GUARDS];

/// Places of the table that were ever used: 0 in most processes.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Pages that were made accessible last, where nothing is kept.
static LAST: [AtomicUsize; RECENT] = [const { AtomicUsize::new(0) }; RECENT];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// True if there is no mapping to be charged, and was none.
#[inline]
fn is_idle() -> bool {
    USED.load(Relaxed) == 0
}

/// Whether a mapping with these arguments is charged page by page: of a file, and only to be read.
pub(crate) fn is_readers(protection: c_int, flags: c_int) -> bool {
    protection == libc::PROT_READ && flags & (libc::MAP_ANONYMOUS | libc::MAP_LOCKED) == 0
}

/// Who touches a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Toucher {
    Program,
    /// A system call, which would say `EFAULT` for a page that is inaccessible: so it stays
    /// accessible.
    Kernel,
}

/// Touches all of `bytes` at `address` that are in a charged mapping, before the kernel is given
/// them.
pub(crate) fn touch(address: usize, bytes: usize) {
    if is_idle() {
        return;
    }
    let end = address.saturating_add(bytes);
    let mut at = address & !(PAGE - 1);
    while at < end {
        match find(at) {
            Some(guard) => {
                resolve(guard, at, Toucher::Kernel);
                at += PAGE;
            }
            None => at = next_start(at).min(end),
        }
    }
}

/// In a forked child: a thread that held this is not here.
pub(crate) fn forked() {
    HELD.store(false, Release);
}

fn next_start(address: usize) -> usize {
    let starts = TABLE[..USED.load(Acquire)]
        .iter()
        .map(|guard| guard.start.load(Acquire));
    starts
        .filter(|start| *start > address)
        .min()
        .unwrap_or(usize::MAX)
}

/// The mapping that an address is in.
fn find(address: usize) -> Option<&'static Guard> {
    TABLE[..USED.load(Acquire)]
        .iter()
        .find(|guard| guard.holds(address))
}

impl Guard {
    fn holds(&self, address: usize) -> bool {
        let start = self.start.load(Acquire);
        start > TAKEN && (start..self.end.load(Relaxed)).contains(&address)
    }
}

/// Charges the page at `address`, and those around it that are read with it, and makes them
/// accessible.
fn resolve(guard: &Guard, address: usize, toucher: Toucher) {
    let Some(device) = devices::get(guard.device.load(Relaxed)) else {
        return;
    };
    let begun = clock::now_ns();
    let (start, end) = (guard.start.load(Acquire), guard.end.load(Relaxed));
    let keeps = device.profile().cache.reads;
    let around = if keeps {
        device.profile().read_around_pages() as usize * PAGE
    } else {
        PAGE
    };
    let page = address & !(PAGE - 1);
    let from = start + (page - start) / around * around;
    let to = (from + around).min(end);
    let offset = guard.offset.load(Relaxed) + (from - start) as u64;
    let bytes = ((to - from) as u64).min(guard.file_end.load(Relaxed).saturating_sub(offset));
    if bytes > 0 {
        let key = FileKey::of_word(guard.key.load(Relaxed));
        clock::wait_until(device.touch(key, offset, bytes, begun));
    }
    let _held = Held::take();
    // Unless it was unmapped meanwhile.
    if guard.start.load(Acquire) != start || guard.end.load(Relaxed) != end {
        return;
    }
    protect(from, to, guard.protection.load(Relaxed));
    if keeps {
        return;
    }
    if toucher == Toucher::Kernel {
        forget_last(page..page + PAGE);
    } else {
        let last = LAST[NEXT.fetch_add(1, Relaxed) % RECENT].swap(page, Relaxed);
        let is_again = LAST.iter().any(|other| other.load(Relaxed) == last);
        if last != 0 && !is_again && find(last).is_some() {
            protect(last, last + PAGE, libc::PROT_NONE);
        }
    }
}

/// Before the program changes what is mapped at `bytes` from `address` on: mappings there are as
/// the program made them, and free.
pub(crate) fn release(address: usize, bytes: usize) {
    if is_idle() {
        return;
    }
    let end = address.saturating_add(bytes.next_multiple_of(PAGE));
    let _held = Held::take();
    for guard in &TABLE[..USED.load(Acquire)] {
        let (from, to) = (guard.start.load(Acquire), guard.end.load(Relaxed));
        if from > TAKEN && from < end && address < to {
            protect(from, to, guard.protection.load(Relaxed));
            guard.start.store(0, Release);
        }
    }
    forget_last(address..end);
}

/// Pages that stay accessible, or are no longer there.
fn forget_last(pages: Range<usize>) {
    for page in &LAST {
        if pages.contains(&page.load(Relaxed)) {
            page.store(0, Relaxed);
        }
    }
}

/// Changes the protection of pages; false if the kernel refuses. Leaves errno alone.
fn protect(from: usize, to: usize, protection: c_int) -> bool {
    let flags = rustix::mm::MprotectFlags::from_bits_retain(protection.unsigned_abs());
    let pages = ptr::with_exposed_provenance_mut(from);
    // SAFETY: pages of a mapping in the table, which the program gave us to charge: it does not
    // count on them being inaccessible, and gets them back as they were. Not the C library's
    // `mprotect` or `syscall`, which come by here.
    unsafe { rustix::mm::mprotect(pages, to - from, flags) }.is_ok()
}

static HELD: AtomicBool = AtomicBool::new(false);

/// No other thread changes protections. All signals are blocked meanwhile.
struct Held {
    before: sigset_t,
}

impl Held {
    fn take() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both are filled by the calls.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        while HELD
            .compare_exchange_weak(false, true, Acquire, Relaxed)
            .is_err()
        {
            hint::spin_loop();
        }
        Self { before }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.store(false, Release);
        // SAFETY: a mask that the C library gave us.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}
