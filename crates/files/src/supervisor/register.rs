//! The registration of a file that is about to be absorbed. docs/files-membership.md, "Absorbing a
//! file".

use super::{
    SupervisorState,
    candidate::{Candidate, Refusal},
    foreign_writers::{UNCOUNTED, outlast},
    other_pools,
    other_runs::{self, OtherRunAnswer},
    run::{AbsorbedFile, RunState},
    watch::WatchedFile,
};
use crate::{
    identity, order,
    shared::{FileState, NameLoss, Stamp},
    sys,
    wire::SupervisorAnswer,
};
use forebay_pool::{MonotonicTime, extents};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

/// Free numbers below which those of closed files are freed.
const FREE_MIN: usize = 32;
/// Numbers beyond which those of closed files are freed before more are taken: each of them is
/// watched, and the watches are the user's, whose other programs have some.
const CLOSED_MAX: usize = 4096;
/// Wait for a file that is to be registered anew, or for a number.
const WAIT: Duration = Duration::from_secs(10);
/// Time between two looks at a file that another process has registered.
const AGAIN: Duration = Duration::from_millis(1);

/// Time that a run that has no number left is not asked for one again.
const FULL_FOR: Duration = Duration::from_secs(1);

const TOO_MANY: &str = "this run absorbs as many files as it can already (forebay's limit of open files: ulimit -Hn, LimitNOFILE=)";
const OPENED_MEANWHILE: &str = "a process that is not of this run opened it meanwhile";

/// The number and generation of a file that is to be registered.
enum FileNumber {
    /// It is absorbed.
    Already(usize, u32),
    /// It has got one.
    Now(usize, u32),
}

impl RunState {
    /// The number of a file, if it can be one.
    pub(super) fn number(&self, file: u32) -> Option<usize> {
        usize::try_from(file)
            .ok()
            .filter(|file| self.numbers().contains(file))
    }

    /// Looks whether a file can be absorbed, and says whether it is from now on. It is synced when
    /// it is changed first (`first_sync`).
    pub(super) fn register(
        &self,
        shared: &SupervisorState,
        pid: u32,
        path: Vec<u8>,
        fds: Vec<OwnedFd>,
    ) -> SupervisorAnswer {
        let path = PathBuf::from(OsString::from_vec(path));
        let done = <[OwnedFd; 1]>::try_from(fds)
            .map_err(|_| Refusal::Plain("no descriptor".to_owned()))
            .and_then(|[file]| self.absorb(shared, pid, &path, &file));
        match done {
            Ok((number, generation)) => SupervisorAnswer::Absorb {
                file: u32::try_from(number).unwrap_or(u32::MAX),
                generation,
            },
            Err(Refusal::Plain(reason)) => {
                let bytes = path.into_os_string().into_vec();
                shared.stays_plain(pid, bytes, reason.clone());
                SupervisorAnswer::Refused { reason }
            }
            Err(Refusal::Unheard(reason)) => {
                complain_again(&format!(
                    "{} cannot be opened for writing: {reason}",
                    path.display()
                ));
                SupervisorAnswer::Unheard { reason }
            }
        }
    }

    /// Number and generation of the file, which is absorbed when this returns.
    fn absorb(
        &self,
        shared: &SupervisorState,
        pid: u32,
        path: &Path,
        theirs: &OwnedFd,
    ) -> Result<(usize, u32), Refusal> {
        let mut stat = rustix::fs::fstat(theirs).map_err(|e| e.to_string())?;
        if sys::has_whole_seconds(&stat) && self.find((stat.st_dev, stat.st_ino)).is_none() {
            if sys::keeps_seconds(theirs.as_fd()) {
                return Err("its file system keeps times in seconds, so a recovery could not tell a change of another process from its own".into());
            }
            stat = rustix::fs::fstat(theirs).map_err(|e| e.to_string())?;
        }
        let candidate = Candidate {
            path,
            pattern: shared.pattern_of(path),
            pid,
            theirs,
            stat,
            born: sys::born(theirs.as_fd()),
            identity: identity::of(theirs.as_fd())
                .map_err(|e| format!("its file system does not identify it: {e}"))?,
            parent: (path.parent())
                .and_then(|parent| rustix::fs::stat(parent).ok())
                .map(|stat| (stat.st_dev, stat.st_ino)),
        };
        candidate.check_gains(shared)?;
        let (number, generation) = match self.number_of(shared, &candidate)? {
            FileNumber::Already(number, generation) => return Ok((number, generation)),
            FileNumber::Now(number, generation) => (number, generation),
        };
        let file = &self.page.files[number];
        shared.lay_guard(pid, self.lane.owner());
        let done = self
            .watch_and_follow(shared, (number, generation), &candidate)
            .and_then(|watched| {
                if file.change(generation, FileState::Registering, FileState::Absorbed) {
                    return Ok(());
                }
                shared.watch.remove(&watched, candidate.theirs.as_fd());
                Err(OPENED_MEANWHILE.into())
            });
        if done.is_err() {
            shared.table.withdraw(number, candidate.key());
            self.vacate(number, generation);
        }
        done.map(|()| (number, generation))
    }

