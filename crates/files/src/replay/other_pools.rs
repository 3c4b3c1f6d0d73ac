//! Records of a file that wait in another pool than the one that is recovered, and the choice of
//! the newer ones. docs/files-membership.md, "Two runs".
//!
//! A run leaves a file plain of which records wait in another pool, so there are none as a rule;
//! but the other pool may not have been to be seen then.
//!
//! | the other pool's records of the file | then |
//! |---|---|
//! | are older | refused: that pool comes first, or its bytes would be written over these |
//! | are all newer, of the same boot and mount | the file held all of this lane's when it was synced for the other run: nothing |
//! | are newer, or mixed with these | refused: whether the other run saw these is not known |

use super::{
    decide::{FilePlan, RecoverySituation},
    find::FoundFile,
    lane_contents::LoggedFile,
    rights,
};
use crate::{
    directories::open_directory,
    marks,
    pending_records::{self, LaneFinding, PendingRecords},
    sys,
};
use forebay_pool::Pool;
use rustix::fs::Stat;
use std::path::Path;

/// The plan for the file because of other pools; none if they have nothing of it. One that cannot
/// be looked at, or whose run lives, is not heeded: a run does not absorb what such a one may have.
pub(super) fn decide(
    situation: &RecoverySituation<'_>,
    file: &LoggedFile<'_>,
    found: &FoundFile,
) -> Option<FilePlan> {
    let FoundFile::Here(seen) = found else {
        return None;
    };
    if situation.takes_over || file.changes.is_empty() {
        return None;
    }
    let stat = rustix::fs::fstat(seen).ok()?;
    let (pool, theirs) = find(situation.pool, file, &stat)?;
    // A pool that others than its owner may write to says what they like.
    let is_trusted = rights::to(&pool).is_ok();
    let (path, pool, own) = (
        file.path().display(),
        pool.path().display(),
        situation.pool.display(),
    );
    if theirs.last <= file.last() {
        return Some(FilePlan::Refuse(format!(
            "the pool {pool} has older records of {path}: first forebay recover --pool {pool} (or, with --discard, give up its writes), then repeat this"
        )));
    }
    let saw_all = is_trusted
        && theirs.first > file.last()
        && theirs.boot == file.boot
        && theirs.mount.is_some()
        && theirs.mount == file.mount
        && !situation.mark.failed();
    match () {
        () if saw_all => Some(FilePlan::Nothing(Some(format!(
            "{path} held all that this pool has of it when another run synced it, and that run's pool {pool} has newer records: nothing is written"
        )))),
        () if situation.options.force => None,
        () => Some(FilePlan::Refuse(format!(
            "the pool {pool} has newer records of {path}, of a run that may not have seen these. `forebay recover --pool {own} --discard` gives these up, \
             `forebay recover --pool {own} --force` writes them; recover {pool} after that"
        ))),
    }
}

/// The first pool that a directory of the file names and that has records of it, if its owner may
/// write to the file.
fn find(own: &Path, file: &LoggedFile<'_>, stat: &Stat) -> Option<(Pool, PendingRecords)> {
    let parents = file.parents().into_iter();
    let held = parents.filter(|parent| open_directory(parent).is_ok());
    let marked = held.flat_map(|parent| marks::others(parent, own));
    marked.into_iter().find_map(|path| {
        let pool = pending_records::open(&path).ok()?;
        let owner = rustix::fs::fstat(pool.descriptor()?).ok()?.st_uid;
        if !sys::may_write(owner, stat) {
            return None;
        }
        let mut lanes = pending_records::lanes(&pool);
        let found = lanes.find_map(|lane| {
            match pending_records::in_lane(&pool, lane.lane, file.identity) {
                Ok(LaneFinding::Records(waiting)) => Some(waiting),
                _ => None,
            }
        })?;
        drop(lanes);
        Some((pool, found))
    })
}
