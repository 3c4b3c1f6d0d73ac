//! The drain: syncs the files of the lane's complete segments, and releases them.
//!
//! 1. Look which segments are complete. However many there are, they are drained together.
//! 2. Sync every file that they have records of, several at a time (of one that was unlinked, the
//!    directory that had it, if that can be told). A file is *clean* up to the segment that was
//!    open when its last sync began: what is in segments before that one the kernel had.
//! 3. Ask each file system whether it shut itself down meanwhile: then it may have taken a sync for
//!    done.
//! 4. If a sync fails, say so on the shared page, and release nothing: what the lane has of the
//!    file is written to it again, by a descriptor of the supervisor's own, and synced. A second
//!    sync alone would succeed, whatever the disk has.
//! 5. Release the segments.
//!
//! While the disk is behind, the lane takes further segments of the pool, and while there is
//! nothing to do it gives them back. If nothing is written for a second, or a segment does not fill
//! in one, the open segment is ended, so that all is on the disk. So it is when all files of a file
//! system were closed (`idle_filesystems`).

use super::{
    SupervisorState,
    file_names::key_of,
    idle_filesystems::IdleFilesystems,
    run::{AbsorbedFile, RunState, SUPERVISOR},
    watch::OutsideWatch,
};
use crate::{
    absorbed::FileKey,
    identity,
    lane_label::LabelMark,
    log::KeptRecords,
    shared::{FileState, NameLoss},
    snapshot,
    sys::{self, errno_of},
    void_marks,
};
use forebay_pool::{Lsn, MonotonicTime, extents, failpoint, rewrite};
use parking_lot::Mutex;
use rustix::{fs::OFlags, io::Errno};
use std::{
    collections::BTreeMap,
    fs::File,
    os::fd::AsFd,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Relaxed},
        },
    },
    thread,
    time::Duration,
};

/// Logged writes are on the disk this long after the last one at most, though no segment is full.
const IDLE: Duration = Duration::from_secs(1);
/// The same under a load that fills no segment for so long. A plain log's syncs would commit the
/// journal all the time, and with it what writeback changes by itself.
const LAG_MAX: Duration = Duration::from_secs(1);
/// Interval at which a file that could not be synced is written again, if no process asks for it.
const REPAIR_EVERY: Duration = Duration::from_secs(1);
/// Wait for the lock of a file that is to be written again.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Files that are synced at a time.
const AT_A_TIME: usize = 16;
/// Segments of the pool that are left to other lanes while this one takes more.
const LEFT_TO_OTHERS: u64 = 4;
/// Interval at which writes that no process syncs are committed, to a pool on a disk: so a file is
/// hardly newer than the last record of it, and a recovery knows who changed it (`replay`).
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// Interval of looks for work that no member announces.
const LOOK: Duration = Duration::from_millis(100);

/// Keeps a segment ready for the members, until the run ends. A thread of its own: a sync may take
/// as long as many segments to be filled.
pub(super) fn prepare(shared: &SupervisorState, run: &RunState) {
    let mut committed = MonotonicTime::now();
    let commit_every = failpoint::limit("commit-every", COMMIT_EVERY);
    while !run.ended.load(Acquire) {
        run.lag(shared.started.elapsed());
        if committed.elapsed() >= commit_every {
            // If it cannot be, the next sync finds that out.
            let _ = run.lane.commit();
            if run.has_lost_pool() || run.is_damaged() {
                // If it fails, so does every sync, and each tries again.
                let _ = run.settle(shared);
            }
            committed = MonotonicTime::now();
        }
        let seen = run.lane.turned();
        if run.lane.prepare() || !grow(shared, run) {
            run.lane.wait(seen, LOOK);
        }
    }
}

/// Takes one more segment of the pool, if the lane has no free one and enough is left to others.
fn grow(shared: &SupervisorState, run: &RunState) -> bool {
    let is_enough = |free: u64| free > LEFT_TO_OTHERS;
    run.lane.is_full() && shared.pool.segments_free().is_ok_and(is_enough) && run.lane.grow()
}