    /// Gives the file a number, unless it has one: nothing here waits for a disk, nor for another
    /// file's registration.
    fn number_of(
        &self,
        shared: &SupervisorState,
        candidate: &Candidate<'_>,
    ) -> Result<FileNumber, Refusal> {
        let begun = MonotonicTime::now();
        loop {
            let mut next = self.registering.lock();
            let Some((number, stamp, _)) = self.find(candidate.key()) else {
                if self.retired.lock().contains(&candidate.identity) {
                    return Err("it was made plain in this run".into());
                }
                let Some(number) = self.free_number(shared, *next) else {
                    drop(next);
                    self.free_closed(shared)?;
                    continue;
                };
                *next = number + 1;
                let generation = self.reserve(shared, number, candidate)?;
                return Ok(FileNumber::Now(number, generation));
            };
            drop(next);
            match stamp.state {
                // Two processes opened it at a time.
                FileState::Absorbed => return Ok(FileNumber::Already(number, stamp.generation)),
                FileState::Registering if begun.elapsed() < WAIT => thread::sleep(AGAIN),
                FileState::Registering => {
                    return Err(Refusal::Unheard(
                        "another process has been having it registered for too long".to_owned(),
                    ));
                }
                _ => {
                    let retired = self.retire(shared, number, stamp.generation, WAIT);
                    retired
                        .map_err(|e| Refusal::Unheard(format!("it cannot be made plain: {e}")))?;
                }
            }
        }
    }

