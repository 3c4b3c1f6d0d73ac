//! The run's lane in the table: its owner, its pool, and its end without a supervisor.
//! docs/files-membership.md, "When a process dies".

use crate::lane_place::LanePlace;
use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::atomic::{
        AtomicU8, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use uuid::Uuid;

/// Bytes of a pool's path at most: a longer one is not said.
const PATH_MAX: usize = 4096;
/// Nothing that the lane has is needed, and nothing of it is written to any file.
const SETTLED: u32 = 0x5E77_1ED1;

/// See the module's head.
#[repr(C)]
pub(crate) struct LaneNote {
    /// [`SETTLED`], or not. The one field of the table that is not the supervisor's.
    became: AtomicU32,
    /// Of the path; 0 until there is a lane.
    path_bytes: AtomicU32,
    owner: [AtomicU64; 2],
    pool: [AtomicU64; 2],
    path: [AtomicU8; PATH_MAX],
}

impl LaneNote {
    /// Supervisor: the run has this lane.
    pub(super) fn set(&self, place: &LanePlace) {
        let path = place.path.as_os_str().as_bytes();
        let Some(bytes) = u32::try_from(path.len())
            .ok()
            .filter(|bytes| *bytes as usize <= PATH_MAX)
        else {
            return;
        };
        for (to, id) in [(&self.owner, place.owner), (&self.pool, place.pool)] {
            let (high, low) = id.as_u64_pair();
            to[0].store(high, Relaxed);
            to[1].store(low, Relaxed);
        }
        for (to, from) in self.path.iter().zip(path) {
            to.store(*from, Relaxed);
        }
        self.path_bytes.store(bytes, Release);
    }

    /// The lane, if the run has one.
    pub(crate) fn place(&self) -> Option<LanePlace> {
        let bytes = self.path_bytes.load(Acquire) as usize;
        let path: Vec<u8> = (self.path.get(..bytes)?.iter())
            .map(|byte| byte.load(Relaxed))
            .collect();
        let id = |id: &[AtomicU64; 2]| {
            let [high, low] = [&id[0], &id[1]].map(|half| half.load(Relaxed));
            Uuid::from_u64_pair(high, low)
        };
        let path = PathBuf::from(OsString::from_vec(path));
        Path::new(&path).is_absolute().then(|| LanePlace {
            path,
            pool: id(&self.pool),
            owner: id(&self.owner),
        })
    }

    /// True if nothing that the lane has is needed any more.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.became.load(Acquire) == SETTLED
    }

    /// Notes that.
    pub(crate) fn set_settled(&self) {
        self.became.store(SETTLED, Release);
    }
}
