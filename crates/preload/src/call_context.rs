//! Surroundings of every call of the client: errno, cancellation, and the mark by which the
//! client's own file calls are known.
#![expect(unsafe_code, reason = "errno and POSIX thread cancellation")]

use forebay_files::client;
use libc::c_int;
use rustix::io::Errno;

const PTHREAD_CANCEL_DISABLE: c_int = 1;

// Both may act on a cancellation, which unwinds. The libc crate declares neither.
unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// A call that failed, with its errno. The thread's errno is not set to it yet.
#[must_use]
pub(crate) struct FailedCall(c_int);

impl FailedCall {
    pub(crate) fn of(error: Errno) -> Self {
        Self(error.raw_os_error())
    }

    /// Sets errno; returns `result`, the value by which the function says that it failed.
    pub(crate) fn with<T>(self, result: T) -> T {
        set_errno(self.0);
        result
    }

    /// The error number, for functions that return it.
    pub(crate) fn number(self) -> c_int {
        self.0
    }
}

/// The thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the address is that of a thread-local integer.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(number: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number }
}

/// For a hidden function that does not exist: `result` with errno `ENOSYS`.
#[cold]
pub(crate) fn missing<T>(result: T) -> T {
    FailedCall(libc::ENOSYS).with(result)
}

/// The result of a C function that says by a negative number that it failed.
pub(crate) fn checked<T: PartialOrd + From<i8>>(result: T) -> Result<T, Errno> {
    if result < T::from(0) {
        Err(Errno::from_raw_os_error(errno()))
    } else {
        Ok(result)
    }
}

/// A cancellation point, as the function is that calls this first.
pub(crate) fn cancellation_point() {
    // SAFETY: it may unwind, and nothing of ours on the stack has to be dropped.
    unsafe { pthread_testcancel() }
}

/// True if this is the client calling (or a signal handler above it): whatever it does with paths
/// must not come back to it.
pub(crate) fn is_client() -> bool {
    client::is_inside()
}

/// Calls the client, also in a forked child that is to become known only by this; all others [ask
/// first](crate::client_call::client) whether this is one. The thread cannot be cancelled
/// meanwhile, not even asynchronously, and its errno afterwards is what it was before. Never
/// inlined: of two calls, one inside the other, the inner one is deeper in the stack.
#[inline(never)]
pub(crate) fn inside<T: Copy>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, FailedCall> {
    let before = errno();
    let result = without_cancellation(|| {
        let frame = client::Frame::new();
        let inside = client::enter(&frame);
        let bomb = AbortOnPanic;
        let result = call();
        std::mem::forget(bomb);
        drop(inside);
        result
    });
    set_errno(before);
    result.map_err(FailedCall::of)
}

/// Does `call`, which must not unwind, while the thread cannot be cancelled.
pub(crate) fn without_cancellation<T: Copy>(call: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: disabling cancellation does not act on one.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
    let result = call();
    if before != PTHREAD_CANCEL_DISABLE {
        // SAFETY: a thread that is cancelled asynchronously unwinds from here, and nothing of ours
        // has to be dropped: `T` is `Copy`.
        unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
    }
    result
}

/// A panic of the client ends the process: unwinding would leave its state half changed, and the
/// database might catch it.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}
