//! The proof that nothing of a unit's files is left anywhere but in the files: `forebay disable`
//! makes it before and after it takes the drop-in away.
//!
//! Looked into are the pools of the drop-in and each pool that a directory's mark names, lane by
//! lane, the guards of runs, and the guards of flash caches. What cannot be looked into is left,
//! never passed over; only a pool that is not there is given up, if the user says so. With another
//! root a pool outside of it is not what its path says, and is left as well. What is proven is
//! proven of these pools and directories.

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
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The pools that were looked into, and the findings.
#[derive(Debug, Default, Serialize)]
pub struct DrainProof {
    /// The directories of the unit's files.
    pub directories: Vec<PathBuf>,
    pub pools: Vec<DrainedPool>,
    /// Flash caches that may have newer pages than the files.
    pub flash_caches: Vec<PathBuf>,
    /// Pools and caches that were given up since the user said that they are lost, in words: then
    /// nothing is proven.
    pub given_up: Vec<String>,
    /// Directories without extended attributes, where pools of earlier runs leave no mark.
    pub unmarked: Vec<PathBuf>,
    /// The obstacles, in words.
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

/// The scope of a look.
pub struct ProofScope<'a> {
    pub directories: &'a [PathBuf],
    /// The drop-in's pools.
    pub pools: &'a [PathBuf],
    /// The file name of the drop-in's program: a run of it with such a pool counts as the unit's,
    /// also if it has opened no log yet.
    pub program: Option<&'a str>,
    /// Of a pool that is not there, the user says that it is gone for good.
    pub is_lost: bool,
    /// Parts that were given up before, in words.
    pub given_up: &'a [String],
    pub root: &'a UnitRoot,
}

impl DrainProof {
    /// True if nothing is left.
    pub fn holds(&self) -> bool {
        self.left.is_empty()
    }

    /// True if, besides, nothing was given up.
    pub fn is_proven(&self) -> bool {
        self.holds() && self.given_up.is_empty()
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
        for directory in &self.unmarked {
            text.push_str(&format!(
                "{}: its file system has no extended attributes, so other pools of earlier runs cannot be found there\n",
                directory.display()
            ));
        }
        text.extend(self.left.iter().map(|left| format!("NOT PROVEN: {left}\n")));
        let given_up = self.given_up.iter();
        text.extend(given_up.map(|what| {
            format!("given up: {what}. ACKNOWLEDGED WRITES MAY BE MISSING in the files\n")
        }));
        if self.is_proven() {
            text.push_str(&self.proven());
        }
        text
    }

    fn proven(&self) -> String {
        let directories: Vec<String> = (self.directories.iter())
            .map(|it| it.display().to_string())
            .collect();
        let place = match directories.is_empty() {
            true => String::new(),
            false => format!(" of the files in {}", directories.join(", ")),
        };
        let pools = match self.pools.len() {
            0 => "no pool is named there, so none holds a record",
            1 => "this pool holds no record",
            _ => "none of these pools holds a record",
        };
        format!("proven: {pools}{place}, and no flash cache has newer pages\n")
    }
}

/// Looks into everything that may hold something for the files in the directories.
pub fn prove(scope: &ProofScope<'_>) -> DrainProof {
    let mut proof = DrainProof {
        directories: scope.directories.to_vec(),
        given_up: scope.given_up.to_vec(),
        ..DrainProof::default()
    };
    let mut pools: BTreeSet<PathBuf> = (scope.pools.iter())
        .map(|own| own.canonicalize().unwrap_or_else(|_| own.clone()))
        .collect();
    for directory in scope.directories {
        if let Err(failure) = look_below(directory, &mut pools, &mut proof) {
            proof.left.push(match directory.exists() {
                true => failure.to_string(),
                false => format!(
                    "{0} is not there, so the records of its files cannot be told. Mount it, or bring it back; if it was removed with its database, remove the line \"# \
                     data {0}\" in the drop-in. Then repeat this",
                    directory.display()
                ),
            });
        }
    }
    for path in pools {
        if scope.root.inside(&path).is_none() {
            proof.left.push(format!(
                "the pool {} is not below --root, so the pool of that name in that system cannot be found. Run this in that system",
                path.display()
            ));
            continue;
        }
        match marks::open_with(&PoolOptions::new(), &path) {
            Ok(pool) => look_into(&pool, &path, &mut proof),
            Err(unopened) if unopened.is_gone && scope.is_lost => {
                let gone = format!("the pool {}, which is gone", path.display());
                if !proof.given_up.contains(&gone) {
                    proof.given_up.push(gone);
                }
            }
            Err(unopened) => proof.left.push(format!(
                "the pool {} may hold records, and cannot be looked into: {}{}",
                path.display(),
                unopened.why,
                match (unopened.is_gone, scope.is_lost) {
                    (true, _) => ". Bring it back; if it is gone for good, --pool-is-lost",
                    (false, true) =>
                        ". It is there, so it is not given up: mend that, or move it away first",
                    (false, false) => "",
                }
            )),
        }
    }
    if let Some(program) = scope.program {
        match running(scope.pools, program) {
            Ok(running) => proof.left.extend(running),
            Err(failure) => proof.left.push(failure.to_string()),
        }
    }
    proof
}

