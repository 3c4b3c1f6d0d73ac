//! The first sync of a file that the run absorbs: the file and the directory that has its name,
//! before anything of it is logged. docs/files-membership.md, "The first sync".
//!
//! It is done when there is something to be found by that name after a power cut: at the program's
//! first sync, or about a second after the first write. A file that was only opened is none that a
//! power cut leaves, nor is one that is closed by then and was never synced: such a one is let go
//! of, and costs no sync.
//!
//! 1. Under the file's lock it begins: from now on no member changes the file.
//! 2. Its directory is marked with the pool.
//! 3. The file is synced, with all that the kernel has of it, and with every change of metadata
//!    before it: where the file system journals names, that is its own name, too, and the mark.
//! 4. Elsewhere the directory is synced: of all files that wait for that at a time, once.
//! 5. It is done: changes are logged. If any of this fails, the file is plain instead; the lane has
//!    nothing of it.
//!
//! Each that is under way has a thread of its own, so that of many files none waits for another
//! one's disk; of those that no process waits for, some at a time.

use super::{
    SupervisorState,
    drain::each_at_a_time,
    file_names::key_of,
    run::{AbsorbedFile, RunState, SUPERVISOR},
};
use crate::{
    FILES_MAX,
    absorbed::FileKey,
    directories::open_directory,
    order::{self, JournalOrder},
    shared::{DueSync, FileState},
    snapshot,
    sys::{self, errno_of},
};
use forebay_pool::{MonotonicTime, media};
use parking_lot::{Condvar, Mutex};
use rustix::{fs::AtFlags, io::Errno};
use std::{
    collections::HashMap,
    ffi::OsString,
    fs::File,
    os::{
        fd::AsFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::Ordering::{Acquire, Relaxed},
    },
    thread,
    time::Duration,
};

/// Interval at which those are done that no process waits for.
const SOON: Duration = Duration::from_secs(1);
/// While so many have a thread, none of these gets one.
const SOON_AT_A_TIME: usize = 32;
/// Interval at which all files are looked at: the due ones are named in memory that a process may
/// write over.
const LOOK_AT_ALL: Duration = Duration::from_secs(10);
/// Sleep before looking again.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two attempts to begin, while a member changes the file or its name.
const AGAIN: Duration = Duration::from_millis(1);
/// The longest time that a member may be in the middle of a change before others are served.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// The first syncs under way.
#[derive(Default)]
pub(super) struct FirstSyncs {
    /// Files, by number and generation, that have a thread.
    begun: Mutex<Vec<(usize, u32)>>,
    directories: Mutex<HashMap<FileKey, Arc<DirectorySyncs>>>,
    /// By device.
    journals: Mutex<HashMap<u64, KnownJournal>>,
}

/// The answer of [`order::journals_names`] for a device.
struct KnownJournal {
    has_names: bool,
    /// A file that was open there then. As long as it is, no other file system has that device.
    open: Weak<File>,
}

impl FirstSyncs {
    /// True if others that no process waits for had better come later.
    fn are_many(&self) -> bool {
        self.begun.lock().len() >= SOON_AT_A_TIME
    }

    /// True if the journal of the file system that `file` is open on has names, too.
    fn journals_names(&self, device: u64, file: &Arc<File>) -> bool {
        let mut known = self.journals.lock();
        known.retain(|_, journal| journal.open.strong_count() > 0);
        let journal = known.entry(device).or_insert_with(|| KnownJournal {
            has_names: order::journals_names(device),
            open: Arc::downgrade(file),
        });
        journal.has_names
    }
}

/// The directory that has a file's name, with the mark of the pool.
struct MarkedParent {
    name: OsString,
    directory: Arc<File>,
}

/// The syncs of a directory, one at a time: each is for all that came before it began.
#[derive(Default)]
struct DirectorySyncs {
    turn: Mutex<SyncTurn>,
    ended: Condvar,
}

#[derive(Default)]
struct SyncTurn {
    begun: u64,
    ended: u64,
    /// The last one that failed.
    failed: Option<(u64, Errno)>,
}

impl DirectorySyncs {
    /// Returns when a sync that began after this was called has ended.
    fn sync(&self, real: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let mut turn = self.turn.lock();
        let wanted = turn.begun + 1;
        while turn.ended < wanted && turn.begun != turn.ended {
            self.ended.wait(&mut turn);
        }
        if turn.ended >= wanted {
            let failed = turn.failed.filter(|(which, _)| *which >= wanted);
            return failed.map_or(Ok(()), |(_, errno)| Err(errno));
        }
        turn.begun += 1;
        drop(turn);
        let done = real();
        let mut turn = self.turn.lock();
        turn.ended += 1;
        if let Err(errno) = done {
            turn.failed = Some((turn.ended, errno));
        }
        self.ended.notify_all();
        done
    }
}

