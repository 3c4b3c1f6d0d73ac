//! Replay: bringing files up to date from lanes whose owner is gone. docs/files-protocol.md, "Replay"; whom it trusts with what:
//! docs/durability.md, "Who trusts whom".
//!
//! 1. Claim the lane; the pool recovers its records (`logged`).
//! 2. Find each file by its identity, with the rights of the lane's owner (`find`, `rights`).
//! 3. Compare it with what the lane says, and decide (`decide`, `image`). If one cannot be recovered, refuse the lane and change nothing.
//! 4. Mark the lane (`label`), write and sync (`write`).
//! 5. Give the lane back. Every step may be cut and repeated.

mod decide;
mod find;
mod image;
mod label;
mod logged;
mod rights;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use image::final_parts;
pub(crate) use label::{Mark, is_files, label};
pub(crate) use write::write_at;

use crate::{FilesError, boot, sys};
use decide::{Plan, Situation};
use find::{ByHandle, Way, find};
use forebay_pool::{ClaimOptions, Pool, media::Durability};
use logged::{Logged, read};
use rights::Rights;
use serde::Serialize;
use std::{path::PathBuf, time::Duration};
use uuid::Uuid;
use write::{Done, Work};

/// How to recover.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoverOptions {
    /// Write also to files that were changed since, and pass over those that are missing.
    pub force: bool,
    /// Give up what cannot be replayed.
    pub discard: bool,
}

/// What became of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It held nothing.
    Empty,
    /// Its files held what it said: they were synced.
    Synced,
    /// Its records were written to its files.
    Replayed,
    /// What it holds is kept; see the files' reasons.
    Refused,
    /// What could not be brought to its files was given up, as asked for.
    Discarded,
    /// Its owner is alive.
    InUse,
}

/// What became of a file.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    /// The last path it is known by.
    #[serde(serialize_with = "crate::readable")]
    pub path: PathBuf,
    /// Records of it.
    pub records: u64,
    /// Bytes written in them.
    pub bytes: u64,
    /// Why it cannot be replayed, if it cannot, and what to do.
    pub refused: Option<String>,
    /// What else was done, or left undone, that is worth knowing.
    pub note: Option<String>,
}

/// What became of a lane, and of its files.
#[derive(Clone, Debug, Serialize)]
pub struct LaneReport {
    /// Number of the lane.
    pub lane: u32,
    /// Whose it was.
    pub owner: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Its files.
    pub files: Vec<FileReport>,
}

/// Recovers every lane of this tier whose owner is gone.
///
/// # Errors
/// Of the pool; if others than its owner may write to it; if this process may not act for its owner. What was not finished is found again by the
/// next recovery.
pub fn recover(pool: &Pool, options: &RecoverOptions) -> Result<Vec<LaneReport>, FilesError> {
    sys::ignore_lease_breaks();
    Rights::to(pool)?;
    let mut reports = Vec::new();
    for lane in pool.lanes() {
        let Some((_, whose)) = label::parse(&lane.label) else {
            continue;
        };
        reports.push(if lane.in_use {
            LaneReport {
                lane: lane.lane,
                owner: whose.to_owned(),
                outcome: Outcome::InUse,
                files: Vec::new(),
            }
        } else {
            recover_lane(pool, lane.owner, options)?
        });
    }
    Ok(reports)
}