/// Works until the run ends and everything in the lane is drained, or cannot be.
pub(super) fn run(shared: &SupervisorState, run: &RunState) {
    let mut last_work = MonotonicTime::now();
    let mut last_drained = MonotonicTime::now();
    let mut last_tail = 0;
    let mut closed = IdleFilesystems::new();
    let mut was_degraded = false;
    loop {
        let seen = run.lane.turned();
        let is_sound = run.lane.is_sound();
        let is_degraded = run.lane.member().is_degraded();
        // What has too few copies is not to be anywhere else for longer than it takes.
        was_degraded = is_degraded && (was_degraded || is_sound && run.lane.seal().is_ok());
        if !is_sound && run.page.failing() {
            // No sync of any file succeeds until all do.
            if !run.repair_all(shared) {
                return;
            }
            continue;
        }
        if is_sound {
            closed.look(shared, run);
        }
        // What is complete in one that is not sound cannot be released.
        if let Some(last) = run.lane.complete().last().filter(|_| is_sound) {
            if forebay_pool::fault_enabled!("release-early") {
                run.lane.release(last.end);
            }
            let begun = MonotonicTime::now();
            forebay_pool::failpoint!("files:drain-sync");
            if !run.sync_below(shared, last.end) && !run.repair_all(shared) {
                return;
            }
            forebay_pool::failpoint!("files:drain-synced");
            if run.is_damaged() || !run.lane.is_sound() {
                // Which files have records in it was not to be read from the page.
                let _ = run.settle(shared);
                continue;
            }
            run.lane.release(last.end);
            run.notify();
            run.drains.add(begun.elapsed());
            last_work = MonotonicTime::now();
            last_drained = last_work;
            continue;
        }
        let usage = run.lane.usage();
        let is_empty = || matches!(run.lane.seal(), Ok(Some(end)) if usage.head >= end);
        // One that is not sound is drained no further: its files are synced when they are made
        // plain.
        if run.ending.load(Acquire) && (!run.lane.is_sound() || is_empty()) {
            return;
        }
        if usage.tail != last_tail {
            (last_tail, last_work) = (usage.tail, MonotonicTime::now());
            if last_drained.elapsed() >= LAG_MAX && run.lane.is_sound() {
                last_drained = last_work;
                let _ = run.lane.seal();
                continue;
            }
        } else if last_work.elapsed() >= IDLE && run.lane.is_sound() {
            last_work = MonotonicTime::now();
            rest(shared, run);
            continue;
        }
        run.lane.wait(seen, LOOK);
    }
}

/// After a while without work: ends the open segment, which is drained next; frees the numbers of
/// files that are closed, and gives segments back.
fn rest(shared: &SupervisorState, run: &RunState) {
    let _ = run.lane.seal();
    for (number, file) in run.places() {
        if file.stamp().state == FileState::Absorbed && file.gone() == NameLoss::Yes {
            let _ = run.release(shared, number);
        }
    }
    run.reclaim_some(shared);
    while run.lane.usage().segments > usize::from(shared.options.segments) && run.lane.shrink() {}
}

impl RunState {
    /// Wakes who waits for the drain.
    pub(super) fn notify(&self) {
        self.changed.ring();
    }

    /// Syncs every file that has records below `end` which are not on the disk. False if one of
    /// them cannot be synced.
    fn sync_below(&self, shared: &SupervisorState, end: Lsn) -> bool {
        let clean_from = self.drained.lock().clean_from.clone();
        let is_behind = |number: usize| {
            let file = &self.page.files[number];
            let clean_from = clean_from[number];
            clean_from < end
                && file.stamp().state != FileState::Free
                && file.named_in().is_some_and(|named| named >= clean_from)
        };
        self.sync_files(shared, is_behind).is_ok()
    }

