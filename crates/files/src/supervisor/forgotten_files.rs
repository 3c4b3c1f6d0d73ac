//! Files that the run has no more to do with: the notes of them are given up, and their numbers are
//! free.

use super::{
    SupervisorState,
    file_names::{key_of, newest_path},
    run::{AbsorbedFile, RunState, SUPERVISOR},
    watch::WatchedFile,
};
use crate::{
    shared::{DueSync, FileState, Stamp},
    sys,
};
use std::{
    collections::BTreeMap,
    fs::File,
    ops::Range,
    os::fd::AsFd,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

/// Paths of files that are absorbed no longer, of which each has its own figures: a program may
/// make new ones all the time.
const PATHS_MAX: usize = 4096;
/// Files that are looked at in a second whether they are closed, while there is nothing else to do.
const LOOKED_AT_MAX: usize = 4096;

/// Files that are absorbed no longer.
#[derive(Default)]
pub(super) struct ForgottenFiles {
    /// By their paths, and the pattern that named them when they were registered.
    pub(super) by_path: BTreeMap<(PathBuf, Option<usize>), ForgottenFile>,
    /// The counts of others, of each pattern together.
    rest: BTreeMap<Option<usize>, [u64; 3]>,
}

/// The counts of such a file.
#[derive(Default)]
pub(super) struct ForgottenFile {
    /// Writes, bytes, syncs.
    pub(super) counts: [u64; 3],
    /// It was made plain, not only closed.
    pub(super) retired: bool,
}

impl ForgottenFiles {
    fn add(&mut self, path: PathBuf, pattern: Option<usize>, counts: [u64; 3], retired: bool) {
        let key = (path, pattern);
        // Whoever looks wants to know which are plain.
        let most = if retired { 2 * PATHS_MAX } else { PATHS_MAX };
        let is_room = self.by_path.len() < most || self.by_path.contains_key(&key);
        let sum = if is_room {
            let file = self.by_path.entry(key).or_default();
            file.retired = retired;
            &mut file.counts
        } else {
            self.rest.entry(pattern).or_default()
        };
        for (sum, count) in sum.iter_mut().zip(counts) {
            // Any process of the run may write over the counts.
            *sum = sum.wrapping_add(count);
        }
    }

    /// Their counts, each with a pattern.
    pub(super) fn sums(&self) -> impl Iterator<Item = (Option<usize>, [u64; 3])> {
        let by_path = self.by_path.iter();
        let rest = self
            .rest
            .iter()
            .map(|(pattern, counts)| (*pattern, *counts));
        by_path
            .map(|((_, pattern), file)| (*pattern, file.counts))
            .chain(rest)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }
}

impl RunState {
    /// Lets go of a file of which the lane holds nothing; it was `retired`, or it is closed. Under
    /// its lock.
    pub(super) fn forget(&self, shared: &SupervisorState, number: usize, retired: bool) {
        let file = &self.page.files[number];
        let mut files = self.files.lock();
        let known = files.take(number);
        if let Some(known) = &known {
            // Before it can be registered again, which has it watched and published anew.
            unwatch(shared, number, known);
        }
        let generation = self.generation(number);
        file.set(Stamp {
            generation,
            state: FileState::Free,
        });
        self.repaired(number);
        let Some(known) = known else { return };
        if retired {
            self.retired.lock().insert(known.identity.clone());
        }
        let counts = [&file.writes, &file.bytes, &file.syncs].map(|count| count.load(Relaxed));
        let path = newest_path(file, &known.path);
        (self.forgotten.lock()).add(path, known.pattern, counts, retired);
    }

    /// The number is no file's again, whose registration failed.
    pub(super) fn vacate(&self, number: usize, generation: u32) {
        let mut files = self.files.lock();
        if self.generation(number) != generation {
            // It was made plain meanwhile, and another file has the number.
            return;
        }
        drop(files.take(number));
        let state = FileState::Free;
        self.page.files[number].set(Stamp { generation, state });
    }

    /// Frees the numbers of those files that are `wanted`, open in no process, and of which the
    /// lane holds nothing.
    pub(super) fn reclaim(&self, shared: &SupervisorState, wanted: impl Fn(&AbsorbedFile) -> bool) {
        self.reclaim_of(shared, self.numbers(), wanted);
    }

    /// The same of some numbers, others each time: to ask who has a file open is a call each.
    pub(super) fn reclaim_some(&self, shared: &SupervisorState) {
        let Range { end, .. } = self.numbers();
        let start = self.looked_to.load(Relaxed);
        let start = if start < end { start } else { 0 };
        let to = (start + LOOKED_AT_MAX).min(end);
        self.looked_to.store(to, Relaxed);
        self.reclaim_of(shared, start..to, |_| true);
    }

    fn reclaim_of(
        &self,
        shared: &SupervisorState,
        numbers: Range<usize>,
        wanted: impl Fn(&AbsorbedFile) -> bool,
    ) {
        let head = self.lane.usage().head;
        for (number, file) in numbers.clone().zip(&self.page.files[numbers]) {
            let Some(known) = self.known(number).filter(|known| wanted(known)) else {
                continue;
            };
            let is_done = || {
                let is_open = |open: &Arc<File>| sys::alone(open.as_fd()) != Ok(true);
                file.stamp().state == FileState::Absorbed
                    && file.end.load(Relaxed) <= head
                    // Who asked for one that was done meanwhile leaves that it is due.
                    && (file.is_logged() || file.first_sync.due() != DueSync::Now)
                    && !file.first_sync.is_under_way()
                    && !known.file.as_ref().is_some_and(is_open)
            };
            if is_done() && file.lock.take_for(SUPERVISOR, Duration::ZERO) {
                // Who opened it meanwhile waits for the lock, and finds it gone.
                if is_done() {
                    self.forget(shared, number, false);
                }
                file.lock.free();
            }
        }
    }

    /// Lets go of a file that is open in no process, and that no process synced: the lane has
    /// nothing of it, and a power cut may leave of it what it leaves of any other. False if it is
    /// not such a one.
    pub(super) fn let_go_unsynced(&self, shared: &SupervisorState, number: usize) -> bool {
        let file = &self.page.files[number];
        let is_needless = || {
            let is_alone = |open: &Arc<File>| sys::alone(open.as_fd()) == Ok(true);
            file.stamp().state == FileState::Absorbed
                && !file.is_logged()
                && !file.first_sync.is_under_way()
                && file.first_sync.due() != DueSync::Now
                && self
                    .known(number)
                    .is_some_and(|known| known.file.as_ref().is_none_or(is_alone))
        };
        if !is_needless() || !file.lock.take_for(SUPERVISOR, Duration::ZERO) {
            return false;
        }
        let is_done = is_needless();
        if is_done {
            self.forget(shared, number, false);
        }
        file.lock.free();
        is_done
    }

    /// Gives up the descriptor of a file that has no name and is open in no process: its space is
    /// free then. False if it is not such a file yet. A file without a directory to be synced
    /// instead is none as long as the lane has something of it: after a power cut it may have its
    /// name again.
    pub(super) fn release(&self, shared: &SupervisorState, number: usize) -> bool {
        let is_drained = self.page.files[number].end.load(Relaxed) <= self.lane.usage().head;
        let mut files = self.files.lock();
        let Some(known) = files.get(number).cloned() else {
            return true;
        };
        let Some(open) = &known.file else { return true };
        let is_needless = (is_drained || known.unlinked_from.is_some())
            && rustix::fs::fstat(open).is_ok_and(|stat| stat.st_nlink == 0)
            && sys::alone(open.as_fd()) == Ok(true);
        if !is_needless {
            return false;
        }
        unwatch(shared, number, &known);
        self.page.set_key(number, (known.stat.st_dev, 0));
        let released = AbsorbedFile {
            key: None,
            file: None,
            watched: WatchedFile::Not,
            ..(*known).clone()
        };
        files.set(number, released);
        drop(files);
        self.let_go_unsynced(shared, number);
        true
    }

    /// From now on the directory that had the file's last name is synced instead of it, if that can
    /// be. It was found by its path, where another one may be by now. So it is to be the one in
    /// which the file was registered, or one that has its inode, whose sync makes durable as well
    /// that the first is gone.
    pub(super) fn unlinked(&self, number: usize, directory: Option<File>) {
        let mut files = self.files.lock();
        let Some(known) = files.get(number).cloned() else {
            return;
        };
        // It may have got another name since, or the number another file.
        let is_nameless = known
            .file
            .as_ref()
            .is_some_and(|open| rustix::fs::fstat(open).is_ok_and(|stat| stat.st_nlink == 0));
        let is_its = |directory: &File| key_of(directory) == known.parent;
        if let Some(directory) = directory.filter(is_its).filter(|_| is_nameless)
            && let Some(parent) = known.parent
        {
            let unlinked = AbsorbedFile {
                unlinked_from: Some(files.directory(parent, Arc::new(directory))),
                ..(*known).clone()
            };
            files.set(number, unlinked);
        }
    }
}

/// The file is neither watched nor in the table any more.
fn unwatch(shared: &SupervisorState, number: usize, known: &AbsorbedFile) {
    if let Some(open) = &known.file {
        shared.watch.remove(&known.watched, open.as_fd());
    }
    if let Some(key) = known.key {
        shared.table.withdraw(number, key);
    }
}

#[cfg(test)]
pub(super) mod tests;
