//! A lane of a pool that is only appended to: what is in it is never read.

use crate::{MeasureError, threads::beside};
use forebay_pool::Lane;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

/// Runs `work` beside a drain that releases whatever is sealed.
pub fn with_drain<T>(lane: &Lane, work: impl FnOnce() -> T) -> T {
    let drain = |done: &AtomicBool| {
        while !done.load(Relaxed) {
            if let Some(sealed) = lane.take_sealed(Duration::from_millis(20)) {
                sealed.release();
            }
        }
    };
    beside(drain, work).1
}

/// Empties the lane.
///
/// # Errors
/// Those of the lane.
pub fn drain_all(lane: &Lane) -> Result<(), MeasureError> {
    let end = lane.seal();
    while let Some(sealed) = lane.take_sealed(Duration::ZERO) {
        sealed.release();
    }
    lane.wait_drained(end)?;
    Ok(())
}