    /// Syncs every file that is `wanted`, by its number.
    ///
    /// # Errors
    /// That of one that cannot be synced; the others are.
    pub(super) fn sync_files(
        &self,
        shared: &SupervisorState,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<(), Errno> {
        self.while_syncing(|| self.sync_each(shared, wanted))
    }

    fn sync_each(
        &self,
        shared: &SupervisorState,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<(), Errno> {
        // What has no name any more by now: a directory is synced after all of these lost theirs.
        let numbers = self.numbers().filter(|number| wanted(*number));
        let files: Vec<(usize, Arc<AbsorbedFile>)> = numbers
            .filter_map(|number| Some((number, self.known(number)?)))
            .collect();
        let directories = LostNameSyncs::default();
        let synced = Mutex::new(Vec::new());
        let failed = Mutex::new(Ok(()));
        each_at_a_time(&files, |(number, known)| {
            let open = self.lane.member().segment().ok();
            // Released, it has no name and no descriptor, so its content is needed by no process.
            let target = known.unlinked_from.as_ref().or(known.file.as_ref());
            let done = target.map_or(Ok(()), |target| {
                self.sync_one(shared, *number, known, target, &directories)
            });
            match done {
                Ok(()) => synced
                    .lock()
                    .push((*number, target.cloned(), known.clone(), open)),
                Err(e) => *failed.lock() = Err(self.failed(*number, known, errno_of(&e))),
            }
            self.page.end_sync(*number);
        });
        let mut all = failed.into_inner();
        let mut sound: BTreeMap<u64, Result<(), Errno>> = BTreeMap::new();
        for (number, target, known, open) in synced.into_inner() {
            if let Some(target) = &target {
                self.look_at_blocks(number, target);
            }
            let confirmed = target.map_or(Ok(()), |target| {
                *sound
                    .entry(known.stat.st_dev)
                    .or_insert_with(|| sys::confirm_sync_of(&*target, known.directory.as_deref()))
            });
            match (confirmed, open) {
                (Ok(()), Some(open)) => self.drained.lock().clean_from[number] = open,
                // The lane has ended: nothing of it is released any more.
                (Ok(()), None) => {}
                (Err(errno), _) => all = Err(self.failed(number, &known, errno)),
            }
        }
        all
    }

    /// A block that is shared with a copy since (a reflink) gets another place when it is written
    /// next: that is no writing in place any more.
    fn look_at_blocks(&self, number: usize, target: &File) {
        let in_place_below = &self.page.files[number].order.in_place_below;
        let below = in_place_below.load(Relaxed);
        if below > 0 && !extents::is_all_written(target.as_fd(), below) {
            in_place_below.store(0, Relaxed);
        }
    }

    /// Says that a file could not be synced, with what error.
    fn failed(&self, number: usize, known: &AbsorbedFile, errno: Errno) -> Errno {
        // First of all, and where it outlives us: the kernel may tell no other process of this
        // error.
        if self.mark(LabelMark::Failed).is_err()
            && let Some(file) = &known.file
        {
            // If that is not taken either, there is nothing left to say it by.
            let _ = void_marks::mark_failed(file.as_fd(), self.lane.owner());
        }
        self.fail(number, errno);
        let what_now = match self.page.files[number].stamp().state {
            FileState::Strayed => {
                "Something else has changed it meanwhile, so its records in the pool are not written over that: they stay there for forebay recover, and its syncs fail. Stop the program, and look into the file and the disk"
            }
            _ => {
                "Nothing is lost: its records stay in the pool and are written again; until then its syncs fail"
            }
        };
        let cause = format!("{} cannot be synced: {errno}", known.path.display());
        sys::complain_repeated(&cause, &format!("{cause}. {what_now}"));
        errno
    }

    fn sync_one(
        &self,
        shared: &SupervisorState,
        number: usize,
        known: &AbsorbedFile,
        target: &Arc<File>,
        directories: &LostNameSyncs,
    ) -> std::io::Result<()> {
        let real = || {
            let started = MonotonicTime::now();
            let done = shared.sync(target, true, || match known.unlinked_from {
                Some(_) => target.sync_all(),
                None => {
                    snapshot::keep(&known.path, target.as_fd());
                    sync_data(target)
                }
            });
            self.syncs.fetch_add(1, Relaxed);
            let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.sync_ns.fetch_add(took, Relaxed);
            done
        };
        self.page.begin_sync(number);
        let directory = known.unlinked_from.as_ref().and_then(|dir| key_of(dir));
        match directory {
            Some(directory) => directories.sync(directory, real),
            None => real(),
        }
    }

    /// Waits until every file that could not be synced is sound again, and tries now and then.
    /// False if the run ended before.
    fn repair_all(&self, shared: &SupervisorState) -> bool {
        self.notify();
        while self.page.failing() {
            let rung = self.changed.rung();
            let ended = self.ending.load(Acquire);
            for number in self.numbers() {
                if self.page.files[number].error().is_some() {
                    let _ = self.repair(shared, number);
                }
            }
            if !self.page.failing() {
                break;
            }
            if ended {
                return false;
            }
            self.changed.wait(rung, REPAIR_EVERY);
        }
        true
    }

    /// Writes the lane's records of a file that could not be synced again, and syncs it: a failed
    /// sync may have left pages clean that never reached the disk.
    ///
    /// # Errors
    /// Of opening it for writing, of writing, of the sync: it still cannot be synced.
    pub(super) fn repair(&self, shared: &SupervisorState, number: usize) -> Result<(), Errno> {
        let _one = self.repairing.lock();
        let file = &self.page.files[number];
        let Some(failed) = file.error() else {
            // Another thread did it.
            return Ok(());
        };
        if !file.lock.take_for(SUPERVISOR, LOCK_WAIT) {
            return Err(failed);
        }
        let open = self.known(number).and_then(|known| known.file.clone());
        let done = match (open, file.stamp().state) {
            // The kernel may have what is newer, and a sync of that may be one of nothing. A replay
            // is to see that it was changed.
            (Some(open), FileState::Strayed) => {
                let _ = sys::set_changed_now(open.as_fd());
                Err(failed)
            }
            (Some(open), _) => self.write_again(shared, number, &open),
            // No process can miss it.
            (None, _) => Ok(()),
        };
        if done.is_ok() {
            self.repaired(number);
            if !self.page.failing() {
                // What stays marked is looked at more closely by a recovery.
                let _ = self.mark(LabelMark::None);
            }
            self.changed.ring();
        }
        file.lock.free();
        done
    }

    fn write_again(
        &self,
        shared: &SupervisorState,
        number: usize,
        open: &Arc<File>,
    ) -> Result<(), Errno> {
        let kept = KeptRecords::of(number, |each| self.lane.records(each));
        let parts = kept.parts(&self.page.files[number]);
        let to = match parts.is_empty() {
            true => open.try_clone().map_err(|e| errno_of(&e))?,
            false => identity::reopen(open.as_fd(), OFlags::WRONLY)?,
        };
        let before = rustix::fs::fstat(open)?;
        rewrite::write(&to, &parts)?;
        self.keep_time(shared, number, &to, sys::modified(&before));
        let synced = shared.sync(&to, true, || sync_data(&to));
        synced.map_err(|e| errno_of(&e))?;
        rewrite::check(&to, &parts)?;
        sys::confirm_sync(&to)
    }

    /// A file that was written again has the time that it had: if the sync fails, a recovery is not
    /// to take this for another process's change. Not where a process outside may have written to
    /// it meanwhile.
    fn keep_time(&self, shared: &SupervisorState, number: usize, to: &File, modified: u64) {
        if shared.watch.outside() != OutsideWatch::Waits {
            return;
        }
        // One that belongs to another user has the time at which it was.
        let _ = sys::set_modified(to.as_fd(), modified);
        // It waited long enough, and may have written before that.
        if self.page.files[number].stamp().state == FileState::Strayed {
            let _ = sys::set_changed_now(to.as_fd());
        }
    }
}

/// The directories of files that lost their names: of many in one directory it is synced once.
#[derive(Default)]
struct LostNameSyncs(Mutex<BTreeMap<FileKey, Arc<SyncOnce>>>);

/// The result of a sync that is done once: an error's number, since many files have it.
type SyncOnce = OnceLock<Result<(), i32>>;

impl LostNameSyncs {
    /// The result of the directory's sync, which is `real` the first time. A second one would
    /// succeed, whatever the disk has.
    fn sync(
        &self,
        directory: FileKey,
        real: impl FnOnce() -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let once = Arc::clone(self.0.lock().entry(directory).or_default());
        once.get_or_init(|| real().map_err(|e| errno_of(&e).raw_os_error()))
            .map_err(std::io::Error::from_raw_os_error)
    }
}

/// Does `work` to each, several at a time: so the syncs of many files share the disk's flushes and
/// the journal's commits.
pub(super) fn each_at_a_time<T: Sync>(each: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let some = || {
        while let Some(one) = each.get(next.fetch_add(1, Relaxed)) {
            work(one);
        }
    };
    thread::scope(|scope| {
        for _ in 1..each.len().min(AT_A_TIME) {
            let helper = thread::Builder::new().name("sync".into());
            if helper.spawn_scoped(scope, some).is_err() {
                break;
            }
        }
        some();
    });
}

fn sync_data(file: &File) -> std::io::Result<()> {
    sys::sync_fault().map_or_else(|| file.sync_data(), |errno| Err(errno.into()))
}

#[cfg(test)]
mod tests;
