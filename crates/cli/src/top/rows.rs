//! The lines of the list: one for each run, whether its supervisor answers or not, and for each
//! pool that waits for a recovery. And their order.

use super::history::{RunHistory, RunPresence, WatchedRun, WatchedRunId};
use crate::{found_runs, rates::RunRates};
use forebay_files::supervisor::{OrphanedRun, RunFrontEnd, SupervisorStatus, WaitingPool};
use std::{cmp::Ordering, path::PathBuf};
use uuid::Uuid;

/// The identity of a line: it stays the chosen one wherever the order puts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowId {
    /// A run that answers, or has.
    Run(WatchedRunId),
    /// A supervisor that never answered.
    Silent(u32),
    /// A run without a supervisor, by its first process.
    Orphaned(Option<u32>),
    /// A pool.
    Waiting(PathBuf),
    /// A flash cache, by its run's process id.
    Cache(u32, Uuid),
}

/// The health of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunHealth {
    /// It absorbs.
    Absorbs,
    /// None of its processes has opened a log.
    NoLog,
    /// It ended while it was watched.
    Ended,
    /// It does not serve its purpose: a word, and the reason.
    Unwell(&'static str, String),
}

impl RunHealth {
    fn of(run: &WatchedRun) -> Self {
        match run.presence {
            RunPresence::Answers => Self::said(&run.status),
            RunPresence::Silent => Self::Unwell("SILENT", line(found_runs::silent(run.status.pid))),
            RunPresence::Ended(_) => Self::Ended,
        }
    }

    fn said(status: &SupervisorStatus) -> Self {
        let failing = (status.files.iter())
            .find_map(|file| Some(format!("{}: {}", file.path.display(), file.error.clone()?)));
        if let Some(why) = failing {
            return Self::Unwell("FAILS", format!("a log cannot be synced: {why}"));
        }
        if let Some(why) = status.degraded.first() {
            return Self::Unwell("DEGRADED", why.clone());
        }
        let lane = status.lane.as_ref();
        match lane.and_then(|lane| lane.left.clone()) {
            Some(why) => Self::Unwell("LEFT", format!("its records stay in the pool: {why}")),
            None if lane.is_none() => Self::NoLog,
            None => Self::Absorbs,
        }
    }

    /// In a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Absorbs => "absorbs",
            Self::NoLog => "no log",
            Self::Ended => "ended",
            Self::Unwell(word, _) => word,
        }
    }

    /// The reason that it is not well.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Unwell(_, why) => Some(why),
            _ => None,
        }
    }
}

/// Messages of others are whole lines.
fn line(said: String) -> String {
    said.trim_end().to_owned()
}

/// A line of the list.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// Its identity.
    pub id: RowId,
    /// The program; empty if that is not known.
    pub program: String,
    /// The supervisor's process id; of a run without one that of a process.
    pub pid: Option<u32>,
    /// The front end that sees the program's calls.
    pub front_end: &'static str,
    /// Files that are absorbed now.
    pub files: Option<u64>,
    /// Its rates in the last interval.
    pub rates: Option<RunRates>,
    /// The lag of the disk: bytes, and seconds.
    pub lag: Option<(u64, f64)>,
    /// Its health.
    pub health: RunHealth,
    /// Its pool.
    pub pool: String,
}

impl RunRow {
    /// Of a run that was seen.
    pub fn of_run(run: &WatchedRun) -> Self {
        let status = &run.status;
        let lane = status.lane.as_ref();
        let is_there = run.presence == RunPresence::Answers;
        let absorbed = |lane: &forebay_files::supervisor::RunLaneStatus| {
            lane.absorbed.iter().map(|sum| sum.files).sum()
        };
        Self {
            id: RowId::Run(run.id.clone()),
            program: status.program.clone(),
            pid: Some(status.pid),
            front_end: match status.front_end {
                RunFrontEnd::Library => "lib",
                RunFrontEnd::Agent => "agent",
                RunFrontEnd::Nobody => "none",
            },
            files: is_there.then(|| lane.map_or(0, absorbed)),
            rates: run.rates.clone(),
            lag: lane
                .filter(|_| is_there)
                .map(|lane| (lane.drain_lag_bytes, lane.lag_seconds)),
            health: RunHealth::of(run),
            pool: status.pool.display().to_string(),
        }
    }

    fn without_figures(id: RowId, health: RunHealth) -> Self {
        Self {
            id,
            program: String::new(),
            pid: None,
            front_end: "",
            files: None,
            rates: None,
            lag: None,
            health,
            pool: String::new(),
        }
    }

    fn of_silent(pid: u32) -> Self {
        let health = RunHealth::Unwell("SILENT", line(found_runs::silent(pid)));
        Self {
            pid: Some(pid),
            ..Self::without_figures(RowId::Silent(pid), health)
        }
    }

