//! Files that a client is to let go of, because another process is to write to them. docs/files-protocol.md, "Whoever else writes".

use super::{Shared, elsewhere, guest::Guest};
use crate::absorbed::Key;
use parking_lot::MutexGuard;
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

/// How long somebody who wants to write to an absorbed file plainly waits for the client that absorbs it to notice. A client that does
/// nothing does not notice; but then it logged nothing in that time, and a replay sees that the file was changed later.
pub(super) const FOREIGN_WAIT: Duration = Duration::from_secs(2);
/// How long a lane whose owner is gone may be locked still, by a child that is about to execute something, say.
pub(super) const LOCKED_WAIT: Duration = Duration::from_secs(10);

/// Since when a process waits for a file to be let go of.
pub(super) struct Patience(Instant);

/// What came of asking for that.
struct Asked {
    /// A client absorbs the file.
    absorbed: bool,
    /// The lane of one that ended may hold something of it.
    ending: bool,
    /// One of the two is worth waiting for.
    waits: bool,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    fn ask(&self, guests: &[Arc<Guest>], key: Key, asking: Option<&Guest>) -> Asked {
        let (mut absorbed, mut ending) = (false, false);
        for guest in guests
            .iter()
            .filter(|guest| asking.is_none_or(|us| us.owner != guest.owner))
        {
            ending |= guest.ending.lock().contains(&key);
            for (number, file) in guest.files.lock().iter().enumerate() {
                if file.as_ref().is_some_and(|f| f.key == Some(key)) {
                    guest.page.files[number].retire.store(1, Relaxed);
                    absorbed = true;
                }
            }
        }
        Asked {
            absorbed,
            ending,
            waits: absorbed && self.0.elapsed() < FOREIGN_WAIT
                || ending && self.0.elapsed() < LOCKED_WAIT,
        }
    }
}

impl Shared {
    /// Asks every client but `asking` that absorbs the file to let it be plain, and waits; also for lanes of clients that ended, and
    /// may hold something of it. The clients, locked, and true if the file must not be absorbed.
    pub(super) fn let_go(
        &self,
        key: Key,
        asking: Option<&Guest>,
    ) -> (MutexGuard<'_, Vec<Arc<Guest>>>, bool) {
        let patience = Patience::new();
        let mut found = false;
        let mut guests = self.guests.lock();
        loop {
            let asked = patience.ask(&guests, key, asking);
            found |= asked.absorbed;
            if !asked.waits {
                return (guests, found || asked.ending);
            }
            self.changed.wait_for(&mut guests, Duration::from_millis(2));
        }
    }

    /// As [`let_go`](Self::let_go), without waiting: true if there still is something to wait for.
    pub(super) fn is_letting_go(&self, key: Key, patience: &Patience) -> bool {
        patience.ask(&self.guests.lock(), key, None).waits
    }

    /// True if a user may have a file made plain: who may write to it.
    pub(super) fn may_ask(&self, uid: u32, key: Key) -> bool {
        let guests = self.guests.lock();
        let stat = guests.iter().find_map(|guest| guest.stat_of(key));
        stat.is_none_or(|stat| elsewhere::may_write(uid, &stat))
    }

    /// The process that absorbs the file, or did and is not recovered yet, and the path by which it was registered (empty in the second case).
    pub(super) fn absorbed_by(&self, key: Key) -> Option<(u32, PathBuf)> {
        let guests = self.guests.lock();
        guests.iter().find_map(|guest| {
            let path = match guest
                .files
                .lock()
                .iter()
                .flatten()
                .find(|f| f.key == Some(key))
            {
                Some(file) => file.path.clone(),
                None if guest.ending.lock().contains(&key) => PathBuf::new(),
                None => return None,
            };
            Some((guest.pid, path))
        })
    }
}
