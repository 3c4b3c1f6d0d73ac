//! Without a supervisor: every sync is a real one from now on. docs/files-membership.md, "When a
//! process dies".
//!
//! 1. Who is in the middle of a change logs it. Then the lane is closed: no member appends any
//!    more, and what an earlier append waits for does not come.
//! 2. One member syncs every file that the lane may hold something of. Then the lane is marked
//!    drained, so that no replay writes older records over what is written plainly from now on.
//! 3. Every member finds its files plain at its next call.
//!
//! A file that could not be synced, or that the supervisor was syncing when it died (it may have
//! got the error instead of us), is written again from the lane first. One that still cannot be
//! synced leaves the lane as it is, marked, for a recovery; the next call of each process on that
//! file says so.

mod sync;

use super::{
    bypass, fd_table,
    lookup::{FileKey, key},
    private_fds, process,
    session::MemberSession,
};
use crate::{
    identity,
    lane_label::{self, LabelMark},
    log::{KeptRecords, paths},
    record::slack,
    shared::{FileState, LOOK, NameLoss, SettlingTurn, SharedFile, SyncFailure},
    sys, void_marks,
};
use forebay_pool::{MonotonicTime, PoolError, failpoint, rewrite, with_room};
use rustix::{fs::OFlags, io::Errno};
use std::{
    ffi::c_int,
    mem::ManuallyDrop,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::Path,
    process::id,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

/// Wait for the lock of a file that is to be written again.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Wait for changes that are under way. A process may have died in one, and then its file's lock
/// stays taken.
const CHANGE_WAIT: Duration = Duration::from_millis(200);
/// Wait for the member that does it.
const SETTLE_WAIT: Duration = Duration::from_secs(30);

impl MemberSession {
    /// Returns when everything that was logged is on the disk, or is left to a recovery.
    ///
    /// # Errors
    /// That of the file with this number.
    #[cold]
    pub(super) fn settle(&self, number: usize) -> Result<(), Errno> {
        say();
        let begun = MonotonicTime::now();
        loop {
            match self.page.turn_to_settle(id()) {
                SettlingTurn::Done => break,
                SettlingTurn::Ours => with_room(|| {
                    self.wait_for_changes();
                    self.lane.abandon();
                    failpoint!("orphan:closed");
                    if !forebay_pool::fault_enabled!("orphan-no-settle") {
                        self.sync_all();
                    }
                    self.page.set_settled();
                }),
                // It is this process's other thread, or another process, which may die of it.
                SettlingTurn::Others(other)
                    if crate::processes::is_process(other) && begun.elapsed() < SETTLE_WAIT =>
                {
                    std::thread::sleep(LOOK);
                }
                SettlingTurn::Others(other) => self.page.give_turn_up(other),
            }
        }
        if !self.page.failing() {
            bypass::note_settled();
        }
        match self.page.files[number].error() {
            // It is said once in each process: the file is plain here then.
            Some(errno) if process::generation(number) != 0 => Err(errno),
            _ => Ok(()),
        }
    }

    /// Returns when no change of a file is under way: none begins without a supervisor, and as long
    /// as the lane is open, one that the kernel has is logged. A sync would make it durable while
    /// the lane is needed, and a recovery would not know whose it is.
    fn wait_for_changes(&self) {
        let begun = MonotonicTime::now();
        let limit = failpoint::limit("change", CHANGE_WAIT);
        let is_changing = || {
            self.page
                .used_files()
                .iter()
                .any(|file| file.lock.is_held())
        };
        while is_changing() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Files, by number, that the lane may have something of.
    fn in_lane(&self) -> impl Iterator<Item = (usize, &SharedFile)> {
        let files = self.page.used_files().iter().enumerate();
        files.filter(|(_, file)| file.stamp().state.is_in_lane())
    }

    /// Those of them that are in a directory still.
    fn named_in_lane(&self) -> impl Iterator<Item = (usize, &SharedFile)> {
        self.in_lane()
            .filter(|(_, file)| file.gone() != NameLoss::Yes)
    }

    fn sync_all(&self) {
        if self.page.is_damaged() {
            // It does not say which files there are.
            rustix::fs::sync();
        }
        let all = self.sync_each();
        let mark = match all {
            true => LabelMark::None,
            false => LabelMark::Failed,
        };
        let (settled, said) = {
            // No handler may jump away from here, nor wait above it.
            let _masked = sys::mask();
            // The pool's descriptor may have another number than the last time, and another file
            // its number.
            let stays = private_fds::connection();
            self.lane.moved(stays.pool());
            failpoint!("orphan:synced");
            let settled = match all {
                true => self.lane.settle(),
                false => Ok(()),
            };
            (settled, self.lane.relabel(&label(mark)))
        };
        if let Err(e) = &said {
            sys::complain(&format!("the lane in the pool: {e}"));
        }
        if said.is_err() && !all {
            self.mark_failed();
        }
        let told = match settled {
            Ok(()) => all,
            Err(unwritten) => self.mark_void(&unwritten),
        };
        failpoint!("orphan:settled");
        if !told {
            self.outlast_the_lane();
        }
    }

    /// A file is about to be written again, and may hold less than it did until then: should all
    /// die meanwhile, that is not to be taken for newer than the lane.
    fn mark_repairing(&self, fd: BorrowedFd<'_>) {
        let _masked = sys::mask();
        let stays = private_fds::connection();
        self.lane.moved(stays.pool());
        if self.lane.relabel(&label(LabelMark::Failed)).is_err() {
            // If that is not taken either, there is nothing left to say it by.
            let _ = void_marks::mark_failed(fd, self.lane.owner());
        }
    }

    /// Later writes are plain, and a recovery finds the lane. It is to see that the files which
    /// need nothing of it were changed later, whatever is written to them, and whether that moves
    /// their times on the disk or not.
    fn outlast_the_lane(&self) {
        std::thread::sleep(self.silence());
        for (number, file) in self.named_in_lane() {
            if file.error().is_none() {
                let _ = self.with_descriptor(number, DescriptorUse::Sync, |fd| {
                    sys::set_changed_now(fd)?;
                    rustix::fs::fsync(fd)
                });
            }
        }
    }

    /// A sync failed, and the pool cannot be told: says it in the files.
    fn mark_failed(&self) {
        let owner = self.lane.owner();
        for (number, file) in self.named_in_lane() {
            if file.error().is_some() {
                // If that is not taken either, there is nothing left to say it by.
                let mark = |fd: BorrowedFd<'_>| void_marks::mark_failed(fd, owner);
                let _ = self.with_descriptor(number, DescriptorUse::Sync, mark);
            }
        }
    }

    /// Everything is synced, and the pool cannot be told: says in every file that what the lane has
    /// of it is void. A file of which that cannot be said fails, since a recovery could write older
    /// bytes over what is newer. True if it was said of all.
    fn mark_void(&self, unwritten: &PoolError) -> bool {
        let owner = self.lane.owner();
        let mut all = true;
        for (number, file) in self.named_in_lane() {
            let marked = self.with_descriptor(number, DescriptorUse::Sync, |fd| {
                void_marks::mark(fd, owner)
            });
            if let Err(errno) = marked {
                all = false;
                self.page.fail(number, Errno::IO);
                let path = file.names.path();
                sys::complain(&format!(
                    "{unwritten}; and {} cannot be marked as newer than the pool (an extended attribute: {errno}): its sync fails, since a \
                     recovery could write older bytes over newer ones. Stop the program, and see to the pool's disk",
                    String::from_utf8_lossy(&path)
                ));
            }
        }
        if all {
            self.mark_pool();
        }
        all
    }

    /// Says the same in the file of a pool on legs: a recovery would ask for files that are removed
    /// from now on.
    fn mark_pool(&self) {
        let _masked = sys::mask();
        let stays = private_fds::connection();
        self.lane.moved(stays.pool());
        let marked = |file| void_marks::mark(file, self.lane.owner());
        let _ = self.lane.file_elsewhere().map(marked);
    }

    /// Before the process ends.
    pub(super) fn end(&self) {
        if self.is_orphan() {
            // If it fails, the records stay in the pool for `forebay recover`.
            let _ = self.settle(0);
        }
    }
}

/// The lane's label, by a member without a supervisor.
fn label(mark: LabelMark) -> String {
    let whose = format!("process {} (its forebay run is gone)", id());
    lane_label::label(mark, &whose)
}

/// The use of a file's descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DescriptorUse {
    Sync,
    Write,
}

impl MemberSession {
    /// Writes again what the lane has of a file whose sync failed, or may have, of which so much
    /// was `known`, and syncs it.
    ///
    /// A process that was only slow may be at it when another has taken its turn. Under the file's
    /// lock the one writes, and the other says that the file is sound, from when on it is written
    /// to plainly. In the sync the lock is free: a process that dies there would keep it, and the
    /// next one is to do all this again.
    fn write_again(&self, number: usize, known: SyncFailure) -> Result<(), Errno> {
        let file = &self.page.files[number];
        if !matches!(file.stamp().state, FileState::Absorbed | FileState::Leaving) {
            // The kernel may have what is newer. A replay is to see that it was changed.
            let _ = self.with_descriptor(number, DescriptorUse::Sync, sys::set_changed_now);
            return Err(file.error().unwrap_or(Errno::IO));
        }
        let written = self.with_descriptor(number, DescriptorUse::Write, |fd| {
            let written = self.locked(number, || self.write_kept(number, fd))?;
            sync::data(fd)?;
            rewrite::check_ranges(fd, written)
        });
        match written {
            Err(Errno::NOENT) => Err(Errno::IO),
            Err(errno) => Err(errno),
            Ok(()) => self.locked(number, || {
                self.page.repaired_since(number, known);
                Ok(())
            }),
        }
    }

    /// Does `work` under the lock of a file.
    fn locked<T>(
        &self,
        number: usize,
        work: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let lock = &self.page.files[number].lock;
        if !lock.take_for(self.number, LOCK_WAIT) {
            return Err(Errno::IO);
        }
        let done = work();
        lock.free();
        done
    }

    /// Writes to a file what the lane has of it, if no other process has written to it since:
    /// where.
    fn write_kept(&self, number: usize, fd: BorrowedFd<'_>) -> Result<Vec<Range<u64>>, Errno> {
        let file = &self.page.files[number];
        if file.error().is_none() {
            // Another did it, which waited long enough for us: it is plain by now, and newer.
            return Ok(Vec::new());
        }
        let kept = KeptRecords::of(number, |each| self.lane.records(each));
        let slack = slack(self.lane.needs_commit()).as_nanos() as u64;
        // What was written and not logged has moved the file's time, too.
        let is_all_logged = file.newer().is_none();
        let until = kept.last().filter(|_| is_all_logged);
        let until = until.map(|last| last.saturating_add(slack));
        let modified = || Ok(sys::modified(&sys::stat_of(fd)?));
        let found = modified()?;
        // So one left it that wrote it again, and died.
        let is_as_left = found == file.touched.load(Relaxed);
        if !is_as_left && until.is_some_and(|until| found > until) {
            // Another process has: what it wrote is newer.
            sync::data(fd)?;
            return Err(Errno::IO);
        }
        let parts = kept.parts(file);
        self.mark_repairing(fd);
        rewrite::write(fd, &parts)?;
        if until.is_some() {
            // A recovery is not to take this for another process's change. If it is another user's
            // file, it has the time at which it was.
            let _ = sys::set_modified(fd, found);
        }
        file.touched.store(modified()?, Relaxed);
        Ok(rewrite::ranges_of(&parts).collect())
    }

    /// Calls `work` with a descriptor of the file that does not append when it is to be written by.
    /// One that the program has stays as it was, all the time. Whether it appends is a matter of
    /// the open file, which other processes may have too, and this one may be killed in `work`.
    ///
    /// None is closed by this that the program can notice: closing one drops the program's POSIX
    /// locks on the file.
    fn with_descriptor(
        &self,
        number: usize,
        use_for: DescriptorUse,
        work: impl Fn(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let file = &self.page.files[number];
        if process::generation(number) == file.stamp().generation {
            for (fd, entry) in fd_table::descriptors_of(number) {
                let Some(raw) = sys::borrow(fd) else { continue };
                let flags = rustix::fs::fcntl_getfl(raw)?;
                let done = match use_for == DescriptorUse::Write && flags.contains(OFlags::APPEND) {
                    true => identity::reopen(raw, OFlags::WRONLY).and_then(|again| {
                        // It stays open, as below.
                        let again = ManuallyDrop::new(again);
                        work(again.as_fd())
                    }),
                    false => work(raw),
                };
                // Closed meanwhile, it may have been another file. The entry goes first.
                if fd_table::entry(fd) == Some(entry) {
                    return done;
                }
            }
        }
        let known = file.identity.get();
        if use_for == DescriptorUse::Sync {
            // One that the client does not follow: of a reader.
            let is_it = |fd: BorrowedFd<'_>| identity::of(fd).as_ref() == Ok(&known);
            if let Some(fd) = open_here(file.key(), |fd, _| is_it(fd)).flatten() {
                let done = work(fd);
                if is_it(fd) {
                    return done;
                }
            }
        }
        let paths = paths(file);
        let paths: Vec<&Path> = paths.iter().map(|path| path.as_path()).collect();
        let Some(again) = identity::open(&known, &paths, file.key().0)? else {
            // It was unlinked and is closed: no process can miss it, once that is durable.
            return sync::file_system_of(file);
        };
        let done = work(again.as_fd());
        let other = |fd: BorrowedFd<'_>, _: OFlags| fd.as_raw_fd() != again.as_raw_fd();
        if open_here(file.key(), other).is_none_or(|found| found.is_some()) {
            // It stays open: the program may have a lock on the file.
            std::mem::forget(again);
        }
        done
    }
}

/// A descriptor that this process has of the file, known to the client or not, and for which
/// `is_it` says yes of its flags. None if that cannot be told.
fn open_here(
    file: FileKey,
    is_it: impl Fn(BorrowedFd<'_>, OFlags) -> bool,
) -> Option<Option<BorrowedFd<'static>>> {
    let entries = std::fs::read_dir(sys::LINKS).ok()?;
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<c_int>().ok());
    let mut descriptors = numbers.filter_map(sys::borrow);
    Some(descriptors.find(|fd| {
        sys::stat_of(fd).is_ok_and(|stat| key(&stat) == file)
            && rustix::fs::fcntl_getfl(fd)
                .is_ok_and(|flags| !flags.contains(OFlags::PATH) && is_it(*fd, flags))
    }))
}

/// Says that the supervisor is gone, the first time.
fn say() {
    static SAID: AtomicBool = AtomicBool::new(false);
    sys::complain_once(
        &SAID,
        "the supervisor (forebay run) is gone: nothing is absorbed any more, and every sync is a real one. Restart the program under \
         forebay run when convenient",
    );
}
