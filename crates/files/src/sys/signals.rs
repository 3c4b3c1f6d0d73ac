//! No signal handler runs in between.
#![expect(unsafe_code, reason = "the mask of a thread's signals")]

use std::{marker::PhantomData, mem::MaybeUninit, ptr};

/// Until it is dropped no handler interrupts this thread: none can jump away from its work, or wait
/// for it.
pub(crate) struct MaskedSignals {
    before: libc::sigset_t,
    /// The mask is the thread's.
    _here: PhantomData<*mut ()>,
}

/// Holds back all signals to this thread, but those of its own faults.
pub(crate) fn mask() -> MaskedSignals {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: the sets are written before they are read; the calls cannot fail with these
    // arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        MaskedSignals {
            before: before.assume_init(),
            _here: PhantomData,
        }
    }
}

impl Drop for MaskedSignals {
    fn drop(&mut self) {
        // SAFETY: it is what the mask was.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

/// Lets this process wait for its children, also if its caller ignored the signal of their end,
/// which is inherited: the kernel says nothing then, and keeps no status.
pub fn hear_of_children() {
    // SAFETY: it installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// In a process of Forebay's own: ignores two signals. By one the kernel says that a process waits
/// for a lease, which is given up soon anyway. By the other it ends who writes beyond the limit on
/// the size of files: the write fails instead, and that is said.
pub fn ignore_signals() {
    for signal in [libc::SIGIO, libc::SIGXFSZ] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
