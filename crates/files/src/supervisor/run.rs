//! The run's lane and its table of files. Every process of the run appends to the lane; the
//! supervisor claims it, drains it, and gives it back.

use super::{
    SupervisorState,
    bell::Bell,
    drain_progress::DrainProgress,
    first_sync::FirstSyncs,
    forgotten_files::ForgottenFiles,
    known_files::KnownFiles,
    lag_age::{self, LagAge},
    lane_mark::LaneMark,
    watch::WatchedFile,
};
use crate::{
    FILES_MAX,
    absorbed::FileKey,
    lane_label::{LabelMark, label},
    lane_place::LanePlace,
    log::LaneLog,
    shared::{
        DurationCounts, FileState, PART, SharedFile, SharedPage, SharedPageLayout, Stamp, places_in,
    },
    sys,
};
use forebay_pool::{ClaimOptions, MonotonicTime, Pool, PoolError, PoolOptions, SharedLane};
use parking_lot::Mutex;
use rustix::{
    fs::Stat,
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    collections::HashSet,
    ffi::OsString,
    fs::File,
    ops::Range,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, Release},
        },
    },
    time::Duration,
};
use uuid::Uuid;

/// The supervisor's number among those that take a file's lock.
pub(super) const SUPERVISOR: u32 = 0;
/// Time that files which cannot be synced are tried again at the end of the run; and the interval
/// of notices that a slow disk is waited for.
pub(super) const END_WAIT: Duration = Duration::from_secs(10);
/// Wait for the drain before looking again.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A file that the run absorbs.
#[derive(Clone)]
pub(super) struct AbsorbedFile {
    /// As it was registered.
    pub(super) path: PathBuf,
    /// The pattern that named it then: its place among the run's.
    pub(super) pattern: Option<usize>,
    /// The directory that had its name then.
    pub(super) parent: Option<FileKey>,
    /// Device and inode; none for a file that is released, whose inode may be another's.
    pub(super) key: Option<FileKey>,
    /// The same, open, once its first sync is done.
    pub(super) directory: Option<Arc<File>>,
    /// The process that had it registered.
    pub(super) pid: u32,
    /// The identity by which records may name it.
    pub(super) identity: Vec<u8>,
    /// Its owner and mode when it was registered.
    pub(super) stat: Stat,
    /// An open file of the supervisor's own: it shares no lock, position or flag with the
    /// program's, and keeps no program from being executed. None for a file that is released.
    pub(super) file: Option<Arc<File>>,
    /// The directory that had its last name.
    pub(super) unlinked_from: Option<Arc<File>>,
    pub(super) watched: WatchedFile,
}

/// The run's lane and its files.
pub(super) struct RunState {
    /// By an open file of its own, which all members have: so the lane's lock ends with the last of
    /// them.
    pub(super) pool: Pool,
    pub(super) lane: SharedLane,
    pub(super) page: SharedPage,
    pub(super) page_fd: OwnedFd,
    boot: Uuid,
    marked: LaneMark,
    pub(super) files: Mutex<KnownFiles>,
    /// Start of the next look for closed files, of which only some are looked at each time.
    pub(super) looked_to: AtomicUsize,
    /// Time at which all numbers were last found to be files' that are open.
    pub(super) found_full: Mutex<Option<MonotonicTime>>,
    /// By number: the generation of the page, which any member may write over. Changed with `files`
    /// locked.
    pub(super) generations: Vec<AtomicU32>,
    /// By number: the error with which the file cannot be synced, as the page has it; 0 for none.
    pub(super) errors: Vec<AtomicI32>,
    /// Identities of files that were made plain: they stay so.
    pub(super) retired: Mutex<HashSet<Vec<u8>>>,
    pub(super) forgotten: Mutex<ForgottenFiles>,
    /// Held while a file gets its number: the one that is given next, if it is free.
    pub(super) registering: Mutex<usize>,
    pub(super) first_syncs: FirstSyncs,
    /// Held while a file is written again.
    pub(super) repairing: Mutex<()>,
    pub(super) drained: Mutex<DrainProgress>,
    /// Segments were released, or a file was repaired, or the run ends.
    pub(super) changed: Bell,
    /// All members are gone: the drain ends when the lane is empty.
    pub(super) ending: AtomicBool,
    /// It has.
    pub(super) ended: AtomicBool,
    pub(super) syncs: AtomicU64,
    pub(super) sync_ns: AtomicU64,
    /// Durations of complete segments' syncs and releases.
    pub(super) drains: DurationCounts,
    /// Durations of making files plain.
    pub(super) retires: DurationCounts,
    pub(super) lag_age: Mutex<LagAge>,
    /// The reason that the lane was left in the pool, if it was.
    pub(super) left: Mutex<Option<String>>,
    /// The pool's file has no name any more.
    pub(super) is_pool_gone: AtomicBool,
}