/// Does the members' requests, until the run ends.
pub(super) fn run(shared: &Arc<SupervisorState>, run: &Arc<RunState>) {
    let mut looked = MonotonicTime::now();
    let mut looked_at_all = looked;
    while !run.ended.load(Acquire) {
        let seen = run.page.asked.load(Acquire);
        for number in run.page.due_now.take(run.numbers().end, FILES_MAX) {
            run.begin_due(shared, number);
        }
        if looked.elapsed() >= SOON && run.begin_soon(shared) {
            looked = MonotonicTime::now();
        }
        if looked_at_all.elapsed() >= LOOK_AT_ALL {
            looked_at_all = MonotonicTime::now();
            for number in run.numbers() {
                run.page.note_due(number);
            }
        }
        media::wait(&run.page.asked, seen, LOOK);
    }
}

impl RunState {
    /// Begins those that no process waits for. False if there are more than can be begun now.
    fn begin_soon(self: &Arc<Self>, shared: &Arc<SupervisorState>) -> bool {
        let mut begun = 0;
        while !self.first_syncs.are_many() {
            let some = (self.page.due_soon).take(self.numbers().end, SOON_AT_A_TIME);
            for number in &some {
                self.begin_due(shared, *number);
            }
            begun += some.len();
            // What could not begin is due still.
            if some.len() < SOON_AT_A_TIME || begun >= self.numbers().end {
                return true;
            }
        }
        false
    }

    /// Begins the first sync of a file if it is due.
    fn begin_due(self: &Arc<Self>, shared: &Arc<SupervisorState>, number: usize) {
        let file = &self.page.files[number];
        if file.stamp().state != FileState::Absorbed || file.is_logged() {
            return;
        }
        let generation = self.generation(number);
        match file.first_sync.due() {
            DueSync::Now => self.begin_first_sync(shared, number, generation),
            // One that is closed meanwhile needs none.
            DueSync::Soon if !self.let_go_unsynced(shared, number) => {
                self.begin_first_sync(shared, number, generation);
            }
            DueSync::Soon | DueSync::Never => {}
        }
    }

    /// Does it in a thread of its own, unless it has one.
    fn begin_first_sync(
        self: &Arc<Self>,
        shared: &Arc<SupervisorState>,
        number: usize,
        generation: u32,
    ) {
        let mut begun = self.first_syncs.begun.lock();
        if begun.contains(&(number, generation)) {
            return;
        }
        begun.push((number, generation));
        drop(begun);
        let (its_shared, its_run) = (Arc::clone(shared), Arc::clone(self));
        let work = move || its_run.first_sync(&its_shared, number, generation);
        let thread = thread::Builder::new().name("first sync".into()).spawn(work);
        if thread.is_err() {
            self.first_sync(shared, number, generation);
        }
    }

    /// The first sync of a file, if it is still to come.
    pub(super) fn first_sync(&self, shared: &SupervisorState, number: usize, generation: u32) {
        if self.start_first_sync(number, generation) {
            let done = self.sync_named(shared, number, generation);
            self.end_first_sync(number, generation, done.is_ok());
            if let Err(why) = done {
                self.leave_unsynced(shared, number, generation, &why);
            }
        } else {
            // Perhaps not: a member has it.
            self.page.note_due(number);
        }
        let mut begun = self.first_syncs.begun.lock();
        let others_wait = begun.len() >= SOON_AT_A_TIME;
        begun.retain(|one| *one != (number, generation));
        drop(begun);
        if others_wait {
            media::wake(&self.page.asked);
        }
    }

    /// It ended, unless the file was made plain meanwhile: then the number may be another file's,
    /// which was not synced.
    fn end_first_sync(&self, number: usize, generation: u32, is_done: bool) {
        // Locked, so that the number stays this file's.
        let files = self.files.lock();
        if self.is_known_as(&files, number, generation) {
            self.page.files[number].first_sync.end(is_done);
        }
    }

    /// True when it has begun. False if a member is in the middle of a change for too long: it is
    /// asked for again.
    fn start_first_sync(&self, number: usize, generation: u32) -> bool {
        let file = &self.page.files[number];
        let begun = MonotonicTime::now();
        loop {
            let stamp = file.stamp();
            if stamp.generation != generation
                || stamp.state != FileState::Absorbed
                || begun.elapsed() >= LOCK_WAIT
                || !file.lock.take_for(SUPERVISOR, LOCK_WAIT)
            {
                return false;
            }
            let starts = file.stamp() == stamp && file.first_sync.start();
            let is_being_named = file.first_sync.is_being_named();
            file.lock.free();
            if starts || !is_being_named {
                return starts;
            }
            thread::sleep(AGAIN);
        }
    }

