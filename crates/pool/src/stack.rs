//! Work that needs more of a stack than the caller may have left: a thread with a small one, or a
//! signal handler.
#![expect(unsafe_code, reason = "changes the stack")]

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::{
    arch::naked_asm,
    ffi::c_void,
    io, mem, ptr,
    thread::{self, JoinHandle},
};

/// Bytes of the stack that is lent.
const ROOM: usize = 512 << 10;
/// Below it nothing can be accessed.
const GUARD: usize = 4096;

/// Does `call` on a stack of its own, which is made for it: 512 KiB. Where there is no memory for
/// that, on the caller's.
///
/// Of a signal handler on an alternate stack all signals are blocked meanwhile: the kernel would
/// take the alternate stack for unused, and put the next handler there, over the first one. A panic
/// of `call` ends the process.
#[inline(never)]
pub fn with_room<T, F: FnOnce() -> T>(call: F) -> T {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory, at an address of the kernel's choice.
    let Ok(stack) = (unsafe { mmap_anonymous(ptr::null_mut(), ROOM, access, flags) }) else {
        return call();
    };
    // SAFETY: the lowest page of it, which nothing uses. Without it an overflow is not found, as on
    // other stacks without one.
    let _ = unsafe { mprotect(stack, GUARD, MprotectFlags::empty()) };
    let mut work = StackWork {
        call: Some(call),
        result: None,
    };
    let top = stack.wrapping_byte_add(ROOM).cast::<u8>();
    let blocked = BlockedSignals::on_alternate();
    // SAFETY: the end of the new memory, which is aligned; `work` is what `carry_out` takes, and
    // stays until it has returned.
    unsafe { switch((&raw mut work).cast(), carry_out::<F, T>, top) };
    drop(blocked);
    // SAFETY: nothing is on it any more.
    let _ = unsafe { munmap(stack, ROOM) };
    match work.result {
        Some(result) => result,
        // `carry_out` returns with a result, or not at all.
        None => std::process::abort(),
    }
}

/// Calls its function if its thread panics while it is there.
pub(crate) struct OnPanic<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)();
        }
    }
}

/// Starts a thread to which no signal of the process is delivered, whoever handles them.
///
/// # Errors
/// There is no more thread.
pub(crate) fn quiet_thread(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let _blocked = BlockedSignals::all();
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// Signals that are blocked as long as it is there.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    /// All of them, if this is a handler on an alternate stack.
    fn on_alternate() -> Option<Self> {
        // SAFETY: both are structures of numbers. The first call only asks.
        unsafe {
            let mut stack: libc::stack_t = mem::zeroed();
            let is_known = libc::sigaltstack(ptr::null(), &raw mut stack) == 0;
            let is_on = is_known && stack.ss_flags & libc::SS_ONSTACK != 0;
            is_on.then(Self::all)
        }
    }

    /// All of them.
    fn all() -> Self {
        // SAFETY: both are structures of numbers.
        unsafe {
            let [mut all, mut before]: [libc::sigset_t; 2] = mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: it is what the mask was.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

struct StackWork<F, T> {
    call: Option<F>,
    result: Option<T>,
}

/// A panic does not leave it: that ends the process.
unsafe extern "C" fn carry_out<F: FnOnce() -> T, T>(work: *mut c_void) {
    // SAFETY: what `with_room` hands on.
    let work = unsafe { &mut *work.cast::<StackWork<F, T>>() };
    work.result = work.call.take().map(|call| call());
}

/// Calls `carry_out` with `work` and a stack that ends at `top`.
#[unsafe(naked)]
unsafe extern "C" fn switch(
    work: *mut c_void,
    carry_out: unsafe extern "C" fn(*mut c_void),
    top: *mut u8,
) {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::{hint::black_box, thread};

    /// Uses so many KiB of the stack.
    fn deep(kib: usize) -> usize {
        let block = black_box([1_u8; 1024]);
        match kib {
            0 => 0,
            kib => usize::from(block[kib % 1024]) + deep(kib - 1),
        }
    }

    #[test]
    fn a_thread_with_a_small_stack_gets_room() {
        let small = thread::Builder::new().stack_size(32 << 10);
        let called = small.spawn(|| with_room(|| (deep(256), with_room(|| deep(256)))));
        assert_eq!(called.unwrap().join().unwrap(), (256, 256));
    }
}
