//! [`Reserve`]: room on the disk that is kept for what makes room. docs/store-format.md, "A full disk".
//!
//! A collection copies what is live before it gives anything back, and a delete has to be logged.
//! So a file is kept allocated that holds nothing. When the disk is full it is removed, and the
//! store is *short*: what was acknowledged is drained, the index and the manifest are written, the
//! collector copies, deletes are taken; puts are refused. Once the file can be allocated again,
//! puts go on.
//!
//! A store that is opened without room for the reserve is short from the start. A file system that
//! allocates nothing ahead keeps none.

use crate::{disk::Disk, error::is_full};
use parking_lot::Mutex;
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Its file.
const NAME: &str = "RESERVE";
/// Of the next value-log file's size no more is kept: the file with most garbage has less that is
/// live.
const FILE_MAX: u64 = 256 << 20;
/// How often it is tried to get the room back.
const AGAIN: Duration = Duration::from_millis(50);

/// See the module's head.
pub(crate) struct Reserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// What is to be kept beside the part for a value-log file.
    beside: AtomicU64,
    most: AtomicU64,
    /// There was no room, and there is none yet for the reserve.
    is_short: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes that are kept.
    kept: u64,
    /// Bytes that were wanted last.
    wanted: u64,
    /// When it was last tried to get them.
    tried: Option<Instant>,
}

impl Reserve {
    /// That of the store in `dir`: what an earlier session kept.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        let path = dir.join(NAME);
        let kept = disk.open(&path).and_then(|file| file.len()).unwrap_or(0);
        Self {
            disk,
            path,
            beside: AtomicU64::new(0),
            most: AtomicU64::new(u64::MAX),
            is_short: AtomicBool::new(false),
            state: Mutex::new(State {
                kept,
                wanted: kept,
                tried: None,
            }),
        }
    }

    /// Puts are refused at present. One load.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Relaxed)
    }

    /// What is to be kept beside the part for a value-log file: for what is acknowledged and not in
    /// a file yet, and the index's tables; and all of it at `most`.
    pub(crate) fn set_beside(&self, bytes: u64, most: u64) {
        self.beside.store(bytes, Relaxed);
        self.most.store(most, Relaxed);
    }

    /// Keeps what a store needs whose next value-log file has `file_bytes`, if there is room for
    /// it.
    pub(crate) fn keep(&self, file_bytes: u64) {
        let mut state = self.state.lock();
        let wanted = file_bytes.min(FILE_MAX) + self.beside.load(Relaxed);
        state.wanted = wanted.min(self.most.load(Relaxed));
        let allocated = match self.is_short() {
            false => self.allocate(&mut state),
            true => Ok(()),
        };
        // Otherwise puts would take what there is of it.
        let is_full = allocated.is_err_and(|error| is_full(&error));
        if is_full && state.kept < state.wanted / 2 {
            self.is_short.store(true, Relaxed);
        }
    }

    /// Allocates what is wanted. If there is no room, nothing more is kept than before.
    fn allocate(&self, state: &mut State) -> io::Result<()> {
        if state.kept >= state.wanted {
            return Ok(());
        }
        let allocated = self.disk.open(&self.path).or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => self.disk.create(&self.path),
            _ => Err(e),
        });
        let allocated = allocated.and_then(|file| {
            let done = file.allocate(state.wanted);
            // What it got beyond would be the next to lack.
            done.inspect_err(|_| drop(file.truncate(state.kept)))
        });
        if allocated.is_ok() {
            state.kept = state.wanted;
        } else if state.kept == 0 {
            let _ = self.disk.remove(&self.path);
        }
        allocated
    }

    /// There is no room: gives the reserve to those who make some. False if there is none to give.
    #[cold]
    pub(crate) fn release(&self) -> bool {
        let mut state = self.state.lock();
        self.is_short.store(true, Relaxed);
        state.tried = Some(Instant::now());
        let given = state.kept > 0 && self.disk.remove(&self.path).is_ok();
        state.kept = 0;
        given
    }

    /// Ends the shortage if there is room for the reserve again. Looks now and then only.
    #[cold]
    pub(crate) fn try_again(&self) {
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        let is_time = state.tried.is_none_or(|tried| tried.elapsed() >= AGAIN);
        if self.is_short() && is_time {
            state.tried = Some(Instant::now());
            if self.allocate(&mut state).is_ok() {
                self.is_short.store(false, Relaxed);
            }
        }
    }

    /// Does `write`; if there is no room for it, once more with the reserve.
    pub(crate) fn with_room<T, E>(
        &self,
        is_full: impl Fn(&E) -> bool,
        mut write: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        match write() {
            Err(e) if is_full(&e) && self.release() => write(),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{
        RealDisk,
        faulty::{Fault, FaultyDisk, Plan},
    };

    /// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
    #[test]
    fn the_reserve_is_given_once_and_the_shortage_ends_with_room() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Arc::new(Plan::default());
        let disk = FaultyDisk::new(Arc::new(RealDisk::default()), Arc::clone(&plan));
        let reserve = Reserve::open(Arc::new(disk), dir.path());
        reserve.set_beside(1 << 20, u64::MAX);
        reserve.keep(3 << 20);
        let path = dir.path().join(NAME);
        let length = || std::fs::metadata(&path).unwrap().len();
        assert_eq!(length(), 4 << 20);
        reserve.keep(1 << 20);
        assert_eq!(length(), 4 << 20, "it is never given back but for need");
        assert!(reserve.release() && reserve.is_short() && !path.exists());
        assert!(!reserve.release());
        plan.strike(1, Fault::FullFor(u64::MAX / 2));
        std::thread::sleep(AGAIN);
        reserve.try_again();
        assert!(reserve.is_short());
        plan.heal();
        reserve.try_again();
        assert!(reserve.is_short(), "it looks now and then only");
        std::thread::sleep(AGAIN);
        reserve.try_again();
        assert!(!reserve.is_short());
        assert_eq!(length(), 2 << 20);
    }

    #[test]
    fn a_later_session_finds_what_an_earlier_one_kept() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::default());
        Reserve::open(disk.clone(), dir.path()).keep(1 << 20);
        let reserve = Reserve::open(disk, dir.path());
        let mut rooms = [false, true].into_iter();
        let write = || match rooms.next() {
            Some(true) => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::QuotaExceeded)),
        };
        reserve.with_room(is_full, write).unwrap();
        assert!(reserve.is_short());
    }
}