/// More numbers are files' when the free ones are few: this part of those that are, or [`PART`].
const MORE_NUMBERS: usize = 8;
/// Descriptors of the supervisor's for a file: itself, and the directory that has its name, or had
/// the last one, which all files in it share.
const OPEN_OF_FILE: usize = 2;
/// For a process of the run: its connection, and what tells that it has ended.
const OPEN_OF_MEMBER: usize = 2;
/// And others.
const OTHERS_OPEN: usize = 256;
/// The part of a process's addresses (`ulimit -v`) that the shared page may take.
const SHARE_OF_ADDRESSES: u64 = 16;

/// From now on this process may have as many files open as it is let: it has one for each that is
/// absorbed. What it started before has its own limit.
fn open_many() {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
}

/// The number of places that the shared page is to have: a process maps it as a whole, so no more
/// than the limits let the run have files, and let it be large. The program's own limits may be
/// lower.
fn places_max() -> usize {
    let limit = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
    let open = usize::try_from(limit(Resource::Nofile)).unwrap_or(usize::MAX);
    let places = [
        open.saturating_sub(OTHERS_OPEN) / OPEN_OF_FILE,
        places_in(limit(Resource::Fsize)),
        places_in(limit(Resource::As) / SHARE_OF_ADDRESSES),
    ];
    let places = places.into_iter().fold(FILES_MAX, usize::min);
    (places / PART * PART).max(PART)
}

/// A shared page with so many places, or with fewer, where there are no addresses for it.
fn new_page(places: usize) -> Result<(SharedPage, OwnedFd), Errno> {
    match SharedPage::new("forebay", places) {
        Err(Errno::NOMEM) if places > PART => new_page((places / 2 / PART * PART).max(PART)),
        made => made,
    }
}

impl RunState {
    /// Claims a lane of the supervisor's pool.
    ///
    /// # Errors
    /// In words: above all that the pool has no room.
    pub(super) fn begin(shared: &SupervisorState) -> Result<Self, String> {
        let pool_file = shared
            .pool
            .descriptor()
            .ok_or("opening the pool: it has no file")?;
        // By the supervisor's descriptor: its path may lead elsewhere by now.
        let own = File::options()
            .read(true)
            .write(true)
            .open(sys::link_of(pool_file))
            .map_err(|e| format!("opening the pool: {e}"))?;
        let pool = PoolOptions::new()
            .open_file(shared.pool.path(), own)
            .map_err(|e| e.to_string())?;
        open_many();
        let (page, page_fd) =
            new_page(places_max()).map_err(|e| format!("a page to share: {e}"))?;
        let places = page.files.len();
        let [head, ..] = SharedPageLayout::parts_of(0..0);
        sys::reserve_memory(&page_fd, head)
            .map_err(|e| format!("memory for a page to share: {e}"))?;
        page.set_used(0, 0);
        sys::keep_from_dumps(page.memory());
        let whose = format!("{} {}", shared.options.program, std::process::id());
        let options = ClaimOptions::new()
            .segments(shared.options.segments)
            .label(label(LabelMark::None, &whose));
        let lane = pool
            .claim_shared(Uuid::new_v4(), &options)
            .map_err(|e| e.to_string())?;
        if let Ok(path) = rustix::fs::readlink(sys::link_of(pool_file), Vec::new()) {
            shared.table.set_lane(&LanePlace {
                path: PathBuf::from(OsString::from_vec(path.into_bytes())),
                pool: pool.uuid(),
                owner: lane.owner(),
            });
        }
        let head = lane.usage().head;
        let lag_age = LagAge::begun(lag_age::drained(head), shared.started.elapsed());
        Ok(Self {
            pool,
            lane,
            page,
            page_fd,
            boot: shared.boot,
            marked: LaneMark::new(whose),
            files: Mutex::default(),
            looked_to: AtomicUsize::new(0),
            found_full: Mutex::default(),
            generations: (0..places).map(|_| AtomicU32::new(0)).collect(),
            errors: (0..places).map(|_| AtomicI32::new(0)).collect(),
            retired: Mutex::default(),
            forgotten: Mutex::default(),
            registering: Mutex::default(),
            first_syncs: FirstSyncs::default(),
            repairing: Mutex::default(),
            drained: Mutex::new(DrainProgress::of(places)),
            changed: Bell::default(),
            ending: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            syncs: AtomicU64::new(0),
            sync_ns: AtomicU64::new(0),
            drains: DurationCounts::default(),
            retires: DurationCounts::default(),
            lag_age: Mutex::new(lag_age),
            left: Mutex::default(),
            is_pool_gone: AtomicBool::new(false),
        })
    }