    /// A number that is no file's, from `next` on: they are given in turn. So a file that was let
    /// go of gets another one than it had, by which a recovery tells its records from released ones
    /// that come back.
    fn free_number(&self, shared: &SupervisorState, next: usize) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        let free = || {
            let files = self.files.lock();
            (files.next_free(next), files.free())
        };
        let (first, count) = free();
        if count >= FREE_MIN {
            return first;
        }
        // First what has neither a name nor a process, then more, and what is only closed last: it
        // may be opened again, and is not registered and synced anew then.
        let are_many = self.numbers().len() >= CLOSED_MAX;
        self.reclaim(shared, |known| are_many || known.file.is_none());
        let (first, count) = free();
        if count >= FREE_MIN {
            return first;
        }
        if !self.take_more_numbers(shared) {
            self.reclaim(shared, |_| true);
        }
        free().0
    }

    /// All numbers are files': waits until those of closed files can be freed, of which the lane
    /// has something.
    ///
    /// # Errors
    /// There is none that is closed, or what the lane has cannot be synced.
    fn free_closed(&self, shared: &SupervisorState) -> Result<(), Refusal> {
        if self.is_full() {
            return Err(TOO_MANY.into());
        }
        let is_closed = |known: &Arc<AbsorbedFile>| {
            known
                .file
                .as_ref()
                .is_none_or(|open| sys::alone(open.as_fd()) == Ok(true))
        };
        let files = self.files.lock();
        let known: Vec<Arc<AbsorbedFile>> = files.iter().map(|(_, known)| known.clone()).collect();
        drop(files);
        let flushed = match known.iter().any(is_closed) {
            true => self.flush(shared, MonotonicTime::now() + WAIT).is_ok(),
            false => false,
        };
        if flushed {
            self.reclaim(shared, |_| true);
        }
        match flushed && self.files.lock().free() > 0 {
            true => Ok(()),
            false => {
                *self.found_full.lock() = Some(MonotonicTime::now());
                Err(TOO_MANY.into())
            }
        }
    }

    /// True if all numbers are files', and all of these were open a moment ago: to ask that of each
    /// takes a while, and a program may go on opening others.
    fn is_full(&self) -> bool {
        let found = *self.found_full.lock();
        let is_recent = found.is_some_and(|found| found.elapsed() < FULL_FOR);
        is_recent && self.files.lock().free() == 0
    }

    /// Makes the number this file's, and the file the run's, for all to see: its generation. A
    /// process that finds the file in the table, or is seen by the watch, finds it here and has it
    /// leave ([`SupervisorState::let_go`]), which ends the registration: so first it is known here.
    fn reserve(
        &self,
        shared: &SupervisorState,
        number: usize,
        candidate: &Candidate<'_>,
    ) -> Result<u32, Refusal> {
        let file = &self.page.files[number];
        self.page.set_key(number, candidate.key());
        let mount = identity::mount(candidate.theirs.as_fd()).unwrap_or(0);
        file.mount.store(mount, Relaxed);
        file.set_named_in(None);
        file.set_had(None);
        file.set_known_end(Some(candidate.stat.st_size.unsigned_abs()));
        file.set_newer(0..0);
        file.set_gone(NameLoss::No);
        for count in [&file.end, &file.writes, &file.bytes, &file.syncs] {
            count.store(0, Relaxed);
        }
        file.first_sync.begin();
        file.begin_times(sys::modified(&candidate.stat));
        file.last_write.forget();
        let device = order::device_of(candidate.theirs.as_fd()).map_err(|e| e.to_string())?;
        let journal = shared.order.page.claim(device);
        let journal = journal.ok_or("this run absorbs files of too many file systems already")?;
        file.journal.store(journal as u32, Relaxed);
        let bytes = candidate.stat.st_size.unsigned_abs();
        let is_written = extents::is_all_written(candidate.theirs, bytes);
        let is_in_place = is_written && !order::journals_contents(device);
        file.order.begin(if is_in_place { bytes } else { 0 });
        file.names.clear_link();
        if !file.names.set_path(candidate.path.as_os_str().as_bytes())
            || !file.identity.set(&candidate.identity)
        {
            return Err("its path is too long".into());
        }
        let generation = self.generation(number).wrapping_add(1);
        let state = FileState::Registering;
        let mut files = self.files.lock();
        self.generations[number].store(generation, Relaxed);
        file.set(Stamp { generation, state });
        files.set(number, candidate.known(None, WatchedFile::Not));
        drop(files);
        if !shared
            .table
            .publish(number, candidate.pid, candidate.key(), candidate.born)
        {
            self.vacate(number, generation);
            return Err(TOO_MANY.into());
        }
        Ok(generation)
    }

    /// 1. Watch it: who opens it from now on finds it in the table, or is seen by the watch.
    /// 2. Who opened it before is seen now, by the kernel.
    /// 3. Ask other runs: of two that do so at once at least one sees the other.
    fn watch_and_follow(
        &self,
        shared: &SupervisorState,
        number: (usize, u32),
        candidate: &Candidate<'_>,
    ) -> Result<WatchedFile, Refusal> {
        // Before it is watched, or the supervisor would be seen itself.
        let own = self.with_reclaimed(shared, || open_own(candidate.theirs, UNCOUNTED));
        let own = own.ok();
        let watched = self
            .with_reclaimed(shared, || {
                (shared.watch).add(candidate.theirs.as_fd(), candidate.key())
            })
            .map_err(|errno| {
                let remedy = match errno {
                    Errno::NOSPC => ". Raise fs.inotify.max_user_watches (sysctl)",
                    _ => "",
                };
                format!(
                    "other openers of it cannot be watched (fanotify or inotify: {errno}){remedy}"
                )
            })?;
        let done = self.follow(shared, number, candidate, own, watched);
        if done.is_err() {
            shared.watch.remove(&watched, candidate.theirs.as_fd());
        }
        done.map(|()| watched)
    }

    /// Does `work`; once more where the kernel had no descriptor or watch left for it, after those
    /// of closed files are freed.
    pub(super) fn with_reclaimed<T>(
        &self,
        shared: &SupervisorState,
        work: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let done = work();
        match done {
            Err(Errno::MFILE | Errno::NFILE | Errno::NOSPC | Errno::NOMEM) => {
                self.reclaim_some(shared);
                work()
            }
            _ => done,
        }
    }

    /// Looks who else has it open, and opens it for the supervisor.
    fn follow(
        &self,
        shared: &SupervisorState,
        (number, generation): (usize, u32),
        candidate: &Candidate<'_>,
        uncounted: Option<File>,
        watched: WatchedFile,
    ) -> Result<(), Refusal> {
        let alone = sys::alone(candidate.theirs.as_fd());
        let wanted = candidate.wanted();
        let directory = candidate.path.parent().unwrap_or(Path::new("/"));
        let file = (candidate.key(), candidate.born);
        match other_runs::let_go(shared, file, wanted, (directory, alone)) {
            OtherRunAnswer::None => {}
            OtherRunAnswer::LetGo(why) => {
                outlast(candidate.theirs.as_fd());
                return Err(why.into());
            }
            OtherRunAnswer::Unheard(why) => return Err(Refusal::Unheard(why)),
        }
        other_pools::check_marked(shared, directory, wanted).inspect_err(|why| {
            complain_again(&format!("{}: {why}", candidate.path.display()));
            outlast(candidate.theirs.as_fd());
        })?;
        match alone {
            Ok(true) => {}
            Ok(false) => return Err("it is open elsewhere, perhaps to be written to".into()),
            Err(errno) => {
                return Err(format!(
                    "it may be open elsewhere (a lease: {errno}; the file must belong to forebay's user)"
                )
                .into());
            }
        }
        let own = match uncounted {
            Some(own) => own,
            None => self
                .with_reclaimed(shared, || open_own(candidate.theirs, OFlags::RDONLY))
                .map_err(|errno| format!("it cannot be opened for reading: {errno}"))?,
        };
        let known = candidate.known(Some(Arc::new(own)), watched);
        let mut files = self.files.lock();
        if !self.is_known_as(&files, number, generation) {
            // It is plain, and its number free, or another file's.
            return Err(OPENED_MEANWHILE.into());
        }
        files.set(number, known);
        Ok(())
    }
}

/// A program may try it again and again.
fn complain_again(what: &str) {
    sys::complain_repeated(what, what);
}

/// Opens what is open as `theirs` anew, for the supervisor.
fn open_own(theirs: &OwnedFd, access: OFlags) -> Result<File, Errno> {
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(sys::link_of(theirs.as_fd()), flags, Mode::empty())?.into())
}
