//! `forebay status`.

use crate::{
    failure::Failure,
    output::{self, Output, complain},
    run::{self, RunningFlash},
};
use clap::Args;
use forebay_files::supervisor::{self, Running};
use forebay_pages::Status as Flash;
use serde::Serialize;
use std::{path::Path, thread, time::Duration};

/// Show what runs under forebay run, and what was absorbed
#[derive(Args)]
#[command(
    long_about = "Lists everything that runs under forebay run for this user: the pool and what it survives, lanes and how full they are, \
                  files with absorbed bytes and syncs, how far the disk is behind, and errors; and its flash cache. Exit status 1 if there are errors, if a flash cache fails or has lost pages, \
                  or if a run does not answer, or while its program runs no server in it has said for ten seconds how its flash cache is. As JSON a run without a pool has its pid and flash cache alone.",
    after_long_help = "Examples:\n  forebay status\n  forebay status --watch\n  forebay status --json"
)]
pub struct Status {
    /// Again every second, until interrupted
    #[arg(long)]
    watch: bool,
    /// Report as JSON; with --watch, a line each time
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(self) -> Result<(), Failure> {
        const AGAIN: Duration = Duration::from_secs(1);
        let dir = run::run_dir()?;
        if !self.watch {
            let running = supervisor::status_of_running(&dir)?;
            let flash = RunningFlash::of(&dir);
            let answers = running.silent.is_empty() && running.statuses.iter().all(run::is_well);
            let is_well = answers && flash.is_well();
            if self.json {
                name_silent(&running, &flash);
            }
            return output::verdict(self.json, &each(&running, &flash), is_well, |_| {
                human(&running, &flash)
            });
        }
        loop {
            self.show(&dir)?;
            thread::sleep(AGAIN);
        }
    }

    /// One look of `--watch`.
    fn show(&self, dir: &Path) -> Result<(), Failure> {
        // To the upper left corner, and everything away.
        const CLEAR: &str = "\x1b[H\x1b[2J";
        let running = supervisor::status_of_running(dir)?;
        let flash = RunningFlash::of(dir);
        let mut output = Output::new();
        if self.json {
            output.json(&each(&running, &flash))?;
            name_silent(&running, &flash);
        } else {
            output.text(CLEAR)?;
            output.text(&human(&running, &flash))?;
        }
        output.finish()
    }
}

/// A run, as JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Run<'a> {
    /// What its supervisor says, and its flash cache, if it has one.
    WithPool {
        #[serde(flatten)]
        supervisor: &'a supervisor::Status,
        flash: Option<&'a Flash>,
    },
    /// A flash cache alone: no supervisor answers for it.
    Flash { pid: u32, flash: &'a Flash },
}

fn each<'a>(running: &'a Running, flash: &'a RunningFlash) -> Vec<Run<'a>> {
    let mut alone: Vec<&(u32, Flash)> = flash.statuses.iter().collect();
    let with_pool = running.statuses.iter().map(|supervisor| {
        let its = alone.iter().position(|(pid, _)| *pid == supervisor.pid);
        let flash = its.map(|at| &alone.remove(at).1);
        Run::WithPool { supervisor, flash }
    });
    let mut runs: Vec<Run> = with_pool.collect();
    runs.extend((alone.into_iter()).map(|(pid, flash)| Run::Flash { pid: *pid, flash }));
    runs
}

fn human(running: &Running, flash: &RunningFlash) -> String {
    let mut parts: Vec<String> = running.statuses.iter().map(run::running).collect();
    parts.extend(running.silent.iter().map(|pid| silent(*pid) + "\n"));
    parts.extend(flash.paragraphs());
    if parts.is_empty() {
        return "nothing runs under forebay (for this user)\n".to_owned();
    }
    parts.join("\n")
}

/// Names what has no place in the JSON: supervisors, and flash caches, of which nothing is said.
fn name_silent(running: &Running, flash: &RunningFlash) {
    let supervisors = running.silent.iter().map(|pid| silent(*pid));
    (supervisors.chain(flash.silent())).for_each(|line| complain!("{line}"));
}

/// Of a supervisor that does not say how it is doing.
fn silent(pid: u32) -> String {
    format!(
        "forebay {pid} does not answer: it is stopped, or of another version. If it is stopped, programs that open its logs may wait: kill -CONT {pid}"
    )
}
