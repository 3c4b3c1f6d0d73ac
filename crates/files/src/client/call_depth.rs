//! A thread's depth of calls into the client.

use crate::sys::Frame;
use std::{cell::Cell, marker::PhantomData};

thread_local! {
    /// Calls of this thread that are inside the client: more than one if a signal handler's
    /// interrupted another.
    pub(super) static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The first of them.
    pub(super) static OUTERMOST: Cell<usize> = const { Cell::new(0) };
}

/// From now on until it is dropped this thread is inside the client.
#[must_use]
pub struct ClientCall<'a>(PhantomData<&'a Frame>);

/// Begins a call that has `frame` on the stack until it returns.
#[inline]
pub(super) fn begin(frame: &Frame) -> ClientCall<'_> {
    if DEPTH.get() == 0 {
        OUTERMOST.set(frame.note());
    }
    DEPTH.set(DEPTH.get() + 1);
    ClientCall(PhantomData)
}

impl Drop for ClientCall<'_> {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// True if this thread is inside the client: its calls on files are the client's own business.
#[inline]
#[must_use]
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// True if the call is a signal handler's, and interrupted another call of this thread: that may
/// have locks, which must not be waited for.
#[inline]
pub(super) fn interrupted() -> bool {
    DEPTH.get() > 1
}
