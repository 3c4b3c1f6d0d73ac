//! File systems on which the program has no absorbed file open any more: a moment later the
//! supervisor has none there either, so that they can be unmounted. How busy other logs are does
//! not matter: what the open segment has of such files is drained with it.
//!
//! As long as one of a file system's files is open, it could not be unmounted without Forebay
//! either, and those that are closed stay absorbed: PostgreSQL opens them again.

use super::{SupervisorState, run::RunState};
use crate::{shared::FileState, sys};
use forebay_pool::{Lsn, MonotonicTime};
use std::{collections::BTreeMap, os::fd::AsFd, sync::atomic::Ordering::Relaxed, time::Duration};

/// How long they have to be closed: a program that opens its log for each write has it registered,
/// and synced, only when it paused.
const CLOSED_FOR: Duration = Duration::from_millis(700);
/// How often to look. One that is closed is leased for a moment, in which who opens it waits.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What was seen of the files of each file system, by its device.
pub(super) struct IdleFilesystems {
    looked: MonotonicTime,
    /// Since when all are closed, and the log address behind the last record of any.
    since: BTreeMap<u64, (MonotonicTime, Lsn)>,
    /// Below it, all is in segments that were ended.
    ended: Lsn,
}

impl IdleFilesystems {
    pub(super) fn new() -> Self {
        Self {
            looked: MonotonicTime::now(),
            since: BTreeMap::new(),
            ended: 0,
        }
    }

    /// Looks, now and then: ends the open segment if it has something of files that were closed
    /// some time ago, and gives up those of which the lane has nothing.
    pub(super) fn look(&mut self, shared: &SupervisorState, run: &RunState) {
        if self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = MonotonicTime::now();
        let closed = closed_devices(run);
        self.since
            .retain(|device, (_, end)| closed.get(device) == Some(end));
        for (device, end) in closed {
            self.since.entry(device).or_insert((self.looked, end));
        }
        let head = run.lane.usage().head;
        let done = (self.since.iter()).filter(|(_, (since, _))| since.elapsed() >= CLOSED_FOR);
        let (mut drained, mut end_max) = (Vec::new(), 0);
        for (device, (_, end)) in done {
            match *end <= head {
                true => drained.push(*device),
                false => end_max = end_max.max(*end),
            }
        }
        if end_max > self.ended
            && let Ok(Some(ended)) = run.lane.seal()
        {
            self.ended = ended;
        }
        if !drained.is_empty() {
            run.reclaim(shared, |known| drained.contains(&known.stat.st_dev));
        }
    }
}

/// The devices of which all absorbed files are closed, with the log address behind the last record
/// of any.
fn closed_devices(run: &RunState) -> BTreeMap<u64, Lsn> {
    let mut devices: BTreeMap<u64, Option<Lsn>> = BTreeMap::new();
    for (number, file) in run.places() {
        let Some(known) = run.known(number) else {
            continue;
        };
        let end = devices.entry(known.stat.st_dev).or_insert(Some(0));
        let Some(so_far) = *end else { continue };
        let is_alone = |open: &std::fs::File| sys::alone(open.as_fd()) == Ok(true);
        let is_closed = file.stamp().state == FileState::Absorbed
            && file.error().is_none()
            && known.file.as_ref().is_none_or(|open| is_alone(open));
        *end = is_closed.then(|| so_far.max(file.end.load(Relaxed)));
    }
    let closed = devices.into_iter();
    closed
        .filter_map(|(device, end)| Some((device, end?)))
        .collect()
}