/// Recovers the lane of `owner`, which must be free.
pub(crate) fn recover_lane(
    pool: &Pool,
    owner: Uuid,
    options: &RecoverOptions,
) -> Result<LaneReport, FilesError> {
    let rights = Rights::to(pool)?;
    let claim = ClaimOptions::new().salvage(options.discard);
    let label = pool.lanes().into_iter().find(|lane| lane.owner == owner);
    let label = label.map(|lane| lane.label).unwrap_or_default();
    let (mark, program) = label::parse(&label).unwrap_or((Mark::None, ""));
    let (lane, recovered) = pool.claim(owner, &claim)?;
    let mut report = LaneReport {
        lane: lane.number(),
        owner: program.to_owned(),
        outcome: Outcome::Empty,
        files: Vec::new(),
    };
    let files = read(pool, lane.number(), &recovered)?;
    if !files.is_empty() {
        let boot = boot::id()?;
        let same_boot = files.iter().all(|file| file.boot == *boot.as_bytes());
        let emulated = pool.durability() == Durability::ProcessCrash && !boot::pool_survived();
        let recovery = Recovery {
            situation: Situation {
                same_boot,
                pool_is_whole: same_boot || !emulated,
                on_disk: pool.needs_commit(),
                emulated_on: device(pool).filter(|_| emulated),
                pool: pool.path(),
                mark,
                options,
            },
            files: &files,
            // A thread with fewer rights cannot ask for the handles' files itself.
            ways: match rights {
                Rights::Own => None,
                Rights::Of(_) => Some(files.iter().map(|f| ByHandle::of(f).way()).collect()),
            },
            work: Work::new(&lane, &label, mark, options.force),
        };
        (report.outcome, report.files) = rights.exercise(|| recovery.run())?;
        if report.outcome == Outcome::Refused {
            return Ok(report);
        }
    }
    forebay_pool::failpoint!("files:replayed");
    drop(files);
    drop(recovered);
    lane.seal();
    while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
        sealed.release();
    }
    // Refused only if something is left in it; then the next recovery finds it.
    let _ = lane.remove();
    Ok(report)
}

/// The device that the pool's file is on.
fn device(pool: &Pool) -> Option<u64> {
    Some(rustix::fs::fstat(pool.descriptor()?).ok()?.st_dev)
}

/// The recovery of one lane's files, by a thread with its owner's rights.
struct Recovery<'a> {
    situation: Situation<'a>,
    files: &'a [Logged<'a>],
    ways: Option<Vec<Way>>,
    work: Work<'a>,
}

impl Recovery<'_> {
    fn run(mut self) -> (Outcome, Vec<FileReport>) {
        let discard = self.situation.options.discard;
        let files = self.files;
        let mut reports: Vec<FileReport> = files.iter().map(report).collect();
        if let Some(why) = self.denied() {
            reports
                .iter_mut()
                .for_each(|report| report.refused = Some(why.clone()));
            let outcome = match discard {
                true => Outcome::Discarded,
                false => Outcome::Refused,
            };
            return (outcome, reports);
        }
        let plans: Vec<Plan> = (0..files.len()).map(|at| self.plan(at)).collect();
        for (report, plan) in reports.iter_mut().zip(&plans) {
            match plan {
                Plan::Refuse(why) => report.refused = Some(why.clone()),
                Plan::Nothing(note) => report.note.clone_from(note),
                Plan::SyncAll(_, note) => report.note = Some(note.clone()),
                _ => {}
            }
        }
        let is_refused = |reports: &[FileReport]| reports.iter().any(|r| r.refused.is_some());
        if is_refused(&reports) && !discard {
            return (Outcome::Refused, reports);
        }
        let mut outcome = Outcome::Synced;
        for ((file, plan), report) in files.iter().zip(plans).zip(&mut reports) {
            match self.work.carry_out(file, plan) {
                Done::Synced => {}
                Done::Written => outcome = Outcome::Replayed,
                Done::Refused(why) => {
                    report.refused = Some(why);
                    if !discard {
                        outcome = Outcome::Refused;
                        break;
                    }
                }
            }
        }
        if discard && is_refused(&reports) {
            outcome = Outcome::Discarded;
        }
        (outcome, reports)
    }

    /// What is to become of a file.
    fn plan(&self, at: usize) -> Plan {
        let file = &self.files[at];
        let found = find(file, self.ways.as_ref().and_then(|ways| ways.get(at)));
        let decided = self.situation.decide(file, found);
        decided.unwrap_or_else(|e| Plan::Refuse(format!("{e}. Remedy that, then recover again")))
    }

    /// Why nothing of the lane is believed, if so.
    fn denied(&self) -> Option<String> {
        let is_denied = self.situation.mark == Mark::Denied && !self.situation.options.force;
        is_denied.then(|| {
            "the lane names files that its process had not registered: no client of this version writes that, so nothing of it is believed. Look into \
             who could write to the pool; `forebay recover --discard` gives the lane up, `forebay recover --force` believes it"
                .to_owned()
        })
    }
}

fn report(file: &Logged<'_>) -> FileReport {
    FileReport {
        path: file.path().to_owned(),
        records: file.changes.len() as u64,
        bytes: file.bytes(),
        refused: None,
        note: None,
    }
}
