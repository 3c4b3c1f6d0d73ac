//! Read-only mappings of files on an emulated device: a page that is touched for the first time costs a read.
//!
//! The mapping is the kernel's, so its bytes are always the file's; but its pages are inaccessible until they are touched. The fault
//! (`SIGSEGV`) waits for the device, makes the page and those around it accessible, and lets the program go on; any other fault goes to
//! the program's own handler. Where the profile keeps nothing in memory, only the pages that were touched last stay accessible:
//! single accesses cannot be charged. docs/devices.md, "Mappings", has the limits.
//!
//! The table is fixed and without locks, but for the changes of pages' protection: those hold [`Held`], with all signals blocked, so that no
//! handler waits for what it interrupted.
#![expect(
    unsafe_code,
    reason = "changes the protection of memory, in a signal handler"
)]

use crate::{
    around::{errno, missing, set_errno},
    device::{self, Begun},
    memory,
    real::{Real, c_name, hooks, signature},
};
use forebay_device::{FileKey, clock};
use libc::{c_int, c_void, sighandler_t, siginfo_t, sigset_t};
use std::{
    hint,
    mem::{self, MaybeUninit},
    ops::Range,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

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

hooks! {
    // The program's handler of SIGSEGV is kept, and called for faults that are not ours.
    fn [sigaction] (number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    missing missing(-1);
    plain if number != libc::SIGSEGV || !is_installed();
    else |_real| {
        let before = PROGRAMS.get();
        // SAFETY: our caller's pointers, to an action each, or null.
        unsafe {
            if !new.is_null() {
                PROGRAMS.set(&*new);
            }
            if !old.is_null() {
                *old = before;
            }
        }
        0
    };

    fn [signal] (number: c_int, handler: sighandler_t) -> sighandler_t;
    missing missing(libc::SIG_ERR);
    plain if number != libc::SIGSEGV || !is_installed();
    else |_real| {
        let before = PROGRAMS.get();
        let mut action = no_action();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        PROGRAMS.set(&action);
        before.sa_sigaction
    };
}

/// True if there is no mapping to be charged, and was none.
#[inline]
pub(crate) fn is_idle() -> bool {
    USED.load(Relaxed) == 0
}

/// Whether a mapping with these arguments is charged page by page: of a file, and only to be read.
pub(crate) fn is_readers(protection: c_int, flags: c_int) -> bool {
    protection == libc::PROT_READ && flags & (libc::MAP_ANONYMOUS | libc::MAP_LOCKED) == 0
}

/// Makes the pages of a fresh mapping inaccessible, to charge them. If that cannot be, the mapping is free.
pub(crate) fn charge(
    begun: Begun,
    address: *mut c_void,
    bytes: usize,
    offset: u64,
    protection: c_int,
) {
    let Some((number, key, file_end)) = begun.mapped() else {
        return;
    };
    if !install() {
        return;
    }
    let Some(at) = TABLE.iter().position(|guard| {
        guard
            .start
            .compare_exchange(0, TAKEN, AcqRel, Relaxed)
            .is_ok()
    }) else {
        return;
    };
    let guard = &TABLE[at];
    let start = address.addr();
    let end = start + bytes.next_multiple_of(PAGE);
    guard.end.store(end, Relaxed);
    guard.offset.store(offset, Relaxed);
    guard.file_end.store(file_end, Relaxed);
    guard.key.store(key.to_word(), Relaxed);
    guard.device.store(number, Relaxed);
    guard.protection.store(protection, Relaxed);
    USED.fetch_max(at + 1, AcqRel);
    guard.start.store(start, Release);
    if !protect(start, end, libc::PROT_NONE) {
        guard.start.store(0, Release);
    }
}

/// Who touches a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Toucher {
    Program,
    /// A system call, which would say `EFAULT` for a page that is inaccessible: so it stays accessible.
    Kernel,
}

/// Touches all of `bytes` at `address` that are in a charged mapping, before the kernel is given them.
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

/// In a forked child: whoever held this is not here.
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

/// Charges the page at `address`, and those around it that are read with it, and makes them accessible.
fn resolve(guard: &Guard, address: usize, toucher: Toucher) {
    let Some(device) = device::get(guard.device.load(Relaxed)) else {
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

/// Before the program changes what is mapped at `bytes` from `address` on: mappings there are as the program made them, and free.
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
    // SAFETY: pages of a mapping in the table, which the program gave us to charge: it does not count on them being inaccessible, and
    // gets them back as they were. Not the C library's `mprotect` or `syscall`, which come by here.
    unsafe { rustix::mm::mprotect(pages, to - from, flags) }.is_ok()
}

static HELD: AtomicBool = AtomicBool::new(false);

/// Nobody else changes protections. All signals are blocked meanwhile.
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

/// An action, in words that a handler may read while another thread changes them.
struct Action {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: [AtomicU64; MASK_WORDS],
}

const MASK_WORDS: usize = size_of::<sigset_t>() / size_of::<u64>();

/// The program's action for SIGSEGV, while ours is the kernel's.
static PROGRAMS: Action = Action {
    handler: AtomicUsize::new(libc::SIG_DFL),
    flags: AtomicI32::new(0),
    mask: [const { AtomicU64::new(0) }; MASK_WORDS],
};

fn no_action() -> libc::sigaction {
    // SAFETY: all zero is the default action.
    unsafe { mem::zeroed() }
}

impl Action {
    fn get(&self) -> libc::sigaction {
        let mut action = no_action();
        action.sa_sigaction = self.handler.load(Acquire);
        action.sa_flags = self.flags.load(Relaxed);
        let mask: [u64; MASK_WORDS] = std::array::from_fn(|at| self.mask[at].load(Relaxed));
        // SAFETY: a signal set is an array of words of this size.
        action.sa_mask = unsafe { mem::transmute::<[u64; MASK_WORDS], sigset_t>(mask) };
        action
    }

    fn set(&self, action: &libc::sigaction) {
        // SAFETY: as above.
        let mask = unsafe { mem::transmute::<sigset_t, [u64; MASK_WORDS]>(action.sa_mask) };
        for (word, bits) in self.mask.iter().zip(mask) {
            word.store(bits, Relaxed);
        }
        self.flags.store(action.sa_flags, Relaxed);
        self.handler.store(action.sa_sigaction, Release);
    }
}

type SigAction =
    signature!((number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int);

// SAFETY: the signature of the manual page.
static REAL_SIGACTION: Real<SigAction> = unsafe { Real::new(c_name!(sigaction)) };

/// 0: the program's handler is the kernel's; 1: being changed; 2: ours is.
static INSTALLED: AtomicI32 = AtomicI32::new(0);

fn is_installed() -> bool {
    INSTALLED.load(Acquire) == 2
}

/// Puts our handler in the place of the program's.
fn install() -> bool {
    if is_installed() {
        return true;
    }
    let Some(sigaction) = REAL_SIGACTION.get() else {
        return false;
    };
    if INSTALLED.compare_exchange(0, 1, AcqRel, Relaxed).is_err() {
        return is_installed();
    }
    let mut ours = no_action();
    ours.sa_sigaction = on_fault as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    let mut before = no_action();
    // SAFETY: the handler may be called at any time; both actions are whole.
    let done = unsafe {
        libc::sigfillset(&raw mut ours.sa_mask);
        sigaction(libc::SIGSEGV, ptr::null(), &raw mut before);
        PROGRAMS.set(&before);
        sigaction(libc::SIGSEGV, &raw const ours, ptr::null_mut())
    };
    INSTALLED.store(if done == 0 { 2 } else { 0 }, Release);
    done == 0
}

/// SIGSEGV: a page of ours that is read for the first time, or the program's business.
unsafe extern "C-unwind" fn on_fault(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    const SEGV_ACCERR: c_int = 2;
    let before = errno();
    // SAFETY: the kernel's, of this signal.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // SAFETY: as above.
    let was_read =
        code == SEGV_ACCERR && !unsafe { was_write(context) || was_fetch(context, address) };
    if was_read {
        if let Some(guard) = find(address) {
            resolve(guard, address, Toucher::Program);
            set_errno(before);
            return;
        }
        // The mapping may have been released since, and be accessible.
        if memory::is_readable(address) {
            return;
        }
    }
    set_errno(before);
    // SAFETY: the kernel's arguments.
    unsafe { hand_on(number, info, context) };
}

/// Whether the fault was that of an instruction that cannot be executed.
///
/// # Safety
///
/// `context` is what the kernel gave the handler.
unsafe fn was_fetch(context: *mut c_void, address: usize) -> bool {
    // SAFETY: our caller's promise.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    #[cfg(target_arch = "x86_64")]
    let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let at = context.uc_mcontext.pc as usize;
    at == address
}

/// Whether the fault was a write, which no page of ours can cause.
///
/// # Safety
///
/// `context` is what the kernel gave the handler.
#[cfg(target_arch = "x86_64")]
unsafe fn was_write(context: *mut c_void) -> bool {
    const WRITE: i64 = 2;
    // SAFETY: our caller's promise.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0
}

/// As above: in the record with the exception's syndrome, behind the registers.
///
/// # Safety
///
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn was_write(context: *mut c_void) -> bool {
    const ESR_MAGIC: u32 = 0x4553_5201;
    /// Bytes of the fault's address, 31 registers, stack pointer, program counter and state; then to a multiple of 16.
    const RECORDS: usize = 288;
    const WNR: u64 = 1 << 6;
    // SAFETY: our caller's promise; records follow each other, the last has size 0.
    unsafe {
        let registers = &raw const (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        let mut record = registers.cast::<u8>().add(RECORDS);
        loop {
            let [magic, bytes] = record.cast::<[u32; 2]>().read_unaligned();
            if magic == ESR_MAGIC {
                return record.add(8).cast::<u64>().read_unaligned() & WNR != 0;
            }
            if magic == 0 || bytes == 0 {
                return false;
            }
            record = record.add(bytes as usize);
        }
    }
}

/// Does what would have happened without us.
///
/// # Safety
///
/// The kernel's arguments.
unsafe fn hand_on(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let action = PROGRAMS.get();
    // SAFETY: our caller's promise.
    let was_sent = unsafe { (*info).si_code } <= 0;
    match action.sa_sigaction {
        libc::SIG_IGN if was_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            let default = no_action();
            // SAFETY: from here on a fault ends the process, as it should; one that was sent is sent again.
            unsafe {
                if let Some(sigaction) = REAL_SIGACTION.get() {
                    sigaction(number, &raw const default, ptr::null_mut());
                }
                if was_sent {
                    libc::raise(number);
                }
            }
        }
        handler => {
            // SAFETY: the mask is the one that the kernel would have set; the handler is the program's, of the kind that its flags say.
            unsafe {
                let mut mask = (*context.cast::<libc::ucontext_t>()).uc_sigmask;
                for signal in 1..=64 {
                    if libc::sigismember(&raw const action.sa_mask, signal) == 1 {
                        libc::sigaddset(&raw mut mask, signal);
                    }
                }
                if action.sa_flags & libc::SA_NODEFER == 0 {
                    libc::sigaddset(&raw mut mask, number);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, ptr::null_mut());
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
                    mem::transmute::<usize, Handler>(handler)(number, info, context);
                } else {
                    type Handler = unsafe extern "C-unwind" fn(c_int);
                    mem::transmute::<usize, Handler>(handler)(number);
                }
            }
        }
    }
}
