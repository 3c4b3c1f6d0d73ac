//! File systems on which the program has no absorbed file open any more: a moment later the
//! supervisor has none there either, so that they can be unmounted. How busy other logs are does
//! not matter: what the open segment has of such files is drained with it.
//!
//! As long as one of a file system's files is open, it could not be unmounted without Forebay
//! either, and those that are closed stay absorbed: PostgreSQL opens them again.

use super::{
    SupervisorState,
    run::{AbsorbedFile, RunState},
};
use crate::{shared::FileState, sys};
use forebay_pool::{Lsn, MonotonicTime};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::AsFd,
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

/// Time that they have to be closed: a program that opens its log for each write has it registered,
/// and synced, only when it paused.
const CLOSED_FOR: Duration = Duration::from_millis(700);
/// Interval of looks. One that is closed is leased for a moment, in which who opens it waits.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The last look at the files of each file system, by its device.
pub(super) struct IdleFilesystems {
    looked: MonotonicTime,
    /// Since when all are closed, and the log address behind the last record of any.
    since: BTreeMap<u64, (MonotonicTime, Lsn)>,
    /// Below it, all is in segments that were ended.
    ended: Lsn,
    /// By device: a file that was open when it was looked at last. As long as it is, no other one
    /// is asked about.
    open: BTreeMap<u64, usize>,
}

impl IdleFilesystems {
    pub(super) fn new() -> Self {
        Self {
            looked: MonotonicTime::now(),
            since: BTreeMap::new(),
            ended: 0,
            open: BTreeMap::new(),
        }
    }

    /// Looks, now and then: ends the open segment if it has something of files that were closed
    /// some time ago, and gives up those of which the lane has nothing.
    pub(super) fn look(&mut self, shared: &SupervisorState, run: &RunState) {
        if self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = MonotonicTime::now();
        let closed = self.closed_devices(run);
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

    /// The devices of which all absorbed files are closed, with the log address behind the last
    /// record of any.
    fn closed_devices(&mut self, run: &RunState) -> BTreeMap<u64, Lsn> {
        let devices: BTreeSet<u64> = run.files.lock().devices().collect();
        self.open.retain(|device, number| {
            let known = run
                .known(*number)
                .filter(|known| known.stat.st_dev == *device);
            devices.contains(device) && known.is_some_and(|known| !is_closed(run, *number, &known))
        });
        let asked = devices
            .into_iter()
            .filter(|device| !self.open.contains_key(device));
        let mut closed: BTreeMap<u64, Lsn> = asked.map(|device| (device, 0)).collect();
        if closed.is_empty() {
            return closed;
        }
        for (number, file) in run.places() {
            let Some(known) = run.known(number) else {
                continue;
            };
            let device = known.stat.st_dev;
            let Some(end) = closed.get_mut(&device) else {
                continue;
            };
            if is_closed(run, number, &known) {
                *end = file.end.load(Relaxed).max(*end);
            } else {
                closed.remove(&device);
                self.open.insert(device, number);
            }
        }
        closed
    }
}

/// True if no process has the file open, and nothing else of it is left to do.
fn is_closed(run: &RunState, number: usize, known: &AbsorbedFile) -> bool {
    let file = &run.page.files[number];
    let is_alone = |open: &std::fs::File| sys::alone(open.as_fd()) == Ok(true);
    file.stamp().state == FileState::Absorbed
        && file.error().is_none()
        && known.file.as_ref().is_none_or(|open| is_alone(open))
}
