//! `forebay status`.

use crate::{
    failure::Failure,
    found_runs::{looked, orphaned, silent, waiting},
    metrics::{MetricsSnapshot, TextFile},
    output::{self, Output, printable},
    rates::RunRates,
    run::{self, RunningFlash},
    standard_error::complain,
};
use clap::Args;
use forebay_files::supervisor::{
    self, FoundRuns, OrphanedRun, RunScope, SupervisorStatus, WaitingPool,
};
use forebay_innodb::CacheStatus as Flash;
use serde::Serialize;
use std::{
    io::{IsTerminal, stdout},
    path::Path,
    thread,
    time::Duration,
};

/// Show programs under forebay run, and their absorbed writes
#[derive(Args)]
#[command(
    long_about = "Lists every program under forebay run for this user: the pool and the losses it survives, lanes and their fill, files with absorbed bytes and syncs, the \
    disk's lag, errors, and the flash cache. It also lists runs whose forebay was killed, and pools in which such runs left records. \
                  With FOREBAY_RUN_DIR in the environment it lists the runs of that directory alone. \
                  Exit status 1 if there is such a run or pool, if there are errors, if a run absorbs nothing though it should, if a flash cache fails or has lost pages, if a run does not answer, or if no server of a running program has reported its flash cache for ten seconds. As JSON a run without a pool has its pid and flash cache alone.",
    after_long_help = "Examples:\n  forebay status\n  forebay status --watch\n  forebay status --json\n  forebay status --all --textfile /var/lib/prometheus/node-exporter/forebay.prom"
)]
pub struct StatusCommand {
    /// Those of all users too (root only)
    #[arg(long)]
    all: bool,
    /// Again every second, until interrupted, with the rates of that second
    #[arg(long)]
    watch: bool,
    /// Report as JSON; with --watch, a line each time
    #[arg(long)]
    json: bool,
    /// Write figures into this file, PATH.prom, for node_exporter's textfile collector
    ///
    /// In one step, so that a reader finds no part of them; and report nothing else. Exit status 0
    /// if they are written: trouble is in the figures.
    #[arg(long, value_name = "PATH", value_parser = TextFile::parse, conflicts_with_all = ["json", "watch"])]
    textfile: Option<TextFile>,
}

impl StatusCommand {
    pub fn run(self) -> Result<(), Failure> {
        const AGAIN: Duration = Duration::from_secs(1);
        let dir = run::existing_run_dir()?;
        let whose = run::whose_runs(self.all)?;
        if let Some(textfile) = &self.textfile {
            return textfile.write(&MetricsSnapshot {
                found: Some(supervisor::status_of(&dir, whose)?),
                flash: RunningFlash::find(&dir, whose).statuses,
                ..MetricsSnapshot::default()
            });
        }
        if !self.watch {
            let running = supervisor::status_of(&dir, whose)?;
            let flash = RunningFlash::find(&dir, whose);
            let is_well = all_are_well(&running) && flash.is_well();
            if self.json {
                name_silent(&running, &flash);
            }
            let looked = looked(&dir, whose);
            return output::verdict(self.json, &each(&running, &flash, &[]), is_well, |_| {
                human(&running, &flash, &[], &looked)
            });
        }
        let mut before = Vec::new();
        loop {
            before = self.show(&dir, whose, &before)?;
            thread::sleep(AGAIN);
        }
    }

    /// One look of `--watch`, after the one `before`.
    fn show(
        &self,
        dir: &Path,
        whose: RunScope,
        before: &[SupervisorStatus],
    ) -> Result<Vec<SupervisorStatus>, Failure> {
        // To the upper left corner, and everything away.
        const CLEAR: &str = "\x1b[H\x1b[2J";
        let running = supervisor::status_of(dir, whose)?;
        let flash = RunningFlash::find(dir, whose);
        let mut output = Output::new();
        if self.json {
            output.json(&each(&running, &flash, before))?;
            name_silent(&running, &flash);
        } else {
            // Into a file or a pipe one look comes after the other.
            let above = if stdout().is_terminal() { CLEAR } else { "\n" };
            output.text(above)?;
            output.text(&human(&running, &flash, before, &looked(dir, whose)))?;
        }
        output.finish()?;
        Ok(running.statuses)
    }
}

/// True if each run answers, does what it is for, and has its supervisor, and no pool waits.
fn all_are_well(running: &FoundRuns) -> bool {
    running.silent.is_empty()
        && running.orphaned.is_empty()
        && running.waiting.is_empty()
        && running.statuses.iter().all(run::is_well)
}

/// A run, as JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum RunReport<'a> {
    /// Its supervisor's status, and its flash cache, if it has one.
    WithPool {
        #[serde(flatten)]
        supervisor: &'a SupervisorStatus,
        flash: Option<&'a Flash>,
        /// With `--watch`, from the second look on.
        #[serde(skip_serializing_if = "Option::is_none")]
        rates: Option<RunRates>,
    },
    /// A flash cache alone: no supervisor answers for it.
    Flash { pid: u32, flash: &'a Flash },
    /// It goes on without its supervisor, which was killed.
    Orphaned { orphaned: &'a OrphanedRun },
    /// It is over, and its pool has records of it.
    Waiting { waiting: &'a WaitingPool },
}

/// The rates of a run since the look `before`, if it was there.
fn rates(now: &SupervisorStatus, before: &[SupervisorStatus]) -> Option<RunRates> {
    (before.iter()).find_map(|before| RunRates::between(before, now))
}

fn each<'a>(
    running: &'a FoundRuns,
    flash: &'a RunningFlash,
    before: &[SupervisorStatus],
) -> Vec<RunReport<'a>> {
    let mut alone: Vec<&(u32, Flash)> = flash.statuses.iter().collect();
    let with_pool = running.statuses.iter().map(|supervisor| {
        let its = alone.iter().position(|(pid, _)| *pid == supervisor.pid);
        let flash = its.map(|at| &alone.remove(at).1);
        RunReport::WithPool {
            supervisor,
            flash,
            rates: rates(supervisor, before),
        }
    });
    let mut runs: Vec<RunReport> = with_pool.collect();
    runs.extend((alone.into_iter()).map(|(pid, flash)| RunReport::Flash { pid: *pid, flash }));
    let orphaned = running.orphaned.iter();
    runs.extend(orphaned.map(|orphaned| RunReport::Orphaned { orphaned }));
    let waiting = running.waiting.iter();
    runs.extend(waiting.map(|waiting| RunReport::Waiting { waiting }));
    runs
}

/// In words; `looked` says where nothing was found.
fn human(
    running: &FoundRuns,
    flash: &RunningFlash,
    before: &[SupervisorStatus],
    looked: &str,
) -> String {
    let with_rates = |now: &SupervisorStatus| {
        let rates = rates(now, before);
        run::running(now) + &rates.map(|rates| rates.line()).unwrap_or_default()
    };
    let mut parts: Vec<String> = running.statuses.iter().map(with_rates).collect();
    parts.extend(running.silent.iter().map(|pid| silent(*pid) + "\n"));
    parts.extend(running.orphaned.iter().map(orphaned));
    parts.extend(running.waiting.iter().map(waiting));
    parts.extend(flash.paragraphs());
    if parts.is_empty() {
        return printable(looked);
    }
    printable(&parts.join("\n"))
}

/// Names what has no place in the JSON: supervisors, and flash caches, of which nothing is said.
fn name_silent(running: &FoundRuns, flash: &RunningFlash) {
    let supervisors = running.silent.iter().map(|pid| silent(*pid));
    (supervisors.chain(flash.silent())).for_each(|line| complain!("{line}"));
}