    /// Marks the lane, for a recovery.
    ///
    /// # Errors
    /// The pool's disk failed.
    pub(super) fn mark(&self, mark: LabelMark) -> Result<(), PoolError> {
        self.marked.set(&self.lane, mark)
    }

    /// Does `work`, which syncs files: a recovery is to know if the supervisor dies in it.
    ///
    /// A pool on a disk is not told that. It gets the records that it lacks, before the syncs and
    /// behind them: a sync takes along what was written and not committed, and a recovery without a
    /// record of that would take it for what another program wrote to a clone.
    pub(super) fn while_syncing<T>(&self, work: impl FnOnce() -> T) -> T {
        if !self.lane.member().needs_commit() {
            return self.marked.syncing(&self.lane, work);
        }
        // If it cannot be committed, the next sync finds that out.
        let _ = self.lane.commit();
        let done = work();
        let _ = self.lane.commit();
        done
    }

    /// The lane, to log by.
    pub(super) fn log(&self) -> LaneLog<'_> {
        LaneLog {
            lane: self.lane.member(),
            page: &self.page,
            boot: *self.boot.as_bytes(),
            is_orphan: || false,
        }
    }

    /// The numbers that are files', or were.
    pub(super) fn numbers(&self) -> Range<usize> {
        0..self.files.lock().len()
    }

    /// The same, each with its place on the page.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, &SharedFile)> {
        let files = self.page.files[self.numbers()].iter();
        files.enumerate()
    }

    /// More numbers may be files'. False if there are none, or no memory for them, or the
    /// supervisor may not have so many files open.
    pub(super) fn take_more_numbers(&self, shared: &SupervisorState) -> bool {
        let members = shared.member_processes().len();
        let mut files = self.files.lock();
        let open_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let others = (members * OPEN_OF_MEMBER + OTHERS_OPEN) as u64;
        let most = open_max.saturating_sub(others) / OPEN_OF_FILE as u64;
        let most = usize::try_from(most).unwrap_or(usize::MAX).max(PART);
        let more = (files.len() / MORE_NUMBERS).max(PART);
        let count = (files.len() + more).min(most).min(self.page.files.len()) / PART * PART;
        if count <= files.len() {
            return false;
        }
        let [_, blocks, places] = SharedPageLayout::parts_of(files.len()..count);
        let parts = [blocks, places].into_iter().filter(|part| !part.is_empty());
        let is_there = |part| sys::reserve_memory(&self.page_fd, part).is_ok();
        if shared.table.reserve(count).is_err() || !{ parts }.all(is_there) {
            return false;
        }
        self.page.set_used(files.len(), count);
        files.grow(count);
        true
    }

    pub(super) fn known(&self, number: usize) -> Option<Arc<AbsorbedFile>> {
        self.files.lock().get(number).cloned()
    }

    /// True if the number is a file's, and the one's of this generation. With `files` locked.
    pub(super) fn is_known_as(&self, files: &KnownFiles, number: usize, generation: u32) -> bool {
        files.get(number).is_some() && self.generation(number) == generation
    }

    /// The number and generation of the file, if it is absorbed, and the path by which it was
    /// registered.
    pub(super) fn find(&self, key: FileKey) -> Option<(usize, Stamp, PathBuf)> {
        let files = self.files.lock();
        let number = files.find(key)?;
        let stamp = self.page.files[number].stamp();
        Some((number, stamp, files.get(number)?.path.clone()))
    }

    /// All files that are absorbed.
    pub(super) fn keys(&self) -> Vec<FileKey> {
        let files = self.files.lock();
        files.iter().filter_map(|(_, known)| known.key).collect()
    }

    /// The status of the file now, if it is absorbed.
    pub(super) fn stat_of(&self, key: FileKey) -> Option<Stat> {
        let files = self.files.lock();
        let known = files.get(files.find(key)?)?;
        let now = known.file.as_ref().and_then(|f| rustix::fs::fstat(f).ok());
        Some(now.unwrap_or(known.stat))
    }

    /// Makes a file plain: nothing is logged of it from now on, everything that the lane has is
    /// synced, and then all processes find it plain.
    ///
    /// # Errors
    /// That of a sync; `ETIMEDOUT` if a process has been in the middle of a write all the time. The
    /// file is still to be plain.
    pub(super) fn retire(
        &self,
        shared: &SupervisorState,
        number: usize,
        generation: u32,
        limit: Duration,
    ) -> Result<(), Errno> {
        let file = &self.page.files[number];
        if self.is_damaged() {
            self.settle(shared)?;
        }
        if !file.leave(generation) {
            return Ok(());
        }
        let begun = MonotonicTime::now();
        let deadline = begun + limit;
        if !file.lock.take_for(SUPERVISOR, limit) {
            return Err(Errno::TIMEDOUT);
        }
        // Of one that was not logged yet the lane has nothing.
        let done = match file.leaves(generation) && file.named_in().is_some() {
            true => self.flush(shared, deadline),
            false => Ok(()),
        };
        if done.is_ok() && file.leaves(generation) {
            self.forget(shared, number, true);
            self.retires.add(begun.elapsed());
        }
        file.lock.free();
        done
    }

    /// Returns when all that was appended before is synced and released.
    ///
    /// # Errors
    /// That of a file that cannot be synced; `ETIMEDOUT`.
    pub(super) fn flush(
        &self,
        shared: &SupervisorState,
        deadline: MonotonicTime,
    ) -> Result<(), Errno> {
        let mut end = None;
        loop {
            let rung = self.changed.rung();
            let drained = self.drained.lock();
            if end.is_none() {
                match self.lane.seal() {
                    Ok(sealed) => end = sealed,
                    Err(_) => {
                        drop(drained);
                        return self.settle(shared);
                    }
                }
            }
            if end.is_some_and(|end| self.lane.usage().head >= end) {
                return Ok(());
            }
            if !self.lane.is_sound() {
                // What is not released by now never is.
                drop(drained);
                return self.settle(shared);
            }
            if let Some(errno) = self.page.failure() {
                return Err(errno);
            }
            if MonotonicTime::now() >= deadline {
                return Err(Errno::TIMEDOUT);
            }
            drop(drained);
            self.changed.wait(rung, LOOK);
        }
    }

    /// True if the pool's file was removed, and the lane is needed still: a power cut would take
    /// its records along. Nothing is logged from then on.
    pub(super) fn has_lost_pool(&self) -> bool {
        let stat = self.pool.descriptor().map(rustix::fs::fstat);
        let is_gone = matches!(stat, Some(Ok(stat)) if stat.st_nlink == 0);
        if !is_gone || self.lane.is_settled() {
            return false;
        }
        self.is_pool_gone.store(true, Relaxed);
        self.lane.close();
        true
    }

    /// True if a process has written over the page's state of a file, or of its lock's holder: it
    /// cannot be.
    pub(super) fn is_damaged(&self) -> bool {
        let files = self.files.lock();
        let is_wrong = |number: usize| {
            let stamp = self.page.files[number].stamp();
            let is_known = files.get(number).is_some();
            stamp.generation != self.generation(number)
                || is_known && stamp.state == FileState::Free
        };
        self.page.used() != files.len() || self.page.is_damaged() || (0..files.len()).any(is_wrong)
    }

    /// The file could not be synced.
    pub(super) fn fail(&self, number: usize, errno: Errno) {
        self.errors[number].store(errno.raw_os_error(), Relaxed);
        self.page.fail(number, errno);
    }

    /// The file is sound again.
    pub(super) fn repaired(&self, number: usize) {
        self.errors[number].store(0, Relaxed);
        self.page.repaired(number);
    }

    pub(super) fn generation(&self, number: usize) -> u32 {
        self.generations[number].load(Relaxed)
    }

    /// Returns when all that the lane has is synced, however slow the disk is. Files that cannot be
    /// synced are tried again for so long.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), but for a disk that is only slow.
    fn drain(&self, shared: &SupervisorState, wait: Duration) -> Result<(), Errno> {
        let mut deadline = MonotonicTime::now() + wait;
        loop {
            match self.flush(shared, MonotonicTime::now() + wait) {
                Err(_) if self.page.failing() && MonotonicTime::now() < deadline => {
                    for number in self.numbers() {
                        let _ = self.repair(shared, number);
                    }
                    std::thread::sleep(LOOK);
                }
                Err(Errno::TIMEDOUT) if !self.page.failing() => {
                    let usage = self.lane.usage();
                    let left = usage.tail.saturating_sub(usage.head).div_ceil(1 << 20);
                    sys::complain(&format!(
                        "the program has ended, and the disk is slow: up to {left} MiB of its writes are still to be synced. forebay stays until they are; if it \
                         is killed, they are in the pool for forebay recover"
                    ));
                    deadline = MonotonicTime::now() + wait;
                }
                drained => return drained,
            }
        }
    }

    /// All members are gone: drains the lane, with a `wait` of [`END_WAIT`], and gives it back.
    ///
    /// # Errors
    /// In words, why it stays in the pool.
    pub(super) fn end(&self, shared: &SupervisorState, wait: Duration) -> Result<(), String> {
        self.first_sync_all(shared);
        let drained = self.drain(shared, wait);
        self.ending.store(true, Release);
        self.notify();
        if let Some(thread) = shared.draining.lock().take() {
            let _ = thread.join();
        }
        self.ended.store(true, Release);
        let owner = self.lane.owner();
        if drained.is_ok() {
            // Before the lane is gone: a recovery finds guards by what lanes name.
            shared.guards.lift(&shared.pool, owner);
        }
        // Of one that is settled nothing is needed, though the pool's disk may not take that it is
        // free.
        let is_done = || {
            self.lane.give_back()
                || self.lane.is_settled()
                || self.lane.failure().is_some() && self.settle(shared).is_ok()
        };
        if drained.is_ok() && is_done() {
            self.numbers()
                .for_each(|number| self.forget(shared, number, false));
            return Ok(());
        }
        if drained.is_ok() {
            shared.guards.lay_again(&shared.pool, owner);
        }
        let failed = self.numbers().find_map(|number| {
            let errno = self.page.files[number].error()?;
            let path = self.known(number)?.path.clone();
            Some(format!("{} cannot be synced: {errno}", path.display()))
        });
        let why = failed.unwrap_or_else(|| match drained {
            Err(errno) => format!("its files cannot be synced: {errno}"),
            Ok(()) => match self.lane.failure() {
                Some(error) => format!("the pool's disk failed: {error}"),
                None => "something was written while it ended".to_owned(),
            },
        });
        *self.left.lock() = Some(why.clone());
        Err(why)
    }
}

#[cfg(test)]
mod tests;
