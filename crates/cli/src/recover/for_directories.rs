//! `forebay recover --for`: the pools that may hold something for the files of a directory, found
//! by its marks and guards. What may be in a flash cache is said.

use super::{REFUSED, behind_flash, copied_directory};
use crate::{failure::Failure, output, run};
use forebay_files::{
    guard::{self, DirectoryGuard},
    marks::{self, MarkedDirectory, UnopenedPool},
    replay::{self, LaneOutcome, LaneReport, RecoverOptions, last_record},
};
use forebay_pool::{Pool, PoolOptions};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

/// The outcome for these pools.
#[derive(Serialize)]
pub struct PoolsReport {
    /// True if nothing is left in a pool, or a flash cache, for the files there, and a database may
    /// be started without Forebay.
    pub done: bool,
    pools: Vec<RecoveredPool>,
    /// Guards and marks that were given up with --lift, in words.
    pub given_up: Vec<String>,
    /// The obstacles to that, in words.
    pub left: Vec<String>,
}

#[derive(Serialize)]
struct RecoveredPool {
    #[serde(serialize_with = "forebay_files::readable")]
    pool: PathBuf,
    lanes: Vec<LaneReport>,
}

/// The pools found in the directories.
struct FoundPools<'a> {
    directories: &'a [PathBuf],
    marks: Vec<MarkedDirectory>,
    guards: Vec<DirectoryGuard>,
    behind_flash: Vec<(PathBuf, io::Result<forebay_innodb::GuardInspection>)>,
}

impl<'a> FoundPools<'a> {
    fn in_all(directories: &'a [PathBuf]) -> Result<Self, Failure> {
        let mut found = Self {
            directories,
            marks: Vec::new(),
            guards: Vec::new(),
            behind_flash: Vec::new(),
        };
        for directory in directories {
            let failed = || Failure::io("looking at", directory.display());
            found
                .marks
                .extend(marks::standing(directory).map_err(failed())?);
            found
                .guards
                .extend(guard::below(directory).map_err(failed())?);
            found.behind_flash.extend(behind_flash::below(directory)?);
        }
        Ok(found)
    }

    fn pools(&self) -> BTreeSet<PathBuf> {
        let marked = self.marks.iter().map(|mark| mark.pool.clone());
        let guarding = self.guards.iter().filter_map(|guard| guard.pool.clone());
        marked.chain(guarding).collect()
    }

    fn marks_of(&self, pool: &Path) -> impl Iterator<Item = &Path> {
        let ours = self.marks.iter().filter(move |mark| mark.pool == pool);
        ours.map(|mark| &*mark.directory)
    }

    /// The guards that this pool's run laid in these very directories.
    fn guards_of(&self, pool: &Path) -> impl Iterator<Item = &DirectoryGuard> {
        let ours =
            move |guard: &&DirectoryGuard| guard.is_its_own && guard.pool.as_deref() == Some(pool);
        self.guards.iter().filter(ours)
    }
}

/// Recovers them, and reports.
pub fn recover(directories: &[PathBuf], lift: bool, json: bool) -> Result<(), Failure> {
    let report = bring_home(directories, lift)?;
    output::verdict(json, &report, report.done, human)
}

/// Recovers them; with `lift`, takes marks and guards away whose pool is gone, or that came with a
/// copy.
pub fn bring_home(directories: &[PathBuf], lift: bool) -> Result<PoolsReport, Failure> {
    let found = FoundPools::in_all(directories)?;
    let mut report = PoolsReport {
        done: false,
        pools: Vec::new(),
        given_up: Vec::new(),
        left: Vec::new(),
    };
    let opened = found.pools().into_iter().map(|path| {
        let pool = marks::open_with(&PoolOptions::new(), &path);
        (path, pool)
    });
    let mut pools: Vec<_> = opened.collect();
    // What is written last stays: if two have something of one file, that is to be the newer one's.
    pools.sort_by_cached_key(|(_, pool)| pool.as_ref().ok().and_then(last_record));
    for (path, pool) in pools {
        match pool {
            Ok(pool) => recover_pool(&pool, &path, &found, &mut report)?,
            Err(UnopenedPool { is_gone: true, .. }) if lift => {
                give_up(&path, &found)?;
                let gone = format!("the pool {}, which is gone", path.display());
                report.given_up.push(gone);
            }
            Err(unopened) => report.left.push(advice(&path, &unopened)),
        }
    }
    for guard in found.guards.iter().filter(|guard| !guard.is_its_own) {
        match lift {
            true => {
                lift_guard(guard)?;
                let copied = format!(
                    "the guard in {}, which came with a copy",
                    guard.directory.display()
                );
                report.given_up.push(copied);
            }
            false => report.left.push(copied_directory::advice(guard)),
        }
    }
    let behind_flash = found.behind_flash.iter().map(|(directory, guard)| {
        let holds = "may have newer pages than the files there";
        match guard {
            Ok(guard) => behind_flash::advice(directory, &guard.flash, guard.is_its_own, holds),
            Err(why) => behind_flash::unknown(directory, why),
        }
    });
    report.left.extend(behind_flash);
    report.done = report.left.is_empty();
    Ok(report)
}

