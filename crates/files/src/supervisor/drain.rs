//! The drain of one client: syncs the files of the segments that it hands over, in order.
//!
//! 1. Sync every file of the segment (of one that was unlinked, its directory).
//! 2. If a sync fails, say so on the shared page, and go no further: the client writes the file's records again, syncs it itself, and says
//!    *repaired*. A second sync here would succeed, whatever the disk has.
//! 3. Say that everything below the segment's end is drained.
//!
//! If nothing is handed over for a second, the files that were written to since are synced as well.

use super::{
    Shared,
    guest::{Guest, GuestFile, Work, errno_of},
};
use crate::{absorbed::Key, replay::Mark, sys};
use forebay_device::clock;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::File,
    io::{Read, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// What was logged is on the disk this long after the last segment at most, though none is full.
const IDLE: Duration = Duration::from_secs(1);

/// Works until the client is gone and everything that it handed over is done, or cannot be.
pub(super) fn run(shared: &Shared, guest: &Guest, todo: &Receiver<Work>) {
    // What arrived while a file could not be synced.
    let mut waiting = VecDeque::new();
    loop {
        let work = match waiting
            .pop_front()
            .map_or_else(|| todo.recv_timeout(IDLE), Ok)
        {
            Ok(work) => work,
            Err(RecvTimeoutError::Timeout) if idle(shared, guest, todo, &mut waiting) => continue,
            Err(_) => return,
        };
        match work {
            Work::Drain(end, files) => {
                if forebay_pool::broken!("release-early") {
                    guest.page.set_drained(end);
                }
                forebay_pool::failpoint!("files:drain-sync");
                if !segment(shared, guest, &files, todo, &mut waiting) {
                    return;
                }
                forebay_pool::failpoint!("files:drain-synced");
                guest.page.set_drained(end);
                guest.queued.fetch_sub(1, Relaxed);
            }
            Work::Repaired(_) => {}
        }
    }
}

/// After a while without work: syncs the files that have records which were not handed over. Nothing is released by that: of a segment that
/// is being written to it cannot be told which records there are. False if the client is gone and one of them cannot be synced.
fn idle(
    shared: &Shared,
    guest: &Guest,
    todo: &Receiver<Work>,
    waiting: &mut VecDeque<Work>,
) -> bool {
    let synced = guest.page.drained().max(guest.synced.load(Relaxed));
    let ends: Vec<u64> = guest
        .page
        .files
        .iter()
        .map(|file| file.end.load(Acquire))
        .collect();
    let behind: Vec<u32> = (0..)
        .zip(&ends)
        .filter_map(|(number, end)| (*end > synced).then_some(number))
        .collect();
    if behind.is_empty() {
        return true;
    }
    if !segment(shared, guest, &behind, todo, waiting) {
        return false;
    }
    let end = ends.into_iter().max().unwrap_or(0);
    guest.synced.store(end, Relaxed);
    true
}

/// Syncs the files of a segment. False if the client is gone and one of them cannot be synced.
fn segment(
    shared: &Shared,
    guest: &Guest,
    files: &[u32],
    todo: &Receiver<Work>,
    waiting: &mut VecDeque<Work>,
) -> bool {
    let known: Vec<(u32, Arc<GuestFile>)> = {
        let table = guest.files.lock();
        let known = |number: &u32| Some((*number, table.get(*number as usize)?.clone()?));
        files.iter().filter_map(known).collect()
    };
    let mut failed: BTreeSet<u32> = BTreeSet::new();
    // Many files of a segment may have lost their names in one directory: it is synced once, after all of them did.
    let mut directories: BTreeMap<Key, Result<(), i32>> = BTreeMap::new();
    for (number, file) in &known {
        let Some(target) = file.unlinked_from.as_ref().or(file.file.as_ref()) else {
            // Released: it has no name and no descriptor, so its content is needed by no process.
            continue;
        };
        let directory = file.unlinked_from.as_ref().and_then(|dir| key_of(dir));
        let earlier = directory.and_then(|key| directories.get(&key).copied());
        if earlier == Some(Ok(())) {
            continue;
        }
        let started = Instant::now();
        let begun = clock::now_ns();
        guest.page.begin_sync(*number as usize);
        let done = match (&file.unlinked_from, earlier) {
            // A second sync would succeed, whatever the disk has.
            (_, Some(Err(errno))) => Err(std::io::Error::from_raw_os_error(errno)),
            (Some(directory), _) => directory.sync_all(),
            (None, _) => {
                shared.snapshot(&file.path, target);
                fault().map_or_else(|| target.sync_data(), Err)
            }
        };
        if let Some(key) = directory {
            let said = done.as_ref().copied();
            directories.insert(key, said.map_err(|e| errno_of(e).raw_os_error()));
        }
        shared.charge_sync(target, true, begun);
        guest.syncs.fetch_add(1, Relaxed);
        guest.sync_ns.fetch_add(
            u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Relaxed,
        );
        if let Err(e) = &done {
            failed.insert(*number);
            // First of all, and where it outlives us: nobody else gets this error from the kernel.
            guest.mark(shared, Mark::Failed);
            guest.page.fail(*number as usize, errno_of(e));
        }
        guest.page.end_sync();
        if let Err(e) = done {
            sys::complain(&format!(
                "{} cannot be synced: {e}. Nothing is lost: what was written stays in the pool and is written again; until then its syncs \
                 fail",
                file.path.display()
            ));
        }
    }
    if failed.is_empty() {
        return true;
    }
    // What is handed over meanwhile waits: the next segment is not drained before this one.
    while !failed.is_empty() {
        match todo.recv() {
            Ok(Work::Repaired(number)) => {
                failed.remove(&number);
            }
            Ok(work) => waiting.push_back(work),
            Err(_) => return false,
        }
    }
    guest.mark(shared, Mark::None);
    true
}

fn key_of(file: &File) -> Option<Key> {
    let stat = rustix::fs::fstat(file).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// In tests: an error instead of the next sync, taken from a file that says which and how often (`errno count`).
fn fault() -> Option<std::io::Error> {
    let path = std::env::var_os("FOREBAY_TEST_SYNC_FAULT")?;
    let text = std::fs::read_to_string(&path).ok()?;
    let (errno, count) = text.trim().split_once(' ')?;
    let (errno, count): (i32, u64) = (errno.parse().ok()?, count.parse().ok()?);
    let left = count.checked_sub(1)?;
    std::fs::write(&path, format!("{errno} {left}")).ok()?;
    Some(std::io::Error::from_raw_os_error(errno))
}

/// Copies a file's content below `to`, at its own path; whole or not at all.
pub(super) fn snapshot(to: &Path, path: &Path, file: &File) {
    let copy = || -> std::io::Result<()> {
        let target = to.join(path.strip_prefix("/").unwrap_or(path));
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut bytes = Vec::new();
        // Its own open file: the position of the database's is not ours to move.
        File::open(sys::link_of(file.as_fd()))?.read_to_end(&mut bytes)?;
        let mut name = target.clone().into_os_string();
        name.push(".partial");
        let partial = PathBuf::from(name);
        File::create(&partial)?.write_all(&bytes)?;
        std::fs::rename(partial, target)
    };
    if let Err(e) = copy() {
        sys::complain(&format!("keeping a copy of {}: {e}", path.display()));
    }
}
