//! [`SyncedFile`]: an ordinary file, mapped, whose fence is a sync. What a fence covers survives a power cut, as on persistent memory, and costs
//! what the disk takes: for a log that is seldom appended to, beside data that is synced as well.
//!
//! The kernel may write any page at any time, and a disk may tear it: each sector is old or new.
//! That is what persistent memory does to lines that no fence covers, so the formats stand it.

use super::{DescriptorSharing, FileMedia, Media, PoolPersistence};
use crate::complain;
use parking_lot::Mutex;
use std::{
    io::{self, IoSlice},
    os::fd::AsRawFd,
    sync::atomic::{
        AtomicBool,
        Ordering::{AcqRel, Release},
    },
};

/// See the module's head.
pub struct SyncedFile {
    inner: FileMedia,
    /// Something was stored since the last sync began.
    stored: AtomicBool,
    /// Held during a sync: who finds nothing stored waits for the one that covers him.
    syncing: Mutex<()>,
}

impl SyncedFile {
    /// `inner` with fences that sync its file.
    #[must_use]
    pub fn new(inner: FileMedia) -> Self {
        Self {
            inner,
            stored: AtomicBool::new(true),
            syncing: Mutex::new(()),
        }
    }

    /// Something was stored.
    fn noted(&self, _: &[IoSlice<'_>], _: usize) {
        self.stored.store(true, Release);
    }
}

#[expect(
    unsafe_code,
    reason = "implements the trait's unsafe methods; a system call"
)]
impl Media for SyncedFile {
    crate::forward_media!(medium inner then noted);

    fn durability(&self) -> PoolPersistence {
        PoolPersistence::PowerCutOnceCommitted
    }

    fn describe(&self) -> String {
        format!("{}, synced by each fence", self.inner.describe())
    }

    /// # Panics
    /// It ends the process if the disk fails: there is no way to say that nothing more is durable,
    /// and all that would rely on it runs in here.
    fn fence(&self) {
        self.inner.fence();
        let _one_at_a_time = self.syncing.lock();
        if !self.stored.swap(false, AcqRel) {
            return;
        }
        let fd = self.inner.descriptor().map_or(-1, |file| file.as_raw_fd());
        // SAFETY: it takes any number. By the C library, as every sync that an emulated device is
        // to hear of.
        if unsafe { libc::fdatasync(fd) } < 0 {
            let error = io::Error::last_os_error();
            complain(&format!(
                "syncing {}: {error}. Nothing more can be made durable there, so this process ends. Earlier syncs are in it: look at its disk, or copy it to another, \
                 and start again",
                self.inner.describe()
            ));
            std::process::abort();
        }
    }

    fn load(&self, offset: u64, to: &mut [u8]) {
        self.inner.load(offset, to);
    }

    fn abandon(&self) {
        self.inner.abandon();
    }

    fn share(&self, sharing: DescriptorSharing) -> io::Result<()> {
        self.inner.share(sharing)
    }

    fn is_free(&self, lock: u32) -> io::Result<bool> {
        self.inner.is_free(lock)
    }
}
