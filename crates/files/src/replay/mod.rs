//! Replay: bringing files up to date from lanes whose owner is gone. docs/files-replay.md; trust:
//! docs/durability.md, "Who trusts whom".
//!
//! 1. Take the lock of its recovery: another process's is waited for. Claim the lane; the pool
//!    recovers its records (`lane_contents`).
//! 2. Find each file by its identity (`find`). Root does all of this for another user's pool in a
//!    process that is this user (`rights`).
//! 3. Compare it with what the lane says, and decide (`decide`, `image`). If one cannot be
//!    recovered, refuse the lane and change nothing. If one says that the lane is void
//!    (`void_marks`), there is nothing to do.
//! 4. Mark the lane (`lane_label`, `attempt`), write and sync (`write`, `sync`).
//! 5. Give the lane back. Every step may be cut and repeated.

mod attempt;
mod compare;
mod decide;
mod file_marks;
mod find;
mod lane_contents;
mod options;
mod other_pools;
mod report;
mod rights;
mod sync;
#[cfg(test)]
mod tests;
mod write;

pub use crate::pending_records::last_record;
pub use options::RecoverOptions;
pub use report::{FileReport, LaneOutcome, LaneReport};

pub use crate::lane_label::is_files;

use crate::{
    FilesError, absorbed, boot, guard, identity,
    lane_label::{self, LabelMark},
    sys, void_marks,
};
use attempt::ReplayAttempt;
use decide::{FilePlan, RecoverySituation};
use file_marks::{FileMark, newer, said_in, untold};
use find::{FoundFile, LearnedPlaces, find};
use forebay_pool::{
    ClaimOptions, LaneStatus, Pool, RecoveryLock, failpoint, media::PoolPersistence, rights::user,
};
use lane_contents::{LoggedFile, read};
use rustix::fs::{Mode, OFlags};
use std::{
    collections::BTreeSet,
    os::fd::AsFd,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use uuid::Uuid;
use write::{FileOutcome, LaneWork};

/// Interval of looks if another process's recovery of a lane has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Recovers every lane of this tier whose owner is gone. What another process recovers is waited
/// for, however long that takes, and said. Until it has ended, a program that reads its files would
/// not find what was acknowledged, and what it writes could be written over.
///
/// # Errors
/// Of the pool; if others than its owner may write to it; if this process may not act for its
/// owner. What was not finished is found again by the next recovery.
pub fn recover(pool: &Pool, options: &RecoverOptions) -> Result<Vec<LaneReport>, FilesError> {
    sys::ignore_signals();
    // It has all files of a lane open at a time. A program that is started afterwards has its own
    // limit.
    let _many = sys::ManyOpenFiles::begin();
    let owner = rights::to(pool)?;
    if owner == user() {
        return recover_own(pool, options, &LearnedPlaces::default());
    }
    let reports = rights::recover_as(owner, pool, options)?;
    clean_up();
    Ok(reports)
}

/// Recovers a pool as this process's user; `learned` is where one with more rights saw its files.
fn recover_own(
    pool: &Pool,
    options: &RecoverOptions,
    learned: &LearnedPlaces,
) -> Result<Vec<LaneReport>, FilesError> {
    let mut reports = Vec::new();
    pool.leave_lost_legs()?;
    for lane in pool.lanes() {
        if is_files(&lane.label) {
            reports.extend(recover_lane(pool, &lane, options, learned)?);
        }
    }
    clean_up();
    Ok(reports)
}

/// Removes the tables of this user's runs that nothing waits for any more: every run looks into
/// each table when it absorbs a file.
fn clean_up() {
    if let Ok(boot) = boot::id() {
        absorbed::clean_up(Path::new(absorbed::SHARED_DIR), boot);
    }
}

/// Recovers a lane, unless its owner lives. None if it is there no longer.
fn recover_lane(
    pool: &Pool,
    lane: &LaneStatus,
    options: &RecoverOptions,
    learned: &LearnedPlaces,
) -> Result<Option<LaneReport>, FilesError> {
    let _alone = lock_recovery(pool, lane)?;
    // As it is now: no recovery has it, so if it is in use, it is its owner who uses it.
    let mut lanes = pool.lanes().into_iter();
    let Some(lane) = lanes.find(|now| now.owner == lane.owner) else {
        return Ok(None);
    };
    if lane.in_use {
        return Ok(Some(LaneReport {
            lane: lane.lane,
            owner: whose(&lane).to_owned(),
            outcome: LaneOutcome::InUse,
            files: Vec::new(),
        }));
    }
    recover_locked(pool, lane.owner, (options, learned), false).map(Some)
}

/// Takes the lock of a lane's recovery, as soon as no other process has it.
fn lock_recovery(pool: &Pool, lane: &LaneStatus) -> Result<RecoveryLock, FilesError> {
    let mut is_said = false;
    loop {
        if let Some(lock) = pool.lock_recovery(lane.lane)? {
            return Ok(lock);
        }
        if !is_said {
            sys::complain(&format!(
                "{}: another process is recovering lane {} of {}: waiting for it. If it does not go on, end it: this recovery then does the rest",
                pool.path().display(),
                lane.lane,
                whose(lane)
            ));
            is_said = true;
        }
        thread::sleep(LOOK);
    }
}

/// A lane's owner, in words.
fn whose(lane: &LaneStatus) -> &str {
    lane_label::parse(&lane.label).map_or("", |(_, whose)| whose)
}

/// Brings the lane of `owner`, whose run this process is of, to its files, while others of the run
/// may use them: nothing is written to a file that it does not hold already. The caller has the
/// lock of the lane's recovery.
///
/// # Errors
/// As [`recover`]; that the lane is in use, if a member lives.
pub(crate) fn take_over(pool: &Pool, owner: Uuid) -> Result<LaneReport, FilesError> {
    let _many = sys::ManyOpenFiles::begin();
    if rights::to(pool)? != user() {
        return Err(FilesError::Config(format!(
            "{} is another user's",
            pool.path().display()
        )));
    }
    let nothing = (&RecoverOptions::default(), &LearnedPlaces::default());
    recover_locked(pool, owner, nothing, true)
}

fn recover_locked(
    pool: &Pool,
    owner: Uuid,
    (options, learned): (&RecoverOptions, &LearnedPlaces),
    takes_over: bool,
) -> Result<LaneReport, FilesError> {
    let claim = ClaimOptions::new().salvage(options.discard);
    let label = pool.lanes().into_iter().find(|lane| lane.owner == owner);
    let label = label.map(|lane| lane.label).unwrap_or_default();
    let (mark, program) = lane_label::parse(&label).unwrap_or((LabelMark::None, ""));
    let (lane, recovered) = pool.claim(owner, &claim)?;
    let mut report = LaneReport {
        lane: lane.number(),
        owner: program.to_owned(),
        outcome: LaneOutcome::Empty,
        files: Vec::new(),
    };
    let mut files = read(pool, lane.number(), &recovered)?;
    if !files.is_empty() {
        let boot = boot::id()?;
        for file in &mut files {
            if file.boot != *boot.as_bytes() || is_mounted_again(file) {
                file.give_up_held();
            }
        }
        let same_boot = files.iter().all(|file| file.boot == *boot.as_bytes());
        let emulated =
            pool.durability() == PoolPersistence::ProcessCrash && !failpoint::pool_survived();
        let recovery = Recovery {
            situation: RecoverySituation {
                same_boot,
                pool_is_whole: same_boot || !emulated,
                on_disk: pool.needs_commit(),
                emulated_on: file_system(pool).filter(|_| emulated),
                pool: pool.path(),
                mark,
                takes_over,
                options,
            },
            owner,
            is_void: is_void(pool, owner),
            files: &files,
            learned,
            work: LaneWork::new(
                ReplayAttempt::new(&lane, &label, mark),
                options.force,
                takes_over,
            ),
        };
        (report.outcome, report.files) = recovery.run();
        if report.outcome == LaneOutcome::Refused {
            return Ok(report);
        }
    }
    failpoint!("files:replayed");
    let parents: BTreeSet<PathBuf> = (files.iter())
        .flat_map(|file| file.parents().into_iter().map(Path::to_owned))
        .collect();
    drop(files);
    drop(recovered);
    lane.seal();
    while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
        sealed.release();
    }
    // Refused only if something is left in it; then the next recovery finds it.
    if lane.remove() {
        guard::lift_beside(&parents, pool.uuid(), owner);
    }
    Ok(report)
}

