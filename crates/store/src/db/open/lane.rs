//! The pool's lane at an opening: the records that the last session left in one, and the claim of a
//! lane. docs/store-format.md, "Opening", 2.
//!
//! Acknowledged writes may be in the pool that the manifest names. So exactly that pool must have
//! been given, with the store's lane in it as the last session left it; without it nothing is
//! opened, unless `salvage` gives them up. A pool that has a lane of a store whose manifest names
//! none is looked into all the same. What a session that the manifest does not know of left there
//! is found, and a lane that is older than the manifest is no part of the store.

use crate::{
    error::StoreError,
    manifest::{ManifestState, PoolRef, SESSIONS_ABOVE},
    options::{Durability, StoreOptions},
    salvage::GivenUp,
};
use forebay_pool::{ClaimOptions, Lane, LaneCheck, Lsn, Pool, Recovered};
use std::{path::Path, time::Duration};

/// A lane that an earlier session left something in, and that.
pub(super) type LeftLane = (Lane, Recovered);

/// The lane that the last session left something in.
pub(super) fn claim_left(
    dir: &Path,
    state: &ManifestState,
    pool: Option<&Pool>,
    options: &StoreOptions,
    given_up: &GivenUp,
) -> Result<Option<LeftLane>, StoreError> {
    let pool = match (&state.pool, pool) {
        (Some(left), pool) => match (the_one_left(dir, left, pool, options, given_up)?, pool) {
            (Some(pool), _) => pool,
            (None, Some(other)) => return claim_unnamed(dir, state, other, options, given_up),
            (None, None) => return Ok(None),
        },
        // A pool that has records of this store all the same is ahead of its manifest, which is an
        // earlier copy. Also a first opening that was cut may have taken a lane there.
        (None, Some(pool)) => return claim_unnamed(dir, state, pool, options, given_up),
        (None, None) => return Ok(None),
    };
    let older = OlderPool {
        dir,
        gives_up: "what was written since and is not in a value-log file",
        options,
        given_up,
    };
    let path = pool.path().display();
    let last = pool.last_session(state.uuid)?;
    refuse_copys(dir, state, pool, last)?;
    match last {
        // A close or an opening that was cut, which noted first that the files have everything.
        None if state.log_end.is_some() => return Ok(None),
        None => {
            older.refuse(format!(
                "the pool {path} has nothing of this store, and by MANIFEST session {} left its last writes there: the pool is older",
                state.epoch
            ))?;
            return Ok(None);
        }
        Some(last) if last < state.epoch => {
            // With everything in the files, one that an opening had just made when it was cut will
            // do.
            if state.log_end.is_none() || has_records(pool, state) {
                older.refuse(format!(
                    "the pool {path} has what session {last} left in it, and MANIFEST is of session {}: the pool is older",
                    state.epoch
                ))?;
            }
        }
        Some(_) => {}
    }
    claim(dir, state, pool, options).map(Some)
}

/// Refuses a pool in which a checkpoint or backup of this store has its lane: it looks like one
/// that is ahead of the manifest. It is that copy's, so salvage does not give it up either.
fn refuse_copys(
    dir: &Path,
    state: &ManifestState,
    pool: &Pool,
    last: Option<u32>,
) -> Result<(), StoreError> {
    match last {
        Some(last) if last.saturating_sub(state.epoch) >= SESSIONS_ABOVE / 2 => {
            Err(StoreError::PoolOfCopy {
                dir: dir.to_owned(),
                pool_path: pool.path().to_owned(),
                found: format!("session {last}, and MANIFEST is of session {}", state.epoch),
            })
        }
        _ => Ok(()),
    }
}

/// True if the store's lane in the pool has any record, as far as that can be told without claiming
/// it. A lane that was just made, by an opening that was cut then, has none, and no number of its
/// own yet.
fn has_records(pool: &Pool, state: &ManifestState) -> bool {
    let mut ours = (pool.lanes().into_iter()).filter(|lane| lane.owner == state.uuid);
    ours.any(|lane| match pool.check_lane(lane.lane) {
        LaneCheck::Whole { records, .. } => records > 0,
        // Who claims it is told.
        LaneCheck::InUse => false,
        LaneCheck::Damaged(_) => true,
    })
}

/// A pool that is older than the manifest.
struct OlderPool<'a> {
    dir: &'a Path,
    gives_up: &'static str,
    options: &'a StoreOptions,
    given_up: &'a GivenUp,
}

