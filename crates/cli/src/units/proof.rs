//! The proof that nothing of a unit's files is left anywhere but in the files: what `forebay
//! disable` looks into before and after it takes the drop-in away.
//!
//! Looked into are the pool of the drop-in and each pool that a directory's mark names, lane by
//! lane, the guards of runs, and the guards of flash caches. What cannot be looked into is left,
//! never passed over. With another root a pool outside of it is not what its path says, and is left
//! as well.

use super::search::UnitRoot;
use crate::{failure::Failure, recover::behind_flash, run};
use forebay_files::{
    guard, marks, replay,
    supervisor::{self, RunScope, SupervisorStatus},
};
use forebay_pool::{LaneCheck, Pool, PoolOptions};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// What was looked into, and what was found.
#[derive(Debug, Default, Serialize)]
pub struct DrainProof {
    /// The directories of the unit's files.
    pub directories: Vec<PathBuf>,
    pub pools: Vec<DrainedPool>,
    /// Flash caches that may have newer pages than the files.
    pub flash_caches: Vec<PathBuf>,
    /// What stands in the way, in words.
    pub left: Vec<String>,
}

/// A pool that was looked into.
#[derive(Debug, Serialize)]
pub struct DrainedPool {
    #[serde(serialize_with = "forebay_files::readable")]
    pub pool: PathBuf,
    /// Lanes of runs that were walked.
    pub lanes: usize,
    /// Records found in them.
    pub records: u64,
    /// Lanes in use by other databases, none of whose files are in the directories.
    pub of_others: usize,
}

impl DrainProof {
    /// True if nothing is left.
    pub fn holds(&self) -> bool {
        self.left.is_empty()
    }

    /// In words.
    pub fn human(&self) -> String {
        let mut text = String::new();
        for pool in &self.pools {
            let others = match pool.of_others {
                0 => String::new(),
                n => format!(" ({n} more in use by other databases, without files there)"),
            };
            text.push_str(&format!(
                "looked into the pool {}: {} logs, {} records{others}\n",
                pool.pool.display(),
                pool.lanes,
                pool.records
            ));
        }
        let directories: Vec<String> = self
            .directories
            .iter()
            .map(|it| it.display().to_string())
            .collect();
        let directories = directories.join(", ");
        match self.holds() {
            true => text.push_str(&format!("proven: no pool holds a record of the files in {directories}, and no flash cache has newer pages\n")),
            false => text.extend(self.left.iter().map(|left| format!("NOT PROVEN: {left}\n"))),
        }
        text
    }
}

/// Looks into everything that may hold something for the files in `directories`; `own` is the
/// drop-in's pool, of which `own_is_lost` says that it is gone for good. A run of the drop-in's
/// `program` counts as the unit's: it may not have opened a log yet.
///
/// # Errors
/// A directory cannot be read: then nothing is known.
pub fn prove(
    directories: &[PathBuf],
    own: Option<&Path>,
    program: Option<&str>,
    own_is_lost: bool,
    root: &UnitRoot,
) -> Result<DrainProof, Failure> {
    let mut proof = DrainProof {
        directories: directories.to_vec(),
        ..DrainProof::default()
    };
    let mut pools: BTreeSet<PathBuf> = BTreeSet::new();
    pools.extend(
        own.filter(|_| !own_is_lost)
            .map(|own| own.canonicalize().unwrap_or_else(|_| own.to_owned())),
    );
    for directory in directories {
        let failed = || Failure::io("looking at", directory.display());
        let marked = marks::standing(directory).map_err(failed())?;
        pools.extend(marked.into_iter().map(|mark| mark.pool));
        for guard in guard::below(directory).map_err(failed())? {
            pools.extend(guard.pool.clone());
            proof.left.push(format!(
                "{}: a guard of a run lies there, which a database stumbles over",
                guard.directory.display()
            ));
        }
        for (guarded, guard) in behind_flash::below(directory)? {
            proof.left.push(match guard {
                Ok(guard) => {
                    proof.flash_caches.push(guard.flash.clone());
                    behind_flash::advice(
                        &guarded,
                        &guard.flash,
                        guard.is_its_own,
                        "may have newer pages than the files there",
                    )
                }
                Err(why) => behind_flash::unknown(&guarded, &why),
            });
        }
    }
    for path in pools {
        if root.inside(&path).is_none() {
            proof.left.push(format!(
                "the pool {} is not below --root, so what that system calls so cannot be told. Run this in that system",
                path.display()
            ));
            continue;
        }
        match marks::open_with(&PoolOptions::new(), &path) {
            Ok(pool) => look_into(&pool, &path, &mut proof)?,
            Err(unopened) => proof.left.push(format!(
                "the pool {} may hold records, and cannot be looked into: {}",
                path.display(),
                unopened.why
            )),
        }
    }
    if let (Some(own), Some(program)) = (own, program) {
        proof.left.extend(running(own, program)?);
    }
    Ok(proof)
}

/// Runs of the program with the pool, in words. One may have opened no log yet, and has no lane
/// then.
fn running(own: &Path, program: &str) -> Result<Vec<String>, Failure> {
    let whose = match rustix::process::geteuid().is_root() {
        true => RunScope::All,
        false => RunScope::User,
    };
    let found = supervisor::status_of(&run::existing_run_dir()?, whose)?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_ours =
        |status: &&SupervisorStatus| status.program == program && real(&status.pool) == real(own);
    let ours = found.statuses.iter().filter(is_ours);
    let ours = ours.map(|status| {
        let pid = status.pid;
        format!(
            "{program} runs under forebay (process {pid}) with the unit's pool, which is used by it"
        )
    });
    Ok(ours.collect())
}

fn look_into(pool: &Pool, path: &Path, proof: &mut DrainProof) -> Result<(), Failure> {
    let mut found = DrainedPool {
        pool: path.to_owned(),
        lanes: 0,
        records: 0,
        of_others: 0,
    };
    let shown = path.display();
    for lane in pool
        .lanes()
        .into_iter()
        .filter(|lane| replay::is_files(&lane.label))
    {
        match pool.check_lane(lane.lane) {
            LaneCheck::Whole { records, .. } => {
                found.lanes += 1;
                found.records += records;
                if records > 0 {
                    proof.left.push(format!(
                        "the pool {shown} holds {records} records of {}",
                        lane.label
                    ));
                }
            }
            LaneCheck::InUse => {
                let is_ours = marks::may_absorb(pool, lane.lane, &proof.directories);
                match is_ours.map_err(Failure::io("looking below", "the directories"))? {
                    true => proof.left.push(format!(
                        "the pool {shown} is used by {}, which may have files there",
                        lane.label
                    )),
                    false => found.of_others += 1,
                }
            }
            LaneCheck::Damaged(error) => proof.left.push(format!(
                "the pool {shown} has a damaged log of {}: {error}",
                lane.label
            )),
        }
    }
    if let Err(damage) = pool.segments_free() {
        proof
            .left
            .push(format!("the pool {shown} is damaged: {damage}"));
    }
    proof.pools.push(found);
    Ok(())
}
