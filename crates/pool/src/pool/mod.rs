//! The pool: creating, opening, and sharing it out in lanes.
//!
//! A [`Pool`] is an open pool and nothing more: all that it knows lies in the [`Core`], which its
//! lanes keep open, and on the medium. So it is cheap to clone, and any number of processes may
//! have the same one open. What becomes of it is in the modules:
//!
//! * `create`: making one in a file, on a device, or on any medium;
//! * `device`: what a block device holds, and whether it may be given up;
//! * `open`: what is read before a pool is believed, and what is repaired then;
//! * `claim`: how an owner gets its lane, from the pool lock to the first append of its session;
//! * `lanes`: the table of lanes as the pool looks at it;
//! * `segments`: the map of segments, and segments changing hands;
//! * `copy_lane`: a lane's log for who reads beside its owner.
//!
//! Format: docs/pool-format.md. The lock order is the one of [`core`](crate::core).

mod claim;
mod copy_lane;
mod create;
mod device;
mod lanes;
mod open;
mod options;
mod segments;

pub use claim::ClaimOptions;
pub(crate) use claim::ClaimedLane;
pub use copy_lane::LaneCopy;
pub use options::PoolOptions;

use crate::{
    core::Core,
    error::{PoolError, PoolErrorKind},
    format::layout::PoolGeometry,
    media::{Media, PoolAccess, PoolPersistence},
};
use std::{os::fd::BorrowedFd, path::Path, sync::Arc};
use uuid::Uuid;

/// An open pool. Cheap to clone; lanes keep it open.
#[derive(Clone)]
pub struct Pool {
    pub(crate) core: Arc<Core>,
    damage: Vec<String>,
}

impl Pool {
    /// The same pool, each access to its medium by way of the layer that `layer` makes: for
    /// measurements.
    #[doc(hidden)]
    #[must_use]
    pub fn on_layer(self, layer: impl FnOnce(Arc<dyn Media>) -> Arc<dyn Media>) -> Self {
        Self {
            core: Arc::new(Core {
                path: self.core.path.clone(),
                media: layer(Arc::clone(&self.core.media)),
                superblock: self.core.superblock,
                process: self.core.process,
                is_named: self.core.is_named,
                access: self.core.access,
            }),
            damage: self.damage,
        }
    }

    /// The pool's identity.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.core.superblock.uuid
    }

    /// Its sizes.
    #[must_use]
    pub fn geometry(&self) -> PoolGeometry {
        self.core.superblock.geometry
    }

    /// Time at which it was made, seconds since 1970.
    #[must_use]
    pub fn created_s(&self) -> u64 {
        self.core.superblock.created_s
    }

    /// True if it was made as an emulated pool.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.core.superblock.emulated
    }

    /// The pool's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.core.path
    }

    /// True if it was opened for reading alone ([`PoolOptions::open_read_only`]).
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.core.access == PoolAccess::Read
    }

    /// The losses that the pool's contents survive.
    #[must_use]
    pub fn durability(&self) -> PoolPersistence {
        self.core.media.durability()
    }

    /// The open file that holds this process's locks on the pool; a forked child closes its copy
    /// (see [`Media::descriptor`](crate::media::Media::descriptor)).
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.core.media.descriptor()
    }

    /// The memory in which the processes that have a pool on a disk find bytes that are not
    /// committed: [`open_shared`](PoolOptions::open_shared) takes it.
    #[must_use]
    pub fn shared_memory(&self) -> Option<BorrowedFd<'_>> {
        self.core.media.shared_memory()
    }

    /// True if its bytes do not lie in its file, but on legs.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.core.media.is_elsewhere()
    }

    /// Its [open file](Self::descriptor), if its bytes are [elsewhere](Self::is_elsewhere).
    #[must_use]
    pub fn file_elsewhere(&self) -> Option<BorrowedFd<'_>> {
        self.core.file_elsewhere()
    }

    /// The legs that were given up when it was opened ([`PoolOptions::lost_legs`]).
    #[must_use]
    pub fn lost_legs(&self) -> Vec<String> {
        self.core.media.lost_legs()
    }

    /// Has the legs that were given up be none of the pool's any more, also where no lane is
    /// claimed: the next opening asks for them no longer.
    ///
    /// # Errors
    /// Another process writes the pool; its legs cannot be written to.
    #[doc(hidden)]
    pub fn leave_lost_legs(&self) -> Result<(), PoolError> {
        if self.lost_legs().is_empty() {
            return Ok(());
        }
        (self.core.media.begin_writing())
            .map_err(|e| PoolError::io(&self.core.path, "giving up its legs", e))
    }

    /// In words, if fewer copies are kept of committed records than there are to be.
    #[must_use]
    pub fn degradation(&self) -> Option<String> {
        self.core.media.degradation()
    }

    /// Bytes of its file that are not allocated, where it lies on a disk, in a file.
    #[must_use]
    pub fn holes(&self) -> Option<u64> {
        let descriptor = self.descriptor()?;
        if !self.needs_commit() || self.is_elsewhere() {
            return None;
        }
        let found = rustix::fs::fstat(descriptor).ok()?;
        let is_file = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
        let allocated = found.st_blocks.unsigned_abs() * 512;
        is_file.then(|| self.geometry().pool_bytes.saturating_sub(allocated))
    }

    /// For an owner that commits nothing.
    ///
    /// # Errors
    /// [`PoolErrorKind::NeedsCommit`] if an append alone is not durable.
    pub fn check_appends_last(&self) -> Result<(), PoolError> {
        match self.needs_commit() {
            true => Err(self.core.fail(PoolErrorKind::NeedsCommit)),
            false => Ok(()),
        }
    }

    /// True if a record is durable only once it was committed
    /// ([`Lane::commit`](crate::Lane::commit), [`Member::commit`](crate::Member::commit)).
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        self.core.media.needs_commit()
    }

    /// The medium in words.
    #[must_use]
    pub fn describe(&self) -> String {
        self.core.media.describe()
    }

    /// Superblock copies that were found damaged at open and rewritten from the other one.
    #[must_use]
    pub fn repaired(&self) -> &[String] {
        &self.damage
    }
}
