//! The locks that this process holds on a medium.

use super::{Media, ProcessMark};
use parking_lot::{Condvar, Mutex};
use std::{collections::HashSet, io, sync::Arc};

/// The set of locks held through one medium. The kernel's locks on a file do not exclude two users
/// of the same open file from each other; this does.
#[derive(Default)]
pub(super) struct HeldLocks {
    held: Mutex<HashSet<u32>>,
    given: Condvar,
}

impl HeldLocks {
    /// Takes `lock`; with `wait`, waits for it.
    pub(super) fn take(&self, lock: u32, wait: bool) -> io::Result<()> {
        let mut held = self.held.lock();
        while !held.insert(lock) {
            if !wait {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.given.wait(&mut held);
        }
        Ok(())
    }

    /// True if it is taken.
    pub(super) fn has(&self, lock: u32) -> bool {
        self.held.lock().contains(&lock)
    }

    /// Gives `lock` back.
    pub(super) fn give(&self, lock: u32) {
        self.held.lock().remove(&lock);
        self.given.notify_all();
    }
}

/// A lock of a medium, given back when this is dropped.
pub(crate) struct LockGuard {
    media: Arc<dyn Media>,
    lock: u32,
    process: ProcessMark,
    /// It is the open file's now.
    left: bool,
}

impl LockGuard {
    /// Takes `lock` (see [`Media::lock`]).
    pub(crate) fn take(media: &Arc<dyn Media>, lock: u32, wait: bool) -> io::Result<Self> {
        media.lock(lock, wait)?;
        Ok(Self {
            media: Arc::clone(media),
            lock,
            process: ProcessMark::take(),
            left: false,
        })
    }

    /// Ends this process's part in the lock, which is held as long as any process has the medium's
    /// open file (see [`Media::leave`]).
    #[expect(
        unsafe_code,
        reason = "a lock keeps others from memory that is lent out"
    )]
    pub(crate) fn leave(mut self) {
        self.left = true;
        if !self.process.is_here() {
            return;
        }
        // SAFETY: it is ours, and this is its end: see `Drop`.
        unsafe { self.media.leave(self.lock) };
    }
}

#[expect(
    unsafe_code,
    reason = "a lock keeps others from memory that is lent out"
)]
impl Drop for LockGuard {
    fn drop(&mut self) {
        // A forked child shares the open file: it would give back what its parent has.
        if !self.left && self.process.is_here() {
            // SAFETY: it was taken by `take`, and is given back here only. Windows have a part in
            // it, so none is left that lends anything out.
            unsafe { self.media.unlock(self.lock) };
        }
    }
}