    /// Really syncs a file and the directory that has its name.
    ///
    /// # Errors
    /// In words.
    fn sync_named(
        &self,
        shared: &SupervisorState,
        number: usize,
        generation: u32,
    ) -> Result<(), String> {
        let (known, journal) = self
            .known_in_journal(number, generation)
            .ok_or("it is closed")?;
        let file = known.file.as_ref().ok_or("it is closed")?;
        forebay_pool::failpoint!("files:register");
        if !forebay_pool::fault_enabled!("no-registration-sync") {
            let has_name = rustix::fs::fstat(file).map_or(true, |stat| stat.st_nlink > 0);
            let directory = match has_name {
                true => Some(self.mark_directory(shared, number)?),
                false => None,
            };
            let journal = shared.order.page.journal(journal as usize);
            let changes = journal.map_or(0, JournalOrder::changes);
            let commit = || Ok(order::commit_journal(file.as_fd())?);
            let synced = shared.sync(file, false, commit);
            synced.map_err(|e| format!("syncing it: {e}"))?;
            journal.inspect(|journal| journal.note_ordered(changes));
            if let Some(directory) = directory {
                self.sync_directory(shared, (number, generation), &known, directory)?;
            }
        }
        forebay_pool::failpoint!("files:registered");
        snapshot::keep(&known.path, file.as_fd());
        Ok(())
    }

    /// The state of the file, and the place of its file system among the run's; none if the number
    /// is not this file's any more.
    fn known_in_journal(&self, number: usize, generation: u32) -> Option<(Arc<AbsorbedFile>, u32)> {
        let files = self.files.lock();
        let known = files.get(number)?.clone();
        let is_it = self.is_known_as(&files, number, generation);
        // The page has this of the next file before it is known: not while this one is.
        is_it.then(|| (known, self.page.files[number].journal.load(Relaxed)))
    }

    /// Marks the directory that has the file's name.
    fn mark_directory(
        &self,
        shared: &SupervisorState,
        number: usize,
    ) -> Result<MarkedParent, String> {
        let path = PathBuf::from(OsString::from_vec(self.page.files[number].names.path()));
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err("it has no path".to_owned());
        };
        let opened = open_directory(parent);
        let directory = Arc::new(opened.map_err(|e| format!("opening its directory: {e}"))?);
        shared.marks.note(parent, &directory, shared.pool.path());
        Ok(MarkedParent {
            name: name.to_owned(),
            directory,
        })
    }

    /// Makes the name and the mark durable, unless the file's own sync did so, and keeps the
    /// directory open.
    fn sync_directory(
        &self,
        shared: &SupervisorState,
        (number, generation): (usize, u32),
        known: &AbsorbedFile,
        MarkedParent { name, directory }: MarkedParent,
    ) -> Result<(), String> {
        let found = rustix::fs::statat(&*directory, &name, AtFlags::SYMLINK_NOFOLLOW);
        let found = found.map(|stat| Some((stat.st_dev, stat.st_ino)));
        let key = key_of(&directory).filter(|_| found == Ok(known.key));
        let key = key.ok_or("its name is not in the directory where it was")?;
        // One that is mounted alone over another file system's has its name elsewhere, in a journal
        // of its own.
        let is_one_journal = key.0 == known.stat.st_dev
            && (known.file.as_ref())
                .is_some_and(|file| self.first_syncs.journals_names(key.0, file));
        if !is_one_journal {
            let synced = self.turns_of(key).sync(|| {
                let synced = shared.sync(&directory, false, || directory.sync_all());
                synced.map_err(|e| errno_of(&e))
            });
            synced.map_err(|e| format!("syncing its directory: {e}"))?;
        }
        let mut files = self.files.lock();
        if !self.is_known_as(&files, number, generation) {
            // It was made plain meanwhile.
            return Ok(());
        }
        if let Some(known) = files.get(number).cloned() {
            let named = AbsorbedFile {
                parent: Some(key),
                // One for all files that are in it.
                directory: Some(files.directory(key, directory)),
                ..(*known).clone()
            };
            files.set(number, named);
        }
        Ok(())
    }

    fn turns_of(&self, directory: FileKey) -> Arc<DirectorySyncs> {
        let mut directories = self.first_syncs.directories.lock();
        // Those that no thread waits for are of no use.
        directories.retain(|_, turns| Arc::strong_count(turns) > 1);
        Arc::clone(directories.entry(directory).or_default())
    }

    /// It failed: the file is plain, and who waits syncs it really.
    fn leave_unsynced(&self, shared: &SupervisorState, number: usize, generation: u32, why: &str) {
        self.page.files[number].leave(generation);
        if let Some((known, _)) = self.known_in_journal(number, generation) {
            let path = &known.path;
            sys::complain(&format!("{} stays plain: {why}", path.display()));
            let bytes = path.as_os_str().as_bytes().to_vec();
            shared.stays_plain(known.pid, bytes, why.to_owned());
        }
        // If a member has its lock all the time, the next process that uses it tries again.
        let _ = self.retire(shared, number, generation, LOCK_WAIT);
    }

    /// Before the end of the run: first syncs that no process has waited for. Most is closed by
    /// now, and is let go of.
    pub(super) fn first_sync_all(&self, shared: &SupervisorState) {
        let due: Vec<usize> = (self.places())
            .filter(|(number, file)| {
                let is_due = file.first_sync.due() != DueSync::Never && !file.is_logged();
                is_due
                    && file.stamp().state == FileState::Absorbed
                    && !self.let_go_unsynced(shared, *number)
            })
            .map(|(number, _)| number)
            .collect();
        each_at_a_time(&due, |number| {
            self.first_sync(shared, *number, self.generation(*number));
        });
    }
}

#[cfg(test)]
mod tests;
