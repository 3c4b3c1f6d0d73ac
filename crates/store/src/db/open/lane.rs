//! The pool's lane at an opening: what the last session left in one, and how a lane is claimed. docs/store-format.md, "Opening", 2.
//!
//! Acknowledged writes may be in the pool that the manifest names, so exactly that pool must have been given; without it nothing is opened, unless `salvage`
//! gives them up. A pool that has a lane of a store whose manifest names none is looked into all the same.

use crate::{
    error::StoreError,
    given_up::GivenUp,
    manifest::{PoolRef, State},
    options::{StoreOptions, Variant},
};
use forebay_pool::{ClaimOptions, Lane, Lsn, Pool, Recovered};
use std::path::Path;

/// A lane that an earlier session left something in, and that.
pub(super) type LeftLane = (Lane, Recovered);

/// The lane that the last session left something in.
pub(super) fn claim_left(
    dir: &Path,
    state: &State,
    pool: Option<&Pool>,
    options: &StoreOptions,
    given_up: &GivenUp,
) -> Result<Option<LeftLane>, StoreError> {
    let pool = match (&state.pool, pool) {
        (Some(left), pool) => match the_one_left(dir, left, pool, options, given_up)? {
            Some(pool) => pool,
            None => return Ok(None),
        },
        // A pool that has records of this store all the same is ahead of its manifest, which is an earlier copy. Also a first opening
        // that was cut may have taken a lane there.
        (None, Some(pool)) => return claim_unnamed(dir, state, pool, options),
        (None, None) => return Ok(None),
    };
    let Some(last) = pool.last_session(state.uuid)? else {
        // A close that was cut between giving the lane back, drained, and saying so here.
        return Ok(None);
    };
    // Programs that noted no collected files could give a lane a lower number.
    if last < state.epoch && state.retired.is_some() {
        let found = format!(
            "the pool {} has what session {last} left in it, and MANIFEST is of session {}: the pool is older",
            pool.path().display(),
            state.epoch
        );
        let gives_up = "what was written since and is not in a value-log file".to_owned();
        if !options.salvage {
            return Err(StoreError::NotOneMoment {
                dir: dir.to_owned(),
                found,
                gives_up,
            });
        }
        given_up.say(format!("{gives_up}: {found}"));
    }
    claim(dir, state, pool, options).map(Some)
}

/// The given pool, if it is the one that the manifest names: `left`. None if salvage gives up what is in that.
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

/// The lane in a pool that the manifest does not name, if it has records.
fn claim_unnamed(
    dir: &Path,
    state: &State,
    pool: &Pool,
    options: &StoreOptions,
) -> Result<Option<LeftLane>, StoreError> {
    if !pool.has_lane(state.uuid)? {
        return Ok(None);
    }
    let (lane, recovered) = claim(dir, state, pool, options)?;
    if recovered.records().next().is_some() {
        return Ok(Some((lane, recovered)));
    }
    // Taken by an opening that was cut before it was noted.
    drop(recovered);
    match lane.remove() {
        true => Ok(None),
        false => Err(StoreError::damaged(
            pool.path(),
            "an empty lane has records",
        )),
    }
}

fn claim(
    dir: &Path,
    state: &State,
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
        .segments(match options.variant {
            Variant::Buffered(buffers) => buffers,
            Variant::Fsync | Variant::NoSync => 1,
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