impl OlderPool<'_> {
    /// An error that says what was `found`, or with salvage a note of it.
    fn refuse(&self, found: String) -> Result<(), StoreError> {
        if !self.options.salvage {
            return Err(StoreError::NotOneMoment {
                dir: self.dir.to_owned(),
                found,
                gives_up: self.gives_up.to_owned(),
            });
        }
        self.given_up.say(format!("{}: {found}", self.gives_up));
        Ok(())
    }
}

/// The given pool, if it is the one that the manifest names: `left`. None if salvage gives up what
/// is in that.
fn the_one_left<'a>(
    dir: &Path,
    left: &PoolRef,
    pool: Option<&'a Pool>,
    options: &StoreOptions,
    given_up: &GivenUp,
) -> Result<Option<&'a Pool>, StoreError> {
    if let Some(pool) = pool.filter(|pool| pool.uuid() == left.uuid) {
        return Ok(Some(pool));
    }
    if options.salvage {
        given_up.say(format!(
            "what was in the pool {} (uuid {}) and in no value-log file",
            left.path, left.uuid
        ));
        return Ok(None);
    }
    let found = pool.map_or_else(
        || "no pool was given".to_owned(),
        |given| {
            let (path, uuid) = (given.path().display(), given.uuid());
            format!("the pool {path} (uuid {uuid}) was given")
        },
    );
    Err(StoreError::DataInPool {
        dir: dir.to_owned(),
        pool_path: left.path.clone(),
        pool_uuid: left.uuid,
        found,
    })
}

/// The lane in a pool that the manifest does not name, if it has records and is of a session that
/// the manifest does not know of.
fn claim_unnamed(
    dir: &Path,
    state: &ManifestState,
    pool: &Pool,
    options: &StoreOptions,
    given_up: &GivenUp,
) -> Result<Option<LeftLane>, StoreError> {
    let Some(last) = pool.last_session(state.uuid)? else {
        return Ok(None);
    };
    refuse_copys(dir, state, pool, Some(last))?;
    // The session that the manifest knows of has given its lane back, or has never had one.
    // That of the store which this one is a checkpoint of may be empty for the moment, and is not
    // ours to give back.
    let is_originals = last > 0 && state.epoch.saturating_sub(last) >= SESSIONS_ABOVE / 2;
    let is_older = last <= state.epoch && (is_originals || has_records(pool, state));
    if is_older {
        let older = OlderPool {
            dir,
            gives_up: "what is in that lane, which is in the value-log files or was given up before",
            options,
            given_up,
        };
        older.refuse(format!(
            "the pool {} has a lane with what session {last} left in it, and by MANIFEST, which is of session {}, nothing is in that pool any more: the pool is older",
            pool.path().display(),
            state.epoch
        ))?;
    }
    let (lane, recovered) = claim(dir, state, pool, options)?;
    if !is_older && recovered.records().next().is_some() {
        return Ok(Some((lane, recovered)));
    }
    // Without records: taken by an opening that was cut before it was noted.
    give_up(pool.path(), (lane, recovered))?;
    Ok(None)
}

/// Gives the lane back to the pool, whatever is in it.
pub(super) fn give_up(path: &Path, (lane, recovered): LeftLane) -> Result<(), StoreError> {
    drop(recovered);
    while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
        sealed.release();
    }
    match lane.remove() {
        true => Ok(()),
        false => Err(StoreError::damaged(path, "its lane could not be given up")),
    }
}

fn claim(
    dir: &Path,
    state: &ManifestState,
    pool: &Pool,
    options: &StoreOptions,
) -> Result<LeftLane, StoreError> {
    Ok(pool.claim(state.uuid, &claim_options(dir, options, state.epoch, 0))?)
}

/// The session that claims gets a higher number than `epoch`.
pub(super) fn claim_options(
    dir: &Path,
    options: &StoreOptions,
    epoch: u32,
    start: Lsn,
) -> ClaimOptions {
    ClaimOptions::new()
        .segments(match options.durability {
            Durability::Buffered(buffers) => buffers,
            Durability::Fsync | Durability::NoSync => 1,
        })
        .label(format!(
            "store {}",
            dir.canonicalize()
                .unwrap_or_else(|_| dir.to_owned())
                .display()
        ))
        .start(start)
        .epoch_above(epoch)
        .salvage(options.salvage)
}
