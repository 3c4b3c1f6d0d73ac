//! A member that has died: nothing that it held keeps the others waiting.

use super::{
    SupervisorState,
    run::{LOOK, RunState},
};
use crate::{
    shared::{FileState, NameLoss},
    sys,
};
use forebay_pool::MonotonicTime;
use rustix::io::Errno;
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

/// The longest time that a dead member's unlogged writes may take to reach the disk, before its
/// file is made plain.
const UNLOGGED_WAIT: Duration = Duration::from_secs(10);

impl RunState {
    /// A member is dead: its locks are free, its reservations are void.
    pub(super) fn bury(&self, shared: &SupervisorState, member: u32) {
        // First of all: until then every append waits for what the dead one had reserved.
        while !self.lane.bury(member) {
            // A living member is stopped where it could be either's.
            std::thread::sleep(Duration::from_millis(1));
        }
        self.page.free_openings(|lock| lock.is_held_by(member));
        // It may have been about to name one of them.
        self.places()
            .filter(|(_, file)| file.first_sync.is_being_named())
            .for_each(|(_, file)| file.first_sync.end_naming());
        for (number, file) in self.places() {
            if !file.lock.is_held_by(member) {
                continue;
            }
            forebay_pool::failpoint!("files:bury-locked");
            // It may be where the next write comes back to.
            file.last_write.forget();
            self.page.block(number).give_up(number);
            file.set_known_end(None);
            if self.sync_unlogged(shared, number).is_err() {
                // Each sync of it is a real one, or fails, until it is plain.
                file.stray(file.stamp().generation);
            }
            forebay_pool::failpoint!("files:bury-synced");
            file.set_resizing(None);
            file.lock.free();
        }
        self.lane.prepare();
        for (number, file) in self.places() {
            if file.stamp().state != FileState::Free && file.gone() == NameLoss::Yes {
                let _ = self.release(shared, number);
            }
        }
    }

    /// A dead member's unlogged writes to the file were acknowledged to no process, but others may
    /// have read them, and their next sync says that they are durable. So it is synced, with all
    /// that the lane has, which is released: nothing older is written over it. Its lock's waiters
    /// wait for that.
    fn sync_unlogged(&self, shared: &SupervisorState, number: usize) -> Result<(), Errno> {
        let file = &self.page.files[number];
        let open = self.known(number).and_then(|known| known.file.clone());
        // A file that is plain, or is in no directory and open nowhere.
        let Some(open) = open else { return Ok(()) };
        let stat = rustix::fs::fstat(open)?;
        if let Some(bytes) = file.resizing()
            && stat.st_size.unsigned_abs() != bytes
        {
            self.log().refused(number, bytes)?;
        }
        if file.stamp().state != FileState::Absorbed {
            // Each sync of it is a real one, and a recovery is to see that it was changed.
            return Ok(());
        }
        if !file.is_logged() {
            // What a sync of any process waits for has it.
            return Ok(());
        }
        // It has moved the file's time. The record is made in any case: what the drain syncs are
        // files that have one.
        file.touched.store(0, Relaxed);
        self.log().touched(number, sys::modified(&stat))?;
        forebay_pool::failpoint!("files:bury-logged");
        let deadline = MonotonicTime::now() + UNLOGGED_WAIT;
        loop {
            match self.flush(shared, deadline) {
                // Another file's error, which may be repaired.
                Err(_) if file.error().is_none() && MonotonicTime::now() < deadline => {
                    std::thread::sleep(LOOK);
                }
                done => return done,
            }
        }
    }
}
