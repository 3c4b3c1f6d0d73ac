//! Another size for a cache that no server has, with its pages kept. docs/flash-tier.md, "Another
//! size"; the protocol is the cache's own.
//!
//! Before, what a crash may have torn in the files is made whole, as by a flush: which pages these
//! are is known by their positions, and all get others.

use super::{
    cache_files::CacheFiles,
    create::{create_in, make_status},
    error::SetupError,
    flush::attach_guarded,
    guarded_directory::with_cache,
    location::CacheLocation,
    occupancy::CacheOccupancy,
};
use crate::{complain::complain, home::Homes, resize_note::note_of};
use forebay_flash::{Cache, FlushProgress};
use forebay_pool::{LaneCheck, PoolErrorKind, rights::user};
use serde::{Deserialize, Serialize};
use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The outcome of a resize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeResult {
    /// Pages written to the files, because their slots went.
    pub pages: u64,
    /// Its contents now.
    pub now: CacheOccupancy,
    /// False if it was given up: it has the size that it had.
    pub complete: bool,
}

/// Gives the cache on this flash file or device `bytes` bytes. `data` are directories to look for
/// files in, beside those where they were. It is done as the user whose cache it is, in a child
/// process if that is another one.
///
/// # Errors
/// See [`SetupError`]; nothing that the cache has is lost, and the resize may be repeated.
pub fn resize(
    flash: &Path,
    bytes: u64,
    data: &[PathBuf],
    progress: impl FnMut(FlushProgress) -> ControlFlow<()>,
) -> Result<ResizeResult, SetupError> {
    let place = CacheLocation::of(flash)?;
    let held = CacheFiles::of(&place)?;
    if !held.is_on_device() && held.as_owner(|| held.is_blank())? {
        return make_anew(&held, bytes);
    }
    let (_, resized) = resize_held(&held, bytes, data, progress)?;
    Ok(resized)
}

/// The same of a cache without a doubt. What was in it before is given back as well.
///
/// # Errors
/// See [`resize`].
pub fn resize_found(
    flash: &Path,
    bytes: u64,
    data: &[PathBuf],
    progress: impl FnMut(FlushProgress) -> ControlFlow<()>,
) -> Result<(CacheOccupancy, ResizeResult), SetupError> {
    let place = CacheLocation::of(flash)?;
    resize_held(&CacheFiles::of(&place)?, bytes, data, progress)
}

fn resize_held(
    held: &CacheFiles<'_>,
    bytes: u64,
    data: &[PathBuf],
    progress: impl FnMut(FlushProgress) -> ControlFlow<()>,
) -> Result<(CacheOccupancy, ResizeResult), SetupError> {
    let place = held.place();
    let (before, done, kept_note) = held.as_owner(|| {
        let cache = held.open(&Arc::new(Homes::new()))?;
        let before = CacheOccupancy::of(&cache);
        let done = match cache.is_of_size(bytes)? {
            true => Some(resize_open(&cache, bytes, |_| ControlFlow::Continue(()))?),
            false => None,
        };
        // What a server that is gone has begun: as long as no other one can begin anything.
        let kept_note = held.forget_resize().err().map(|error| error.to_string());
        Ok((before, done, kept_note))
    })?;
    let left = match kept_note {
        Some(why) => forget_as_root(held, why).err(),
        None => None,
    };
    let done = match (done, left) {
        (Some(done), left) => {
            // What another user has left is not in the way of a cache that is as it should be.
            if let Some(left) = left {
                complain(&left.to_string());
            }
            done
        }
        (None, Some(left)) => return Err(left),
        (None, None) => with_cache(held, data, |cache, homes| {
            let _tablespace = attach_guarded(place, cache, homes, (data, &[]))?;
            resize_open(cache, bytes, progress)
        })?,
    };
    let (pages, now, complete) = done;
    Ok((
        before,
        ResizeResult {
            pages,
            now,
            complete,
        },
    ))
}

/// Removes a note that the cache's owner may not remove, in a directory that is root's alone: the
/// owner's servers make none there.
fn forget_as_root(held: &CacheFiles<'_>, why: String) -> Result<(), SetupError> {
    let left = |source| SetupError::ResizeLeft {
        note: note_of(held.place().flash()),
        source: Box::new(source),
    };
    match user() == 0 && held.owner != 0 && held.dir.is_roots() {
        true => held.forget_resize().map_err(left),
        false => Err(left(SetupError::Acting(why))),
    }
}

/// Pages that were written to the files, what is in the cache now, and whether it has the size.
type ResizeDone = (u64, CacheOccupancy, bool);

fn resize_open(
    cache: &Cache,
    bytes: u64,
    progress: impl FnMut(FlushProgress) -> ControlFlow<()>,
) -> Result<ResizeDone, SetupError> {
    let resized = cache.resize(bytes, progress)?;
    Ok((resized.pages, CacheOccupancy::of(cache), resized.complete))
}

/// True if the metadata beside blank headers says that a server has used the cache: then these were
/// written over, and pages may be in it. Making a cache claims its lane once, and appends nothing;
/// ending it gives the lane back.
fn was_used(held: &CacheFiles<'_>) -> Result<bool, SetupError> {
    let pool = match held.pool() {
        // It was not made to the end, or is something else.
        Err(SetupError::Pool(e))
            if matches!(
                e.kind,
                PoolErrorKind::Empty | PoolErrorKind::NotAPool { .. }
            ) =>
        {
            return Ok(!held.is_lane_blank()?);
        }
        pool => pool?,
    };
    let is_new = |lane: u32| matches!(pool.check_lane(lane), LaneCheck::Whole { records: 0, .. });
    let mut lanes = pool.lanes().into_iter();
    Ok(lanes.any(|lane| lane.damage.is_some() || lane.epoch > 1 || !is_new(lane.lane)))
}

/// Makes the remains of a cache that was ended a new one, in the same files.
fn make_anew(held: &CacheFiles<'_>, bytes: u64) -> Result<ResizeResult, SetupError> {
    let _alone = held.lock()?;
    let now = held.as_owner(|| {
        // Another command may have done it meanwhile.
        if !held.is_blank()? {
            return Err(SetupError::InUse {
                flash: held.place().flash().to_owned(),
            });
        }
        if was_used(held)? {
            return Err(held.place().unmade());
        }
        create_in(held, bytes)
    })?;
    make_status(held);
    Ok(ResizeResult {
        now,
        complete: true,
        ..ResizeResult::default()
    })
}

#[cfg(test)]
mod tests;
