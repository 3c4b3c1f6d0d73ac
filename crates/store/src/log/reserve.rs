//! [`Reserve`]: room on the disk that is kept for work that makes room. docs/store-format.md, "A
//! full disk".
//!
//! A collection copies what is live before it gives anything back, and a delete has to be logged.
//! So a file is kept allocated that holds nothing. When the disk is full it is removed, and the
//! store is *short*: what was acknowledged is drained, the index and the manifest are written, the
//! collector copies, deletes are taken; puts are refused. Once the file can be allocated again,
//! puts go on.
//!
//! It is given in four steps:
//! 1. To whatever is written. The store is short from then on.
//! 2. What a file's copies take. The store is *tight*: deletes wait for the collector, and go on if
//!    it finds nothing that it could collect, since they make more.
//! 3. What a lane and a memtable hold. The store is *spent*: deletes that make no room are refused.
//! 4. The rest only the manifest gets: without it nothing can be collected, and a drain that took
//!    the last block would end all.
//!
//! What is collected fills the reserve again, from the last step up.
//!
//! A large value is written whole before anything else, so the reserve is no help to it and stays
//! as it is. The value says what room it *lacks*, and the collector makes that, if it can.
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
/// For the copies of a file no more is kept: of a larger one they have room once it has garbage.
const FILE_MAX: u64 = 512 << 20;
/// A copy of a file takes a part more in so many, and this much: records are chosen by samples, and
/// there are the index's tables.
const COPY_PART: u64 = 4;
pub(crate) const COPY_MORE: u64 = 256 << 10;
/// The first step is one part in so many of what is kept for a file.
const FIRST: u64 = 4;
/// The last step: for the manifests, of which a new one stands beside the old one.
const MANIFESTS: u64 = 256 << 10;
/// Room that copies of so many live bytes may take.
pub(crate) fn copy_bytes(live: u64) -> u64 {
    live + live / COPY_PART + COPY_MORE
}

/// How often it is tried to get the room back.
const AGAIN: Duration = Duration::from_millis(50);

/// The need for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveNeed {
    /// A value-log file, or the index.
    Log,
    /// The manifest, which gives room back.
    Manifest,
}

/// See the module's head.
pub(crate) struct Reserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// What is to be kept beside the part for a value-log file.
    beside: AtomicU64,
    most: AtomicU64,
    /// There was no room, and there is none yet for the reserve.
    is_short: AtomicBool,
    /// The second step was given, too.
    is_tight: AtomicBool,
    /// And the third.
    is_spent: AtomicBool,
    /// The collector found nothing that it could collect.
    in_vain: AtomicBool,
    /// What a large value lacked; 0 if none did.
    lacked: AtomicU64,
    state: Mutex<ReserveState>,
}