/// Runs of the program with one of the pools, in words. One may have opened no log yet, and has no
/// lane then.
fn running(pools: &[PathBuf], program: &str) -> Result<Vec<String>, Failure> {
    let whose = match rustix::process::geteuid().is_root() {
        true => RunScope::All,
        false => RunScope::User,
    };
    let found = supervisor::status_of(&run::existing_run_dir()?, whose)?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_ours = |status: &&SupervisorStatus| {
        let pool = real(&status.pool);
        status.program == program && pools.iter().any(|own| real(own) == pool)
    };
    let ours = found.statuses.iter().filter(is_ours);
    let ours = ours.map(|status| {
        let pid = status.pid;
        format!(
            "{program} runs under forebay (process {pid}) with the unit's pool, which is used by it"
        )
    });
    let silent = (found.silent.iter()).filter(|pid| may_run(**pid, pools, program));
    let silent = silent.map(|pid| {
        format!(
            "the forebay {pid} does not answer, and may run {program} with the unit's pool: it is stopped (kill -CONT {pid}), or of another version (restart its program)"
        )
    });
    // The kernel cuts names off.
    let is_named = |name: &str| match name.len() {
        15 => program.starts_with(name),
        _ => program == name,
    };
    let orphaned = (found.orphaned.iter())
        .filter(|run| run.pool.is_none())
        .flat_map(|run| &run.processes)
        .filter(|(_, name)| is_named(name))
        .map(|(pid, name)| {
            format!(
                "{name} (process {pid}) runs without its forebay, and with a pool that is not known"
            )
        });
    Ok(ours.chain(silent).chain(orphaned).collect())
}

/// True if a supervisor that does not answer may run the program with one of the pools, by its
/// command line, which the drop-in wrote; if that cannot be read, too.
fn may_run(pid: u32, pools: &[PathBuf], program: &str) -> bool {
    match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(line) => line
            .split(|byte| *byte == 0)
            .map(|word| Path::new(OsStr::from_bytes(word)))
            .any(|word| {
                word.file_name() == Some(OsStr::new(program)) || pools.iter().any(|own| own == word)
            }),
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    }
}

/// Looks for marks and guards.
fn look_below(
    directory: &Path,
    pools: &mut BTreeSet<PathBuf>,
    proof: &mut DrainProof,
) -> Result<(), Failure> {
    let failed = || Failure::io("looking at", directory.display());
    let marked = marks::standing(directory).map_err(failed())?;
    pools.extend(marked.into_iter().map(|mark| mark.pool));
    if !marks::are_possible(directory) {
        proof.unmarked.push(directory.to_owned());
    }
    for guard in guard::below(directory).map_err(failed())? {
        pools.extend(guard.pool.clone());
        proof.left.push(format!(
            "{}: a guard of a run lies there: a database without Forebay refuses to start",
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
    Ok(())
}

fn look_into(pool: &Pool, path: &Path, proof: &mut DrainProof) {
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
            LaneCheck::InUse => match is_of_others(pool, lane.lane, &proof.directories) {
                Ok(true) => found.of_others += 1,
                Ok(false) => proof.left.push(format!(
                    "the pool {shown} is used by {}, which may have files there",
                    lane.label
                )),
                Err(failure) => proof.left.push(failure.to_string()),
            },
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
}

/// True if the run that has a lane is known to have no file in the directories.
fn is_of_others(pool: &Pool, lane: u32, directories: &[PathBuf]) -> Result<bool, Failure> {
    let may_absorb = marks::may_absorb(pool, lane, directories);
    let may_absorb = may_absorb.map_err(Failure::io("looking below", "the directories"))?;
    // Without a directory it is not known whose it is.
    Ok(!may_absorb && !directories.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn silent_forebay_is_the_units_by_its_command_line() {
        let mut child = Command::new("sh")
            .args([
                "-c",
                "read line",
                "--pool",
                "/p/unit.pool",
                "/usr/bin/server",
            ])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        // The kernel lets its parent go on before it shows the words.
        let words = format!("/proc/{pid}/cmdline");
        while !fs::read(&words).unwrap().starts_with(b"sh\0-c\0read") {
            std::thread::yield_now();
        }
        let (own, other) = (
            [PathBuf::from("/p/unit.pool")],
            [PathBuf::from("/p/other.pool")],
        );
        assert!(may_run(pid, &own, "mysqld") && may_run(pid, &other, "server"));
        assert!(!may_run(pid, &other, "mysqld"));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!may_run(pid, &own, "server"));
    }
}
