//! Bytes of a bounded number in memory that processes share.

use std::sync::atomic::{
    AtomicU8, AtomicU16,
    Ordering::{Acquire, Relaxed, Release},
};

/// At most `N` bytes: a path, an identity. Who reads them while they are changed gets bytes of
/// both; so that is done under a lock.
#[repr(C)]
pub struct SharedText<const N: usize> {
    length: AtomicU16,
    bytes: [AtomicU8; N],
}

impl<const N: usize> SharedText<N> {
    /// Changes it. False if there is no room, and it is as it was.
    #[must_use]
    pub fn set(&self, bytes: &[u8]) -> bool {
        let Ok(length) = u16::try_from(bytes.len()) else {
            return false;
        };
        if bytes.len() > N {
            return false;
        }
        self.length.store(0, Relaxed);
        for (to, byte) in self.bytes.iter().zip(bytes) {
            to.store(*byte, Relaxed);
        }
        self.length.store(length, Release);
        true
    }

    /// What it is.
    #[must_use]
    pub fn get(&self) -> Vec<u8> {
        let length = usize::from(self.length.load(Acquire));
        let bytes = self.bytes.iter().take(length);
        bytes.map(|byte| byte.load(Relaxed)).collect()
    }

    /// True if there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length.load(Acquire) == 0
    }

    /// Takes all out.
    pub fn clear(&self) {
        self.length.store(0, Release);
    }
}