#[derive(Default)]
struct ReserveState {
    /// Bytes that are kept.
    kept: u64,
    /// Bytes that were wanted last, and what stays of them after the first three steps.
    wanted: u64,
    first: u64,
    second: u64,
    last: u64,
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
            is_tight: AtomicBool::new(false),
            is_spent: AtomicBool::new(false),
            in_vain: AtomicBool::new(false),
            lacked: AtomicU64::new(0),
            state: Mutex::new(ReserveState {
                kept,
                wanted: kept,
                ..ReserveState::default()
            }),
        }
    }

    /// Puts are refused at present. One load.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Relaxed)
    }

    /// Deletes wait at present. One load.
    #[inline]
    pub(crate) fn is_tight(&self) -> bool {
        self.is_tight.load(Relaxed)
    }

    /// Deletes that make no room are refused.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent.load(Relaxed)
    }

    /// The collector found nothing that it could collect; until it does, no delete waits for it.
    pub(crate) fn set_in_vain(&self) {
        self.in_vain.store(true, Relaxed);
    }

    pub(crate) fn is_in_vain(&self) -> bool {
        self.in_vain.load(Relaxed)
    }

    /// A large value of so many bytes has no room.
    #[cold]
    pub(crate) fn set_lacked(&self, bytes: u64) {
        self.lacked.fetch_max(bytes, Relaxed);
    }

    /// So much room was made.
    pub(crate) fn made(&self, bytes: u64) {
        let less = |lacked: u64| Some(lacked.saturating_sub(bytes));
        let _ = self.lacked.fetch_update(Relaxed, Relaxed, less);
    }

    /// No more room can be made.
    pub(crate) fn forget_lacked(&self) {
        self.lacked.store(0, Relaxed);
    }

    /// The collector is to make room, however little garbage there is.
    pub(crate) fn wants_room(&self) -> bool {
        self.is_short() || self.lacked.load(Relaxed) > 0
    }

    /// Bytes that are missing, of those that are wanted.
    pub(crate) fn missing_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.wanted.saturating_sub(state.kept)
    }

    /// Bytes that are kept now.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.state.lock().kept
    }

    /// Sets the bytes to be kept beside the part for a value-log file: for acknowledged records
    /// that are not in a file yet, and the index's tables; and all of it at `most`.
    pub(crate) fn set_beside(&self, bytes: u64, most: u64) {
        self.beside.store(bytes, Relaxed);
        self.most.store(most, Relaxed);
    }

    /// Keeps what a store needs whose next value-log file has `file_bytes`, if there is room for
    /// it.
    pub(crate) fn keep(&self, file_bytes: u64) {
        let mut state = self.state.lock();
        let copy = copy_bytes(file_bytes.min(FILE_MAX));
        let wanted = copy + self.beside.load(Relaxed);
        state.wanted = wanted.min(self.most.load(Relaxed));
        state.second = self.beside.load(Relaxed).min(state.wanted / 2);
        state.first = state.wanted - (state.wanted - state.second) / FIRST;
        state.last = MANIFESTS.min(state.second / 2);
        let allocated = match self.is_short() {
            false => self.allocate(&mut state),
            true => Ok(()),
        };
        // Otherwise puts would take what there is of it.
        let is_full = allocated.is_err_and(|error| is_full(&error));
        if is_full && state.kept < state.wanted / 2 {
            self.is_short.store(true, Relaxed);
            self.fill(&mut state);
        }
    }

    /// The store was closed with so few `bytes` of log: keeps what it takes to copy these, and the
    /// rest when it is opened again.
    pub(crate) fn shrink(&self, bytes: u64) {
        let mut state = self.state.lock();
        let enough = copy_bytes(bytes) + MANIFESTS;
        if self.is_short() || state.kept <= enough {
            return;
        }
        let cut = self
            .disk
            .open(&self.path)
            .and_then(|file| file.truncate(enough));
        if cut.is_ok() {
            state.kept = enough;
        }
    }

    /// Keeps as many of the steps as there is room for. True if that is all of them.
    fn fill(&self, state: &mut ReserveState) -> bool {
        let steps = [state.wanted, state.first, state.second, state.last];
        for step in steps {
            if self.allocate_to(state, step).is_ok() {
                break;
            }
        }
        self.note_steps(state);
        state.kept >= state.wanted
    }

    fn note_steps(&self, state: &ReserveState) {
        self.is_tight.store(state.kept < state.first, Relaxed);
        self.is_spent.store(state.kept < state.second, Relaxed);
    }

    /// Allocates what is wanted. If there is no room, nothing more is kept than before.
    fn allocate(&self, state: &mut ReserveState) -> io::Result<()> {
        self.allocate_to(state, state.wanted)
    }

    fn allocate_to(&self, state: &mut ReserveState, bytes: u64) -> io::Result<()> {
        if state.kept >= bytes {
            return Ok(());
        }
        let allocated = self.disk.open(&self.path).or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => self.disk.create(&self.path),
            _ => Err(e),
        });
        let allocated = allocated.and_then(|file| {
            let done = file.allocate(bytes);
            // What it got beyond would be the next to lack.
            done.inspect_err(|_| drop(file.truncate(state.kept)))
        });
        if allocated.is_ok() {
            state.kept = bytes;
        } else if state.kept == 0 {
            let _ = self.disk.remove(&self.path);
        }
        allocated
    }

    /// There is no room: gives the next step of the reserve to those who make some. False if there
    /// is none to give.
    #[cold]
    pub(crate) fn release(&self, need: ReserveNeed) -> bool {
        let mut state = self.state.lock();
        self.is_short.store(true, Relaxed);
        state.tried = Some(Instant::now());
        let steps = [state.first, state.second, state.last, 0];
        let left = steps.into_iter().find(|&step| step < state.kept);
        let given = match (left, need) {
            (None, _) => false,
            (Some(0), ReserveNeed::Log) if state.last > 0 => false,
            (Some(0), _) => self.disk.remove(&self.path).is_ok(),
            (Some(left), _) => {
                let opened = self.disk.open(&self.path);
                opened.is_ok_and(|file| file.truncate(left).is_ok())
            }
        };
        if given {
            state.kept = left.unwrap_or(0);
        }
        self.note_steps(&state);
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
            if self.fill(&mut state) {
                self.is_short.store(false, Relaxed);
                self.in_vain.store(false, Relaxed);
            }
        }
    }

    /// Room was made: keeps it, before another takes it.
    pub(crate) fn fill_again(&self) {
        self.in_vain.store(false, Relaxed);
        if self.is_short() {
            self.fill(&mut self.state.lock());
        }
    }

    /// Does `write`; if there is no room for it, again with each step of the reserve.
    pub(crate) fn with_room<T, E>(
        &self,
        need: ReserveNeed,
        is_full: impl Fn(&E) -> bool,
        mut write: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            match write() {
                Err(e) if is_full(&e) && self.release(need) => {}
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{
        RealDisk,
        faulty::{Fault, FaultPlan, FaultyDisk},
    };

    /// Promise: as `garbage_on_a_full_disk_is_collected_when_asked_for`.
    #[test]
    fn the_reserve_is_given_once_and_the_shortage_ends_with_room() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Arc::new(FaultPlan::default());
        let disk = FaultyDisk::new(Arc::new(RealDisk::default()), Arc::clone(&plan));
        let reserve = Reserve::open(Arc::new(disk), dir.path());
        reserve.set_beside(1 << 20, u64::MAX);
        reserve.keep(3 << 20);
        let path = dir.path().join(NAME);
        let length = || std::fs::metadata(&path).unwrap().len();
        let all = copy_bytes(3 << 20) + (1 << 20);
        assert_eq!(length(), all);
        reserve.keep(1 << 20);
        assert_eq!(length(), all, "it is never given back but for need");
        let all = copy_bytes(1 << 20) + (1 << 20);
        assert!(reserve.release(ReserveNeed::Log) && reserve.is_short());
        assert!(length() == all - copy_bytes(1 << 20) / FIRST && !reserve.is_tight());
        assert!(reserve.release(ReserveNeed::Log) && reserve.is_tight());
        assert!(length() == 1 << 20 && !reserve.is_spent());
        assert!(reserve.release(ReserveNeed::Log) && reserve.is_spent());
        assert_eq!(length(), MANIFESTS);
        assert!(
            !reserve.release(ReserveNeed::Log),
            "the rest is the manifest's"
        );
        assert!(reserve.release(ReserveNeed::Manifest) && !path.exists());
        assert!(!reserve.release(ReserveNeed::Manifest));
        plan.strike(1, Fault::FullFor(u64::MAX / 2));
        std::thread::sleep(AGAIN);
        reserve.try_again();
        assert!(reserve.is_short());
        plan.heal();
        reserve.try_again();
        assert!(reserve.is_short(), "it looks now and then only");
        std::thread::sleep(AGAIN);
        reserve.try_again();
        assert!(!reserve.is_short() && !reserve.is_tight() && !reserve.is_spent());
        assert_eq!(length(), all);
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
        reserve.with_room(ReserveNeed::Log, is_full, write).unwrap();
        assert!(reserve.is_short());
    }
}
