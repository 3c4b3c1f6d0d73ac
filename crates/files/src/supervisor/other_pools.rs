//! Records of a file that wait in another pool than the run's: such a file stays plain, because a
//! recovery would not know which pool has the newer bytes. docs/files-membership.md, "Two runs".
//!
//! Which pools to look into is said by the tables of dead runs (`elsewhere`), as long as the
//! machine is not started again, and by the marks of the file's directory ([`marks`]). What the
//! program writes to such a file plainly is written after a [silence], so that a recovery of the
//! other pool sees that the file was changed later.

use super::SupervisorState;
use crate::{
    absorbed::TableView,
    lane_place::LanePlace,
    marks,
    pending_records::{self, LaneFinding, PendingRecords},
    record::silence,
    sys, void_marks,
};
use forebay_pool::media::volatile;
use rustix::fs::Stat;
use std::{os::fd::OwnedFd, path::Path, thread, time::Duration};

/// A file that is to be absorbed.
#[derive(Clone, Copy)]
pub(super) struct WantedFile<'a> {
    pub(super) file: &'a OwnedFd,
    pub(super) identity: &'a [u8],
    pub(super) stat: &'a Stat,
}

/// The records that a dead run left of a file.
pub(super) enum DeadRunRecords {
    /// Nothing.
    Nothing,
    /// Its pool was made anew, or moved and another one is in its place: its records can be told
    /// from later ones after a silence.
    Replaced,
    /// Records, for this reason in words.
    Something(String),
}

/// The records that the lane of a dead run, which its table names, has of the file. When this
/// returns there was a silence, unless it is nothing.
pub(super) fn left_by(
    shared: &SupervisorState,
    (path, table): (&Path, &TableView),
    wanted: WantedFile<'_>,
) -> DeadRunRecords {
    let Some(place) = table.lane.place() else {
        shared.tables.be_silent(path);
        return DeadRunRecords::Something("a pool whose path is too long to be known".to_owned());
    };
    let left = look_at(&place, wanted.identity);
    match &left {
        Ok((LaneFinding::Nothing, _)) => DeadRunRecords::Nothing,
        Ok((LaneFinding::Records(waiting), on_disk)) => {
            be_silent_since(waiting, *on_disk);
            DeadRunRecords::Something(advice(&place.path))
        }
        Ok((LaneFinding::InUse, _)) => {
            // A process of it lets go at its next call; one that does nothing logs nothing.
            shared.tables.be_silent(path);
            DeadRunRecords::Something(advice(&place.path))
        }
        Err(UnseenLane::Replaced) => {
            shared.tables.be_silent(path);
            DeadRunRecords::Replaced
        }
        Err(UnseenLane::Why(why)) => {
            shared.tables.be_silent(path);
            DeadRunRecords::Something(unseen(&place.path, why))
        }
    }
}

/// The reason that a lane cannot be looked into.
enum UnseenLane {
    Replaced,
    Why(String),
}

/// The lane's records of the file; true if its pool lies on a disk.
fn look_at(place: &LanePlace, identity: &[u8]) -> Result<(LaneFinding, bool), UnseenLane> {
    let pool = pending_records::open(&place.path).map_err(UnseenLane::Why)?;
    if pool.uuid() != place.pool {
        return Err(UnseenLane::Replaced);
    }
    let found = match pending_records::lanes(&pool).find(|lane| lane.owner == place.owner) {
        None => LaneFinding::Nothing,
        Some(lane) => {
            pending_records::in_lane(&pool, lane.lane, identity).map_err(UnseenLane::Why)?
        }
    };
    Ok((found, pool.needs_commit()))
}

/// Looks into the pools that the directory of the file is marked with.
///
/// # Errors
/// In words, why the file has to stay plain. There was a silence then.
pub(super) fn check_marked(
    shared: &SupervisorState,
    directory: &Path,
    wanted: WantedFile<'_>,
) -> Result<(), String> {
    for path in marks::others(directory, shared.pool.path()) {
        // Nothing of a pool is written to a file that its owner may not write to.
        let owner = rustix::fs::stat(&path).map(|stat| stat.st_uid);
        if owner.is_ok_and(|owner| !sys::may_write(owner, wanted.stat)) || is_past(&path) {
            continue;
        }
        let refused = match look_into(shared, &path, wanted) {
            Ok(None) => continue,
            Ok(Some((waiting, on_disk))) => {
                be_silent_since(&waiting, on_disk);
                advice(&path)
            }
            Err(why) => {
                shared.tables.be_silent(&path);
                unseen(&path, &why)
            }
        };
        return Err(format!("records of it may wait in {refused}"));
    }
    Ok(())
}

/// Records of the file in a pool, and whether that lies on a disk.
fn look_into(
    shared: &SupervisorState,
    path: &Path,
    wanted: WantedFile<'_>,
) -> Result<Option<(PendingRecords, bool)>, String> {
    let pool = pending_records::open(path)?;
    if pool.uuid() == shared.pool.uuid() {
        return Ok(None);
    }
    for lane in pending_records::lanes(&pool) {
        // The pool's disk failed, and the file was synced after that.
        if void_marks::is_marked(wanted.file, lane.owner).unwrap_or(false) {
            continue;
        }
        match pending_records::in_lane(&pool, lane.lane, wanted.identity)? {
            LaneFinding::Nothing => {}
            LaneFinding::Records(waiting) => return Ok(Some((waiting, pool.needs_commit()))),
            // A run whose table is seen was asked by it.
            LaneFinding::InUse if shared.tables.has_owner(&shared.table.path, lane.owner) => {}
            LaneFinding::InUse => {
                // What it had open a moment ago it may have written to.
                thread::sleep(silence(true));
                return Err("a run that this process cannot see has it".to_owned());
            }
        }
    }
    Ok(None)
}

/// True if a pool was in memory that is another one since: the machine was started again, and it is
/// gone with what it had. In the boot in which it was there, a table says so.
fn is_past(pool: &Path) -> bool {
    let is_missing = matches!(pool.try_exists(), Ok(false));
    let directory = pool.parent().unwrap_or(Path::new("/"));
    let file_system = rustix::fs::statfs(directory);
    is_missing && file_system.is_ok_and(|found| volatile(&found).is_some())
}

/// Returns a silence after the last record, by the clock that it has its time from.
fn be_silent_since(waiting: &PendingRecords, on_disk: bool) {
    let now = Duration::from_nanos(sys::file_time_now());
    let passed = now.saturating_sub(waiting.last);
    let whole = silence(on_disk);
    thread::sleep(whole.saturating_sub(passed));
}

fn advice(pool: &Path) -> String {
    format!(
        "the pool {0}, of a run that was killed: it stays plain until forebay recover --pool {0} has brought them to it (after that, start the program again)",
        pool.display()
    )
}

fn unseen(pool: &Path, why: &str) -> String {
    format!(
        "the pool {}, which cannot be looked at: {why}. It stays plain until that pool is back and forebay recover has brought them to it; or, if it is gone \
         for good, until forebay recover --for DIRECTORY --lift (ACKNOWLEDGED WRITES ARE LOST then)",
        pool.display()
    )
}
