//! Calls of which a signal handler jumped out (`siglongjmp`): their frames are gone from the stack,
//! and nothing that they began will be ended.
#![expect(unsafe_code, reason = "looks at the stack")]

use std::{
    cell::Cell,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// An address so near to the library's start is on the first thread's stack: the kernel maps
/// nothing else there.
const NEAR: usize = 8 << 20;

/// The place on the stack at which the library was started.
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// Notes where the first thread's stack is, of which this is called.
pub(crate) fn begin_frames() {
    let here = 0_u8;
    STARTED.store(ptr::from_ref(&here).addr(), Relaxed);
}

/// A place on the stack that is known to be a call's until that returns.
pub struct Frame(Cell<usize>);

impl Frame {
    /// One that nothing is noted of.
    #[inline]
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it is made in one place")]
    pub const fn new() -> Self {
        Self(Cell::new(0))
    }

    /// Its address, which it holds from now on.
    #[inline]
    pub(crate) fn note(&self) -> usize {
        let address = ptr::from_ref(self).expose_provenance();
        // SAFETY: it is ours. It is looked at by its address only.
        unsafe { self.0.as_ptr().write_volatile(address) };
        address
    }
}

/// True if the call that noted `frame` has certainly left the stack without returning, as `now`, a
/// place of the running call, says. False if it may be that a handler runs above it.
pub(crate) fn is_gone(frame: usize, now: &Frame) -> bool {
    let now = ptr::from_ref(now).addr();
    let is_near = |address: usize| address.abs_diff(STARTED.load(Relaxed)) < NEAR;
    if !is_near(frame) {
        return false;
    }
    let place = ptr::with_exposed_provenance::<usize>(frame);
    // SAFETY: the stack of the first thread stays mapped as far as it was ever used; any bytes are
    // a number.
    let holds = unsafe { ptr::read_volatile(place) };
    // Others' frames lie there. Or it is as it was, and this call's caller is one of those that it
    // was above.
    holds != frame || now >= frame && is_near(now) && !is_on_another_stack()
}

/// True if this is a signal handler on a stack of its own, wherever that is.
fn is_on_another_stack() -> bool {
    let mut stack = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: it only asks; the answer is read if there is one.
    unsafe {
        libc::sigaltstack(ptr::null(), stack.as_mut_ptr()) != 0
            || stack.assume_init().ss_flags & libc::SS_ONSTACK != 0
    }
}
