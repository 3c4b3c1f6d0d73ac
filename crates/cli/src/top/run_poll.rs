//! Looks at the runs, by a thread of its own: one that is stopped holds up neither the screen nor
//! the keys. A look reads what `forebay status` reads.

use crate::run::RunningFlash;
use forebay_files::supervisor::{self, FoundRuns, RunScope};
use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

/// The longest time of a supervisor's answer. One that is busy takes milliseconds.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// The first interval at most: nobody is to wait for figures that long.
const FIRST_INTERVAL: Duration = Duration::from_millis(500);

/// The runs that are looked for.
#[derive(Clone, Debug)]
pub struct RunPlace {
    /// The run directory.
    pub dir: PathBuf,
    /// Their owners.
    pub whose: RunScope,
}

/// The findings of a look.
pub struct RunLook {
    /// The runs, or why nothing is known of them.
    pub found: Result<FoundRuns, String>,
    /// Their flash caches.
    pub flash: RunningFlash,
}

impl RunLook {
    /// Looks.
    pub fn take(place: &RunPlace) -> Self {
        let dir: &Path = &place.dir;
        let found = supervisor::status_within(dir, place.whose, ANSWER_WAIT);
        Self {
            found: found.map_err(|e| e.to_string()),
            flash: RunningFlash::find(dir, place.whose),
        }
    }
}

/// Looks again and again, until nobody takes the findings, or asks for them. `intervals` says how
/// often, whenever that changes.
pub fn go_on_looking(
    place: &RunPlace,
    mut interval: Duration,
    intervals: &Receiver<Duration>,
    take: impl Fn(RunLook) -> bool,
) {
    let mut pause = interval.min(FIRST_INTERVAL);
    loop {
        let begun = Instant::now();
        if !take(RunLook::take(place)) {
            return;
        }
        loop {
            match intervals.recv_timeout(pause.saturating_sub(begun.elapsed())) {
                Ok(other) => (interval, pause) = (other, other),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        pause = interval;
    }
}
