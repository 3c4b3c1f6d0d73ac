//! `forebay pool remove`.

use super::PoolArguments;
use crate::{failure::Failure, output, units};
use clap::Args;
use forebay_pool::{LaneCheck, LaneStatus, Pool, PoolErrorKind};
use rustix::{
    fs::{CWD, RenameFlags},
    io::Errno,
};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Remove a pool that holds nothing
#[derive(Args)]
#[command(
    long_about = "Removes a pool's file. Refused while a program uses it, while it holds records of a run or of a store, while a unit is enabled with it, and if it is \
    damaged, since its records cannot be counted then. \
                  A device is left as it is: forebay pool create --force makes another pool of it.",
    after_long_help = "Examples:\n  \
        forebay recover --pool /mnt/pmem/forebay.pool    first: its records come to their files\n  \
        forebay pool remove /mnt/pmem/forebay.pool\n\n\
        Exit status: 0 it is gone; 1 it is not; 2 the command line is wrong."
)]
pub struct RemovePool {
    #[command(flatten)]
    pool: PoolArguments,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct RemovedPool {
    #[serde(serialize_with = "forebay_files::readable")]
    removed: PathBuf,
}

impl RemovePool {
    pub fn run(self) -> Result<(), Failure> {
        let path = &self.pool.path;
        let found =
            fs::symlink_metadata(path).map_err(Failure::io("looking at", path.display()))?;
        if !found.is_file() {
            return Err(Failure::Failed(format!(
                "{} is no file, so it is not removed. A device becomes another pool by forebay pool create --force, and blank by wipefs -a and dd",
                path.display()
            )));
        }
        if let Some(drop_in) = units::naming(path) {
            return Err(Failure::Failed(format!(
                "{} is the pool of a unit, by {}. First: forebay disable, or that unit does not start any more",
                path.display(),
                drop_in.display()
            )));
        }
        self.check(path)?;
        // Out of the way: no run opens it from here on. One that did meanwhile is found, or finds
        // that the file is gone.
        let aside = aside(path);
        move_to(path, &aside)?;
        if let Err(failure) = self.remove(&aside) {
            return Err(match move_to(&aside, path) {
                Ok(()) => failure,
                Err(unmoved) => Failure::Failed(format!(
                    "{failure}. AND THE POOL IS {} NOW ({unmoved}): move it back",
                    aside.display()
                )),
            });
        }
        let report = RemovedPool {
            removed: self.pool.path,
        };
        output::report(self.json, &report, |report| {
            format!("removed {}\n", report.removed.display())
        })
    }

    /// Removes it, if it is not used and holds nothing: under the lock that who claims a lane
    /// takes.
    fn remove(&self, at: &Path) -> Result<(), Failure> {
        let (pool, before) = self.check(at)?;
        let hold = pool.lock()?;
        if hold.lanes() != before {
            return Err(Failure::Failed(format!(
                "{0} was used meanwhile. Look at it again: forebay pool status {0}",
                self.pool.path.display()
            )));
        }
        fs::remove_file(at).map_err(Failure::io("removing", at.display()))
    }

    /// Refuses a pool that is used, or that holds something; gives its lanes as they were before
    /// they were looked into.
    fn check(&self, at: &Path) -> Result<(Pool, Vec<LaneStatus>), Failure> {
        let shown = self.pool.path.display();
        let pool = self.pool.open_at(at).map_err(|error| {
            let is_file_of_another_kind = matches!(error.kind, PoolErrorKind::Empty);
            let remedy = match is_file_of_another_kind {
                true => "",
                false => " If it is a pool, it cannot be read. `rm` discards its records",
            };
            Failure::Failed(format!("{error}.{remedy}"))
        })?;
        if let Some(damage) = pool.segments_free().err() {
            return Err(Failure::Failed(format!(
                "{shown} is damaged ({damage}), and its records cannot be counted: forebay recover --pool {shown}"
            )));
        }
        let lanes = pool.lanes();
        for lane in &lanes {
            let whose = &lane.label;
            match pool.check_lane(lane.lane) {
                LaneCheck::Whole { records: 0, .. } => {}
                LaneCheck::Whole { records, .. } => {
                    return Err(Failure::Failed(format!(
                        "{shown} holds {records} records of {whose}. First: forebay recover --pool {shown} (or open the store once more with it)"
                    )));
                }
                LaneCheck::InUse => {
                    return Err(Failure::Failed(format!(
                        "{shown} is used by {whose}. End that first; forebay pool status {shown} says more"
                    )));
                }
                LaneCheck::Damaged(error) => {
                    return Err(Failure::Failed(format!(
                        "{shown} has a damaged log of {whose} ({error}), and its records cannot be counted: forebay recover --pool {shown}"
                    )));
                }
            }
        }
        Ok((pool, lanes))
    }
}

/// A name beside it.
fn aside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".forebay-removed-");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Renames it, over nothing.
fn move_to(from: &Path, to: &Path) -> Result<(), Failure> {
    let moved = match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL) => {
            return fs::rename(from, to).map_err(Failure::io("renaming", from.display()));
        }
        moved => moved,
    };
    moved.map_err(|errno| Failure::io("renaming", from.display())(errno.into()))
}
