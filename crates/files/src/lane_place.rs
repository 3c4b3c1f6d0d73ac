//! The place of a run's lane: the pool's path and identity, and the lane's owner.

use std::path::PathBuf;
use uuid::Uuid;

/// A run's lane.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LanePlace {
    /// The pool's path when the run began.
    pub(crate) path: PathBuf,
    pub(crate) pool: Uuid,
    pub(crate) owner: Uuid,
}
