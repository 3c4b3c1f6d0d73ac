//! Runs that `forebay top` has seen: the last two statuses of each, and its rates for as long as a
//! line of the screen is wide.
//!
//! A run that ends is kept for some seconds, and as long as it is looked at, so that whoever
//! watches it sees what became of it.

use super::{rows::RowId, run_poll::RunLook};
use crate::rates::RunRates;
use forebay_files::supervisor::{OrphanedRun, SupervisorStatus, WaitingPool};
use forebay_innodb::CacheStatus;
use std::{
    collections::VecDeque,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Intervals that are remembered.
const INTERVALS_KEPT: usize = 240;
/// Time that a run is shown after its end.
const ENDED_SHOWN: Duration = Duration::from_secs(10);

/// The identity of a run. Process ids alone are not enough: those of a namespace that is not seen
/// from here may be those of other processes here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedRunId {
    pid: u32,
    program: String,
    pool: PathBuf,
}

impl WatchedRunId {
    fn of(status: &SupervisorStatus) -> Self {
        Self {
            pid: status.pid,
            program: status.program.clone(),
            pool: status.pool.clone(),
        }
    }
}

/// A run's presence at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPresence {
    /// It answered.
    Answers,
    /// It is there, and did not.
    Silent,
    /// It was not there any more, from then on.
    Ended(Instant),
}

/// A run's rates in each interval.
#[derive(Clone, Debug, Default)]
pub struct RunSeries {
    /// Syncs saved, a second.
    pub syncs: VecDeque<u64>,
    /// The time that 99 of 100 commits took at most, µs; none if there was no commit.
    pub commit_p99: VecDeque<Option<u64>>,
}

impl RunSeries {
    fn add(&mut self, rates: &RunRates) {
        self.syncs
            .push_back(rates.saved_syncs_per_second.round() as u64);
        let p99 = rates.commit_p99_seconds;
        self.commit_p99
            .push_back(p99.map(|seconds| (seconds * 1e6).round() as u64));
        if self.syncs.len() > INTERVALS_KEPT {
            self.syncs.pop_front();
            self.commit_p99.pop_front();
        }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct WatchedRun {
    /// Its identity.
    pub id: WatchedRunId,
    /// Its supervisor's last status.
    pub status: SupervisorStatus,
    /// And before that.
    pub before: Option<SupervisorStatus>,
    /// The rates between the two. None before its second answer, and if it did not answer just now.
    pub rates: Option<RunRates>,
    /// The same of the intervals before.
    pub series: RunSeries,
    /// Its presence.
    pub presence: RunPresence,
}

impl WatchedRun {
    fn new(status: SupervisorStatus) -> Self {
        Self {
            id: WatchedRunId::of(&status),
            status,
            before: None,
            rates: None,
            series: RunSeries::default(),
            presence: RunPresence::Answers,
        }
    }

    fn says(&mut self, status: SupervisorStatus) {
        self.presence = RunPresence::Answers;
        self.rates = RunRates::between(&self.status, &status);
        match &self.rates {
            Some(rates) => self.series.add(rates),
            // It began anew, as another one of this number.
            None if status.uptime_seconds < self.status.uptime_seconds => {
                *self = Self::new(status);
                return;
            }
            None => {}
        }
        self.before = Some(std::mem::replace(&mut self.status, status));
    }

    /// It did not answer.
    fn is_missed(&mut self, is_silent: bool) {
        self.rates = None;
        self.before = None;
        self.presence = match self.presence {
            _ if is_silent => RunPresence::Silent,
            ended @ RunPresence::Ended(_) => ended,
            _ => RunPresence::Ended(Instant::now()),
        };
    }

    /// True if a run that lost its supervisor is this one.
    fn is(&self, orphaned: &OrphanedRun) -> bool {
        let own = &self.status.processes;
        let mut orphans = orphaned.processes.iter();
        orphans.any(|(pid, _)| own.iter().any(|process| process.pid == *pid))
    }
}

/// A flash cache.
#[derive(Clone, Debug)]
pub struct WatchedCache {
    /// The process id of its run.
    pub pid: u32,
    /// Its server's last status.
    pub status: CacheStatus,
}

impl WatchedCache {
    /// The id of its line.
    pub fn row_id(&self) -> RowId {
        RowId::Cache(self.pid, self.status.run)
    }
}

/// All that was seen.
#[derive(Debug, Default)]
pub struct RunHistory {
    /// Runs that answer, or have.
    pub runs: Vec<WatchedRun>,
    /// Process ids of supervisors that never answered.
    pub silent: Vec<u32>,
    /// Runs without a supervisor.
    pub orphaned: Vec<OrphanedRun>,
    /// Pools with records of runs that are over.
    pub waiting: Vec<WaitingPool>,
    /// Flash caches.
    pub caches: Vec<WatchedCache>,
    /// Lines on runs with a flash cache of which no server says how it is.
    pub silent_caches: Vec<String>,
    /// The reason that the last look found nothing out.
    pub failure: Option<String>,
    /// The number of looks.
    pub looks: u64,
}

impl RunHistory {
    /// Takes up a look; `viewed` is the run whose detail is on the screen.
    pub fn add(&mut self, look: RunLook, viewed: Option<&WatchedRunId>) {
        self.looks += 1;
        let found = match look.found {
            Ok(found) => found,
            Err(why) => {
                self.failure = Some(why);
                return;
            }
        };
        self.failure = None;
        let mut silent = found.silent;
        let mut answered = Vec::new();
        for status in found.statuses {
            let id = WatchedRunId::of(&status);
            match self.runs.iter_mut().find(|run| run.id == id) {
                Some(run) => run.says(status),
                None => self.runs.push(WatchedRun::new(status)),
            }
            answered.push(id);
        }
        for run in &mut self.runs {
            if !answered.contains(&run.id) {
                let is_silent = silent.contains(&run.id.pid);
                run.is_missed(is_silent);
            }
        }
        let is_kept = |run: &WatchedRun| match run.presence {
            RunPresence::Ended(when) => {
                let goes_on = found.orphaned.iter().any(|orphaned| run.is(orphaned));
                !goes_on && (when.elapsed() < ENDED_SHOWN || viewed == Some(&run.id))
            }
            _ => true,
        };
        self.runs.retain(is_kept);
        silent.retain(|pid| self.runs.iter().all(|run| run.id.pid != *pid));
        self.silent = silent;
        self.orphaned = found.orphaned;
        self.waiting = found.waiting;
        let caches = look.flash.statuses.iter();
        self.caches = caches
            .map(|(pid, status)| WatchedCache {
                pid: *pid,
                status: status.clone(),
            })
            .collect();
        self.silent_caches = look.flash.silent().collect();
    }

    /// The run of this identity.
    pub fn run(&self, id: &WatchedRunId) -> Option<&WatchedRun> {
        self.runs.iter().find(|run| run.id == *id)
    }

    /// The flash cache of this run.
    pub fn cache_of(&self, run: &WatchedRun) -> Option<&WatchedCache> {
        self.caches.iter().find(|cache| cache.pid == run.status.pid)
    }
}
