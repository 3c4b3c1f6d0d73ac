//! Without a supervisor: every sync is a real one from now on. docs/files-protocol.md, "When somebody is gone".
//!
//! 1. The lane is closed: no member appends any more, and what an earlier append waits for does not come.
//! 2. One member syncs every file that the lane may hold something of. Then the lane is marked drained, so that no replay writes older
//!    records over what is written plainly from now on.
//! 3. Every member finds its files plain at its next call.
//!
//! A file that could not be synced, or that the supervisor was syncing when it died (it may have got the error instead of us), is written again from
//! the lane first. One that still cannot be synced leaves the lane as it is, marked, for a recovery; the next call of each process on that file
//! says so.

use super::{
    lookup::{Key, key},
    process,
    session::Session,
    table,
};
use crate::{
    identity,
    log::{Kept, LOOK, paths},
    replay::{self, Mark, write_at},
    shared::{Gone, State},
    sys,
};
use rustix::{fs::OFlags, io::Errno};
use std::{
    ffi::c_int,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    path::Path,
    process::id,
    sync::atomic::{
        AtomicBool,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
    time::{Duration, Instant},
};

/// How long the lock of a file is waited for that is to be written again.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How long the member that does it is waited for.
const SETTLE_WAIT: Duration = Duration::from_secs(30);

impl Session {
    /// Returns when everything that was logged is on the disk, or is left to a recovery.
    ///
    /// # Errors
    /// That of the file with this number.
    #[cold]
    pub(super) fn settle(&self, number: usize) -> Result<(), Errno> {
        say();
        self.lane.abandon();
        let begun = Instant::now();
        while !self.page.is_settled() {
            let other = self
                .page
                .settling
                .compare_exchange(0, id(), AcqRel, Acquire);
            match other {
                Ok(_) => {
                    self.sync_all();
                    self.page.set_settled();
                }
                // It is this process's other thread, or another process, which may die of it.
                Err(other)
                    if crate::processes::is_process(other) && begun.elapsed() < SETTLE_WAIT =>
                {
                    std::thread::sleep(LOOK);
                }
                Err(other) => {
                    let _ = self
                        .page
                        .settling
                        .compare_exchange(other, 0, AcqRel, Relaxed);
                }
            }
        }
        match self.page.files[number].error() {
            // It is said once in each process: the file is plain here then.
            Some(errno) if process::generation(number) != 0 => Err(errno),
            _ => Ok(()),
        }
    }

    fn sync_all(&self) {
        let interrupted = self.page.was_syncing();
        let mut all = true;
        for (number, file) in self.page.files.iter().enumerate() {
            let is_in_lane = file.stamp().state.is_in_lane()
                && file.named_in().is_some()
                && file.gone() != Gone::Yes;
            if !is_in_lane {
                continue;
            }
            let synced = match interrupted == Some(number) || file.error().is_some() {
                true => self.write_again(number),
                false => self.with_descriptor(number, Use::Sync, sync),
            };
            if synced.is_ok() {
                self.page.repaired(number);
            }
            if let Err(errno) = synced {
                all = false;
                self.page.fail(number, errno);
            }
        }
        let whose = format!("process {} (its forebay run is gone)", id());
        let mark = match all {
            true => Mark::None,
            false => Mark::Failed,
        };
        let settled = match all {
            true => self.lane.settle(),
            false => Ok(()),
        };
        let said = self.lane.relabel(&replay::label(mark, &whose));
        if let Err(e) = settled.and(said) {
            sys::complain(&format!("the lane in the pool: {e}"));
        }
    }

    /// Before the process ends.
    pub(super) fn end(&self) {
        if self.is_orphan() {
            // If it fails, the records stay in the pool for `forebay recover`.
            let _ = self.settle(0);
        }
    }
}

fn sync(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::fdatasync(fd)?;
    sys::confirm_sync(fd)
}

/// What is done with a descriptor of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Sync,
    Write,
}

impl Session {
    /// Writes again what the lane has of a file whose sync failed, or may have, and syncs it.
    fn write_again(&self, number: usize) -> Result<(), Errno> {
        let file = &self.page.files[number];
        if !file.lock.take_for(self.number, LOCK_WAIT) {
            return Err(Errno::IO);
        }
        let done = match file.stamp().state {
            State::Absorbed | State::Leaving => {
                let kept = Kept::of(number, |each| self.lane.records(each));
                let parts = kept.parts(file);
                self.with_descriptor(number, Use::Write, |fd| {
                    for (at, bytes) in &parts {
                        write_at(fd, bytes, *at)?;
                    }
                    sync(fd)
                })
            }
            // The kernel may have what is newer. A replay is to see that it was changed.
            _ => {
                let _ = self.with_descriptor(number, Use::Sync, sys::set_changed_now);
                Err(file.error().unwrap_or(Errno::IO))
            }
        };
        file.lock.free();
        done
    }

    /// Calls `work` with a descriptor of the file that does not append when it is to be written by.
    ///
    /// None is closed by this that the program can notice: closing one drops the program's POSIX locks on the file.
    fn with_descriptor(
        &self,
        number: usize,
        use_for: Use,
        work: impl Fn(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let file = &self.page.files[number];
        if process::generation(number) == file.stamp().generation {
            for (fd, entry) in table::descriptors_of(number) {
                let Some(raw) = sys::borrow(fd) else { continue };
                let flags = rustix::fs::fcntl_getfl(raw)?;
                let append = use_for == Use::Write && flags.contains(OFlags::APPEND);
                if append {
                    rustix::fs::fcntl_setfl(raw, flags - OFlags::APPEND)?;
                }
                let done = work(raw);
                if append {
                    rustix::fs::fcntl_setfl(raw, flags)?;
                }
                // Closed meanwhile, it may have been another file. The entry goes first.
                if table::entry(fd) == Some(entry) {
                    return done;
                }
            }
        }
        let known = file.identity.get();
        if use_for == Use::Sync {
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
        let Some(again) = identity::open(&known, &paths)? else {
            // It was unlinked and is closed: nobody can miss it.
            return Ok(());
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

/// A descriptor that this process has of the file, known to the client or not, and for which `is_it` says yes of its flags. None if that
/// cannot be told.
fn open_here(
    file: Key,
    is_it: impl Fn(BorrowedFd<'_>, OFlags) -> bool,
) -> Option<Option<BorrowedFd<'static>>> {
    let entries = std::fs::read_dir(sys::LINKS).ok()?;
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<c_int>().ok());
    let mut descriptors = numbers.filter_map(sys::borrow);
    Some(descriptors.find(|fd| {
        rustix::fs::fstat(fd).is_ok_and(|stat| key(&stat) == file)
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