/// True if the mount that a file was on is known not to be there any more: the page cache of its
/// time went with it.
fn is_mounted_again(file: &LoggedFile<'_>) -> bool {
    let Some(then) = file.mount else {
        return false;
    };
    let mount = |parent: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty()).ok()?;
        identity::mount(directory.as_fd())
    };
    let mounts: Vec<u64> = file.parents().into_iter().filter_map(mount).collect();
    !mounts.is_empty() && mounts.iter().all(|now| *now != then)
}

/// True if the file of a pool on legs says that nothing of the lane is needed: they could not be
/// told.
fn is_void(pool: &Pool, owner: Uuid) -> bool {
    let file = pool.file_elsewhere();
    file.is_some_and(|file| void_marks::is_marked(file, owner).unwrap_or(false))
}

/// The file system that the pool's file is on.
fn file_system(pool: &Pool) -> Option<u64> {
    identity::file_system(pool.descriptor()?).ok()
}

/// The recovery of one lane's files.
struct Recovery<'a> {
    /// The lane's.
    owner: Uuid,
    /// The pool's file says that nothing of the lane is needed.
    is_void: bool,
    situation: RecoverySituation<'a>,
    files: &'a [LoggedFile<'a>],
    learned: &'a LearnedPlaces,
    work: LaneWork<'a>,
}