/// The next step with a pool that was not opened.
fn advice(pool: &Path, unopened: &UnopenedPool) -> String {
    let remedy = match unopened.is_gone {
        true => "Bring it back; if it is gone for good, --lift",
        false => {
            "Mend that, and repeat this command; or, to give up the writes in the pool, move the pool away, and then --lift"
        }
    };
    format!(
        "the pool {} may hold acknowledged writes for the files there, and cannot be looked at: {}. {remedy}. ACKNOWLEDGED WRITES ARE LOST then",
        pool.display(),
        unopened.why
    )
}

/// Recovers a pool, then takes the marks and guards away that are needed no longer.
fn recover_pool(
    pool: &Pool,
    path: &Path,
    found: &FoundPools<'_>,
    report: &mut PoolsReport,
) -> Result<(), Failure> {
    let lanes = match replay::recover(pool, &RecoverOptions::default()) {
        Ok(lanes) => lanes,
        Err(error) => {
            report.left.push(error.to_string());
            return Ok(());
        }
    };
    let is_refused = lanes.iter().any(run::is_refused);
    report.left.extend(in_use(pool, &lanes, found)?);
    report.pools.push(RecoveredPool {
        pool: path.to_owned(),
        lanes,
    });
    if is_refused {
        report.left.push(format!(
            "{0}: {REFUSED} Or forebay recover --pool {0} --force to write to the files nevertheless; or --discard to give them up",
            path.display()
        ));
        return Ok(());
    }
    for directory in found.marks_of(path) {
        marks::clear(directory, path).map_err(Failure::io("changing", directory.display()))?;
    }
    for guard in found.guards_of(path) {
        match guard.is_needed(pool) {
            // Of a lane that was recovered it may be gone already.
            false => lift_guard(guard)?,
            true => report.left.push(format!(
                "{}: a program is running on it under Forebay, with the pool {}",
                guard.directory.display(),
                path.display()
            )),
        }
    }
    Ok(())
}

/// The runs that use the pool, and whose files may be there, in words. Other databases may share
/// it.
fn in_use(
    pool: &Pool,
    lanes: &[LaneReport],
    found: &FoundPools<'_>,
) -> Result<Vec<String>, Failure> {
    let mut left = Vec::new();
    let used = lanes
        .iter()
        .filter(|lane| lane.outcome == LaneOutcome::InUse);
    for lane in used {
        let is_there = marks::may_absorb(pool, lane.lane, found.directories);
        if is_there.map_err(Failure::io("looking below", "the directories"))? {
            left.push(format!(
                "the pool {} is used by {}, which may have files there: a program, or a process that it left, is running on them under Forebay. End it, and repeat this",
                pool.path().display(),
                lane.owner
            ));
        }
    }
    Ok(left)
}

fn give_up(pool: &Path, found: &FoundPools<'_>) -> Result<(), Failure> {
    for directory in found.marks_of(pool) {
        marks::give_up(directory, pool).map_err(Failure::io("changing", directory.display()))?;
    }
    found.guards_of(pool).try_for_each(lift_guard)
}

fn lift_guard(guard: &DirectoryGuard) -> Result<(), Failure> {
    match guard::lift(guard) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::io(
            "taking the guard away in",
            guard.directory.display(),
        )(error)),
        _ => Ok(()),
    }
}

fn human(report: &PoolsReport) -> String {
    let recovered = report.pools.iter().flat_map(|one| run::lanes(&one.lanes));
    let given_up = (report.given_up.iter())
        .map(|what| format!("given up: {what}. ACKNOWLEDGED WRITES MAY BE MISSING"));
    let mut text: String = recovered
        .chain(given_up)
        .chain(report.left.iter().cloned())
        .map(|line| line + "\n")
        .collect();
    if report.done {
        text.push_str("nothing is left in a pool for the files there\n");
    }
    text
}
