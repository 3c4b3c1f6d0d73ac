//! [`FailedWrites`]: the error that a medium failed to write with first. It is written to no more.

use std::{
    io,
    sync::atomic::{
        AtomicI32,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// See the module's head.
#[derive(Default)]
pub(super) struct FailedWrites {
    /// 0 if none failed.
    errno: AtomicI32,
}

impl FailedWrites {
    /// Nothing is written any more.
    pub(super) fn note(&self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let _ = self.errno.compare_exchange(0, errno, Release, Relaxed);
    }

    /// The error, if a write failed.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.errno.load(Acquire) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// It may be written to again.
    pub(super) fn forget(&self) {
        self.errno.store(0, Release);
    }
}
