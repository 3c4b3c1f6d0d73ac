//! The locks that this process holds on a medium.

use super::Media;
use parking_lot::{Condvar, Mutex};
use std::{collections::HashSet, io, sync::Arc};

/// The set of locks held through one medium. The kernel's locks on a file do not exclude two users of the
/// same open file from each other; this does.
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

    /// Gives `lock` back.
    pub(super) fn give(&self, lock: u32) {
        self.held.lock().remove(&lock);
        self.given.notify_all();
    }
}

/// A lock of a medium, given back when this is dropped.
pub(crate) struct Guard {
    media: Arc<dyn Media>,
    lock: u32,
}

impl Guard {
    /// Takes `lock` (see [`Media::lock`]).
    pub(crate) fn take(media: &Arc<dyn Media>, lock: u32, wait: bool) -> io::Result<Self> {
        media.lock(lock, wait)?;
        Ok(Self {
            media: Arc::clone(media),
            lock,
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.media.unlock(self.lock);
    }
}
