//! The handler of SIGSEGV in front of the program's own, which gets every fault that is not of a
//! charged page.

use super::{Toucher, find, resolve};
use forebay::layer::is_readable;
use libc::{c_int, c_void, sighandler_t, siginfo_t, sigset_t};
use std::{
    ffi::CStr,
    mem, ptr,
    sync::{
        OnceLock,
        atomic::{
            AtomicI32, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

type SigAction =
    unsafe extern "C-unwind" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
type SetSignal = unsafe extern "C-unwind" fn(c_int, sighandler_t) -> sighandler_t;

/// The functions that ours hide; none if no library has them.
static SIGACTION: OnceLock<Option<SigAction>> = OnceLock::new();
static SIGNAL: OnceLock<Option<SetSignal>> = OnceLock::new();

fn hidden_sigaction() -> Option<SigAction> {
    // SAFETY: the signature of the manual page; an optional function pointer is an address or null.
    *SIGACTION.get_or_init(|| unsafe { mem::transmute(find_next(c"sigaction")) })
}

fn hidden_signal() -> Option<SetSignal> {
    // SAFETY: as above.
    *SIGNAL.get_or_init(|| unsafe { mem::transmute(find_next(c"signal")) })
}

fn find_next(name: &CStr) -> *mut c_void {
    // SAFETY: it is a string; RTLD_NEXT needs nothing.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Looks for them, before a handler needs them.
pub(crate) fn find_hidden() {
    hidden_sigaction();
    hidden_signal();
}

/// The program's handler of SIGSEGV is kept, and called for faults that are not ours.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if number != libc::SIGSEGV || !is_installed() {
        return match hidden_sigaction() {
            // SAFETY: our caller's arguments.
            Some(real) => unsafe { real(number, new, old) },
            None => {
                set_errno(libc::ENOSYS);
                -1
            }
        };
    }
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
}

/// As [`sigaction`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    if number != libc::SIGSEGV || !is_installed() {
        return match hidden_signal() {
            // SAFETY: our caller's arguments.
            Some(real) => unsafe { real(number, handler) },
            None => {
                set_errno(libc::ENOSYS);
                libc::SIG_ERR
            }
        };
    }
    let before = PROGRAMS.get();
    let mut action = no_action();
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    PROGRAMS.set(&action);
    before.sa_sigaction
}

/// The thread's errno.
fn errno() -> c_int {
    // SAFETY: the address is that of a thread-local integer.
    unsafe { *libc::__errno_location() }
}

fn set_errno(number: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number }
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

/// 0: the program's handler is the kernel's; 1: being changed; 2: ours is.
static INSTALLED: AtomicI32 = AtomicI32::new(0);

fn is_installed() -> bool {
    INSTALLED.load(Acquire) == 2
}

/// Puts our handler in the place of the program's.
pub(super) fn install() -> bool {
    if is_installed() {
        return true;
    }
    let Some(sigaction) = hidden_sigaction() else {
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
        if is_readable(address) {
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
    /// Bytes of the fault's address, 31 registers, stack pointer, program counter and state; then
    /// to a multiple of 16.
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
            // SAFETY: from here on a fault ends the process, as it should; one that was sent is
            // sent again.
            unsafe {
                if let Some(sigaction) = hidden_sigaction() {
                    sigaction(number, &raw const default, ptr::null_mut());
                }
                if was_sent {
                    libc::raise(number);
                }
            }
        }
        handler => {
            // SAFETY: the mask is the one that the kernel would have set; the handler is the
            // program's, of the kind that its flags say.
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
