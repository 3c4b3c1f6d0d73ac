//! Claims a shared lane: a lane of the pool, the memory that its members share, and the first two
//! segments.

use super::{
    control::SharedControl,
    member::Member,
    owner::SharedLane,
    state::{NONE, SharedState, first},
};
use crate::{
    error::PoolError,
    format::record::Lsn,
    lane::pack,
    media::{DescriptorSharing, Mapped},
    pool::{ClaimOptions, ClaimedLane, Pool},
};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::SeqCst},
};
use uuid::Uuid;

impl Pool {
    /// Claims a lane for a new `owner` that several processes are to append to. It has two segments
    /// at least.
    ///
    /// The lane's lock is the pool's open file's. Members that were sent that one (not one that
    /// they opened) keep the lane from being recovered as long as they live, also after the owner
    /// dropped the lane. Only this [`Pool`] and its clones claim it again then.
    ///
    /// # Errors
    /// [`PoolErrorKind::Full`](crate::PoolErrorKind),
    /// [`PoolErrorKind::InUse`](crate::PoolErrorKind) if the owner has a lane already; I/O errors
    /// of the memory to share.
    ///
    /// ```
    /// use forebay_pool::{ClaimOptions, Uuid};
    /// use std::io::IoSlice;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = forebay_pool::PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(dir.path().join("pool"))?;
    /// let shared = pool.claim_shared(Uuid::new_v4(), &ClaimOptions::new())?;
    /// shared.member().append(1, &[IoSlice::new(b"from the owner")])?;
    /// // Another process, which was sent the descriptors and opened its pool with `PoolOptions::open_file`:
    /// let member = pool.join(shared.state_fd(), 1)?;
    /// member.append(1, &[IoSlice::new(b"from a member")])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn claim_shared(
        &self,
        owner: Uuid,
        options: &ClaimOptions,
    ) -> Result<SharedLane, PoolError> {
        self.core.check_writable()?;
        let shared = self.core.media.share(DescriptorSharing::IsSent);
        shared.map_err(|e| {
            PoolError::io(self.path(), "opening the pool once more, to share it", e)
        })?;
        let (state, state_fd) = Mapped::<SharedState>::new("forebay-lane")
            .map_err(|e| PoolError::io(self.path(), "making a shared lane", e.into()))?;
        let ClaimedLane {
            lane,
            lock,
            entry,
            segments,
        } = self.claim_new(owner, &at_least_two(options))?;
        let geometry = self.core.superblock.geometry;
        for &segment in &segments {
            self.prepare_segment(segment, true)?;
        }
        let epoch = entry.state.map_or(0, |state| state.epoch);
        state.begin(self.uuid(), owner, epoch, options.start);
        let lane = SharedLane {
            us: Member::new(Arc::clone(&self.core), Arc::new(state), 0),
            state_fd,
            lane,
            control: Mutex::new(SharedControl {
                entry,
                free: (0..segments.len()).rev().collect(),
                offsets: segments.iter().map(|s| geometry.segment(*s)).collect(),
                order: VecDeque::new(),
                vacant: Vec::new(),
                next: NONE,
                dead: Vec::new(),
                has_holes: false,
                settled: false,
                given_back: false,
            }),
            lock: Some(lock),
            pool: self.clone(),
        };
        lane.begin(options.start);
        Ok(lane)
    }
}

/// The open segment is released once it is complete and another one is open.
fn at_least_two(options: &ClaimOptions) -> ClaimOptions {
    options.clone().segments(options.segments.max(2))
}

impl SharedLane {
    /// Opens the first segment, and prepares the second.
    fn begin(&self, start: Lsn) {
        let state = self.state();
        let mut control = self.control.lock();
        if let Some(slot) = self.write_header(&mut control, start) {
            state.mark.0.store(first(start), SeqCst);
            state.tail.0.store(pack(slot, first(start)), SeqCst);
        }
        drop(control);
        self.prepare();
    }
}
