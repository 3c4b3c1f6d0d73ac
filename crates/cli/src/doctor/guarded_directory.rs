//! `forebay doctor DIR`: tells if a database may be started there without Forebay.

use crate::{
    failure::Failure,
    output,
    recover::{behind_flash, copied_directory},
    run,
};
use forebay_files::{
    guard::{self, DirectoryGuard},
    marks::{self, MarkState, MarkedDirectory},
    supervisor::{self, ChildAgentStatus, RunFrontEnd, SupervisorStatus},
};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct DirectoryReport {
    #[serde(serialize_with = "forebay_files::readable")]
    directory: PathBuf,
    /// True if no pool holds, or may hold, what belongs into the files below it, and no flash cache
    /// does.
    is_harmless: bool,
    pools: Vec<MarkedDirectory>,
    /// Programs that run with these pools, as far as their supervisors answer.
    running: Vec<RunningProgram>,
    /// The guards there: a database without Forebay refuses to start.
    guards: Vec<DirectoryGuard>,
    flash: Vec<GuardingCache>,
    /// Directories of which it cannot be told if a flash cache has newer pages, and the reason, in
    /// words.
    flash_unknown: Vec<String>,
}

/// A program under Forebay.
#[derive(Serialize)]
struct RunningProgram {
    #[serde(serialize_with = "forebay_files::readable")]
    pool: PathBuf,
    program: String,
    /// The front end that sees its calls, and the reason.
    front_end: RunFrontEnd,
    front_end_reason: String,
    child_agents: Vec<ChildAgentStatus>,
    #[serde(skip)]
    seen_by: String,
}

impl RunningProgram {
    /// Those with a pool that is in use.
    fn with(pools: &[MarkedDirectory]) -> Vec<Self> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let in_use = pools.iter().filter(|one| one.state == MarkState::InUse);
        let in_use: Vec<PathBuf> = in_use.map(|one| real(&one.pool)).collect();
        let running = run::existing_run_dir()
            .ok()
            .filter(|_| !in_use.is_empty())
            .and_then(|dir| supervisor::status_of(&dir, run::whose()).ok());
        let statuses = running.map(|found| found.statuses).unwrap_or_default();
        let with_pool = |status: &SupervisorStatus| in_use.contains(&real(&status.pool));
        let of = |status: SupervisorStatus| Self {
            seen_by: status.seen_by(),
            pool: status.pool,
            program: status.program,
            front_end: status.front_end,
            front_end_reason: status.front_end_reason,
            child_agents: status.child_agents,
        };
        statuses.into_iter().filter(with_pool).map(of).collect()
    }

    fn line(&self) -> String {
        format!(
            "{}, with the pool {}: its calls are seen by {}\n",
            self.program,
            self.pool.display(),
            self.seen_by
        )
    }
}

/// A flash cache whose guard lies in a directory.
#[derive(Serialize)]
struct GuardingCache {
    /// The data directory.
    #[serde(serialize_with = "forebay_files::readable")]
    directory: PathBuf,
    /// The flash file.
    #[serde(serialize_with = "forebay_files::readable")]
    flash: PathBuf,
    cache: String,
    /// False if the guard came with a copy of the directory.
    is_its_own: bool,
    /// Pages that are newer there than in the files, or why that is not known.
    dirty_pages: Option<u64>,
    unknown: Option<String>,
}

impl GuardingCache {
    fn of(directory: PathBuf, guard: forebay_innodb::GuardInspection) -> Self {
        let (dirty_pages, unknown) = match forebay_innodb::look(&guard.flash) {
            Ok(warm) => (Some(warm.dirty), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            directory,
            flash: guard.flash,
            cache: guard.cache.to_string(),
            is_its_own: guard.is_its_own,
            dirty_pages,
            unknown,
        }
    }

    fn line(&self) -> String {
        let holds = match (self.dirty_pages, &self.unknown) {
            (Some(pages), _) => {
                format!("has {pages} pages that are newer than in the files there")
            }
            (None, why) => format!(
                "may have newer pages than the files there, and cannot be looked at ({})",
                why.as_deref().unwrap_or("unknown reason")
            ),
        };
        behind_flash::advice(&self.directory, &self.flash, self.is_its_own, &holds) + "\n"
    }
}

/// Says it; an error if a database must not be started there without Forebay.
pub fn report(directory: &Path, json: bool) -> Result<(), Failure> {
    let pools =
        marks::standing(directory).map_err(Failure::io("looking at", directory.display()))?;
    let guards = guard::below(directory).map_err(Failure::io("looking at", directory.display()))?;
    let (mut flash, mut flash_unknown) = (Vec::new(), Vec::new());
    for (directory, guard) in behind_flash::below(directory)? {
        match guard {
            Ok(guard) => flash.push(GuardingCache::of(directory, guard)),
            Err(why) => flash_unknown.push(behind_flash::unknown(&directory, &why)),
        }
    }
    let report = DirectoryReport {
        directory: directory.to_owned(),
        is_harmless: pools.iter().all(MarkedDirectory::is_harmless)
            && guards.is_empty()
            && flash.is_empty()
            && flash_unknown.is_empty(),
        running: RunningProgram::with(&pools),
        pools,
        guards,
        flash,
        flash_unknown,
    };
    output::verdict(json, &report, report.is_harmless, human)
}

fn human(report: &DirectoryReport) -> String {
    let harmful = report.pools.iter().filter(|one| !one.is_harmless());
    let mut text: String = harmful.map(line).collect();
    text.extend(report.running.iter().map(RunningProgram::line));
    for guard in &report.guards {
        let mut said = report.pools.iter().filter(|one| !one.is_harmless());
        if !guard.is_its_own {
            text.push_str(&(copied_directory::advice(guard) + "\n"));
        } else if !said.any(|one| Some(&one.pool) == guard.pool.as_ref()) {
            text.push_str(&format!(
                "{0}: a run that did not end in the orderly way left a guard there, so a database without Forebay refuses to start. First: forebay recover --for {1}\n",
                guard.directory.display(),
                report.directory.display()
            ));
        }
    }
    text.extend(report.flash.iter().map(GuardingCache::line));
    let unknown = report.flash_unknown.iter();
    text.extend(unknown.map(|line| format!("{line}\n")));
    if text.is_empty() {
        text = format!(
            "no pool holds acknowledged writes, and no flash cache newer pages, for the files in {}\n",
            report.directory.display()
        );
    }
    text
}

fn line(standing: &MarkedDirectory) -> String {
    let (directory, pool) = (standing.directory.display(), standing.pool.display());
    match &standing.state {
        MarkState::Empty => String::new(),
        MarkState::InUse => {
            format!("{directory}: a program is running on it under Forebay, with the pool {pool}\n")
        }
        MarkState::Holds { records } => format!(
            "{directory}: the pool {pool} holds {records} writes of a run that was cut off, acknowledged ones for the files there among them. Start the program \
             under forebay run with this pool, or first: forebay recover --for {directory}\n"
        ),
        MarkState::Older { records } => format!(
            "{directory}: the pool {pool} holds {records} writes of a run. The pool's disk failed and the run went on without it, so the files there are newer. forebay \
             recover --pool {pool} drops the writes\n"
        ),
        MarkState::Unknown { why } => format!(
            "{directory}: a run that did not end in the orderly way used the pool {pool}, which may hold acknowledged writes for the files there and cannot be looked \
             at ({why}). Bring the pool back; if it is gone for good: forebay recover --for {directory} --lift\n"
        ),
    }
}