    fn of_orphaned(run: &OrphanedRun) -> Self {
        let health = RunHealth::Unwell("ORPHANED", line(found_runs::orphaned(run)));
        let first = run.processes.first();
        let pid = first.map(|(pid, _)| *pid);
        let pool = run.pool.as_ref();
        Self {
            program: first.map(|(_, name)| name.clone()).unwrap_or_default(),
            pid,
            pool: pool
                .map(|pool| pool.display().to_string())
                .unwrap_or_default(),
            ..Self::without_figures(RowId::Orphaned(pid), health)
        }
    }

    fn of_waiting(pool: &WaitingPool) -> Self {
        let health = RunHealth::Unwell("WAITING", line(found_runs::waiting(pool)));
        Self {
            program: "(pool)".to_owned(),
            pool: pool.pool.display().to_string(),
            ..Self::without_figures(RowId::Waiting(pool.pool.clone()), health)
        }
    }
}

/// The order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunOrder {
    /// Syncs saved, most first.
    #[default]
    Syncs,
    /// Bytes absorbed.
    Bytes,
    /// By the time of commits.
    Commits,
    /// By the lag of the disk.
    Lag,
    /// The program's name.
    Program,
}

impl RunOrder {
    /// The one after it.
    pub fn next(self) -> Self {
        match self {
            Self::Syncs => Self::Bytes,
            Self::Bytes => Self::Commits,
            Self::Commits => Self::Lag,
            Self::Lag => Self::Program,
            Self::Program => Self::Syncs,
        }
    }

    /// The head of its column.
    pub fn column(self) -> &'static str {
        match self {
            Self::Syncs => "SYNC/S",
            Self::Bytes => "MB/S",
            Self::Commits => "P99",
            Self::Lag => "LAG",
            Self::Program => "PROGRAM",
        }
    }

    fn compare(self, one: &RunRow, other: &RunRow) -> Ordering {
        let figure = |row: &RunRow| {
            let rates = row.rates.as_ref();
            match self {
                Self::Syncs => rates.map(|rates| rates.saved_syncs_per_second),
                Self::Bytes => rates.map(|rates| rates.bytes_per_second),
                Self::Commits => rates.and_then(|rates| rates.commit_p99_seconds),
                Self::Lag => row.lag.map(|(bytes, _)| bytes as f64),
                Self::Program => None,
            }
        };
        // The largest first; what has none, last.
        let [ours, theirs] = [one, other].map(|row| figure(row).unwrap_or(-1.0));
        theirs.total_cmp(&ours)
    }
}

/// All lines, in this order: trouble first.
pub fn rows(history: &RunHistory, order: RunOrder) -> Vec<RunRow> {
    let mut rows: Vec<RunRow> = history.runs.iter().map(RunRow::of_run).collect();
    rows.extend(history.silent.iter().map(|pid| RunRow::of_silent(*pid)));
    rows.extend(history.orphaned.iter().map(RunRow::of_orphaned));
    rows.extend(history.waiting.iter().map(RunRow::of_waiting));
    sort(&mut rows, order);
    rows
}

fn sort(rows: &mut [RunRow], order: RunOrder) {
    rows.sort_by(|one, other| {
        let is_well = |row: &RunRow| row.health.reason().is_none();
        let by_name = || (&one.program, one.pid).cmp(&(&other.program, other.pid));
        is_well(one)
            .cmp(&is_well(other))
            .then_with(|| order.compare(one, other))
            .then_with(by_name)
    });
}

#[cfg(test)]
impl RunRow {
    /// A line without figures.
    pub fn example(health: RunHealth) -> Self {
        Self::without_figures(RowId::Silent(0), health)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(program: &str, syncs: f64, health: RunHealth) -> RunRow {
        let rates = RunRates {
            saved_syncs_per_second: syncs,
            ..RunRates::default()
        };
        RunRow {
            program: program.to_owned(),
            rates: Some(rates),
            ..RunRow::example(health)
        }
    }

    #[test]
    fn rows_are_in_order_with_what_is_not_well_first() {
        let unwell = RunHealth::Unwell("SILENT", "it is stopped".to_owned());
        let mut rows = vec![
            row("b", 7.0, RunHealth::Absorbs),
            row("a", 7.0, RunHealth::Absorbs),
            row("c", 9.0, RunHealth::Ended),
            RunRow {
                program: "d".to_owned(),
                ..RunRow::example(unwell)
            },
        ];
        let mut in_order = |order| {
            sort(&mut rows, order);
            let names = rows.iter().map(|row| row.program.as_str());
            names.collect::<String>()
        };
        assert_eq!(in_order(RunOrder::Syncs), "dcab");
        assert_eq!(in_order(RunOrder::Program), "dabc");
        let mut order = RunOrder::default();
        for _ in 0..5 {
            order = order.next();
        }
        assert_eq!(order, RunOrder::default());
    }
}