impl Recovery<'_> {
    fn run(mut self) -> (LaneOutcome, Vec<FileReport>) {
        let discard = self.situation.options.discard;
        let files = self.files;
        let mut reports: Vec<FileReport> = files.iter().map(FileReport::of).collect();
        if let Some(why) = self.denied() {
            reports
                .iter_mut()
                .for_each(|report| report.refused = Some(why.clone()));
            let outcome = match discard {
                true => LaneOutcome::Discarded,
                false => LaneOutcome::Refused,
            };
            return (outcome, reports);
        }
        let found: Vec<FoundFile> = (0..files.len()).map(|at| self.find(at)).collect();
        let said: Vec<_> = (found.iter())
            .map(|found| said_in(found, self.owner, &self.situation))
            .collect();
        // All of them were synced before the first one was marked.
        if self.is_void || said.iter().any(|said| matches!(said, Ok(FileMark::Void))) {
            for report in &mut reports {
                report.note = Some(newer(&report.path));
            }
            return (LaneOutcome::Newer, reports);
        }
        let plans: Vec<FilePlan> = (files.iter().zip(found).zip(said))
            .map(|((file, found), said)| match said {
                Ok(said) => self.plan(file, found, said == FileMark::Failed),
                Err(errno) => FilePlan::Refuse(untold(file.path(), errno)),
            })
            .collect();
        for (report, plan) in reports.iter_mut().zip(&plans) {
            match plan {
                FilePlan::Refuse(why) => report.refused = Some(why.clone()),
                FilePlan::Nothing(note) => report.note.clone_from(note),
                FilePlan::Keep(_, note) => {
                    report.is_kept = true;
                    report.note = Some(note.clone());
                }
                FilePlan::SyncAll(_, note) => {
                    report.is_missing = true;
                    report.note = Some(note.clone());
                }
                _ => {}
            }
        }
        let is_refused = |reports: &[FileReport]| reports.iter().any(|r| r.refused.is_some());
        if is_refused(&reports) && !discard {
            return (LaneOutcome::Refused, reports);
        }
        let outcome = self.carry_out(plans, &mut reports);
        let is_given_up = discard && outcome != LaneOutcome::Refused && is_refused(&reports);
        match is_given_up {
            true => (LaneOutcome::Discarded, reports),
            false => (outcome, reports),
        }
    }

    /// Does what is planned. What fails then stays in the pool, also if what is refused is to be
    /// given up: that the user could know of.
    fn carry_out(&mut self, plans: Vec<FilePlan>, reports: &mut [FileReport]) -> LaneOutcome {
        let (files, discard) = (self.files, self.situation.options.discard);
        if !self.situation.takes_over
            && let Err((at, why)) = self.work.begin(files, &plans)
        {
            return self.stop(at, why, reports);
        }
        let mut outcome = LaneOutcome::Synced;
        for (at, (file, plan)) in files.iter().zip(plans).enumerate() {
            match self.work.carry_out(file, plan) {
                FileOutcome::Synced => {}
                FileOutcome::Written => outcome = LaneOutcome::Replayed,
                FileOutcome::Refused(why) if discard => reports[at].refused = Some(why),
                FileOutcome::Refused(why) | FileOutcome::Stopped(why) => {
                    return self.stop(at, why, reports);
                }
            }
        }
        outcome
    }

    /// The lane is refused because of one file, after others may have been changed.
    fn stop(&mut self, at: usize, mut why: String, reports: &mut [FileReport]) -> LaneOutcome {
        if let Err((error, is_needed)) = self.work.end()
            && is_needed
        {
            why = format!("{why}. The pool cannot be told so: {error}");
            if let FoundFile::Here(seen) = self.find(at) {
                // If that is not taken either, there is nothing left to say it by.
                let open = identity::reopen(seen.as_fd(), OFlags::RDONLY);
                let _ = open.and_then(|file| void_marks::mark_failed(file.as_fd(), self.owner));
            }
        }
        reports[at].refused = Some(why);
        LaneOutcome::Refused
    }

    fn find(&self, at: usize) -> FoundFile {
        find(&self.files[at], self.learned)
    }

    /// The plan for a file, of which a sync `failed` that the lane does not know of.
    fn plan(&self, file: &LoggedFile<'_>, found: FoundFile, failed: bool) -> FilePlan {
        let mark = match failed {
            true => self.situation.mark.and_failed(),
            false => self.situation.mark,
        };
        let situation = RecoverySituation {
            mark,
            ..self.situation
        };
        if let Some(plan) = other_pools::decide(&situation, file, &found) {
            return plan;
        }
        let decided = situation.decide(file, found);
        decided
            .unwrap_or_else(|e| FilePlan::Refuse(format!("{e}. Remedy that, then recover again")))
    }

    /// The reason that nothing of the lane is believed, if so.
    fn denied(&self) -> Option<String> {
        let is_denied = self.situation.mark == LabelMark::Denied && !self.situation.options.force;
        is_denied.then(|| {
            "the lane names files that its process had not registered: no client of this version writes that, so nothing of it is believed. Find the users who could write \
             to the pool; `forebay recover --discard` gives the lane up, `forebay recover --force` believes it"
                .to_owned()
        })
    }
}
