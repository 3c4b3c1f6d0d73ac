//! Pools of a contest: where they are, and how large.

use super::{Contender, Mode};
use crate::{
    MeasureError,
    scratch::{PoolSource, ScratchPool},
};
use forebay_measure::user::User;
use forebay_pool::SEGMENTS_MAX;
use std::path::PathBuf;

/// Segments of a pool on a disk: 128 MiB, as docs/operations.md recommends.
const ON_DISK: u64 = 16;

/// The pools of a contest.
#[derive(Clone, Debug)]
pub struct Pools {
    /// Where the mode `forebay` has its pool.
    pub source: PoolSource,
    /// Directories on disks that a pool is made in: a contender for each, beside `forebay`.
    pub disks: Vec<PathBuf>,
    /// Segments that a database gets; while the disk is behind it takes more.
    pub lane_segments: u16,
    /// Bytes of a segment of a pool that is made.
    pub segment_bytes: u64,
    /// Segments of a pool in memory that is made, at least; it has twice the database's anyway.
    pub segments: u64,
    /// Bytes of a pool in memory that is made: a contender for each size.
    pub sizes: Vec<u64>,
    /// Make the pools as slow as this memory, by the name of its profile.
    pub slowed: Option<&'static str>,
}

impl Pools {
    /// Pools from there, of the usual size.
    #[must_use]
    pub fn of(source: PoolSource) -> Self {
        Self {
            source,
            disks: Vec::new(),
            lane_segments: 2,
            segment_bytes: 8 << 20,
            segments: 0,
            sizes: Vec::new(),
            slowed: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), MeasureError> {
        let lane = u64::from(self.lane_segments) * self.segment_bytes;
        match self.sizes.iter().any(|bytes| *bytes < lane) {
            true => Err(MeasureError::Config(
                "a pool smaller than the segments of a lane holds none".to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// What takes turns: the modes, and under Forebay each size and each disk.
    #[must_use]
    pub fn contenders(&self, modes: impl IntoIterator<Item = Mode>) -> Vec<Contender> {
        let mut contenders = Vec::new();
        for mode in modes {
            let sizes: Vec<Option<u64>> = match (mode.is_ours(), self.sizes.as_slice()) {
                (true, sizes @ [_, ..]) => sizes.iter().copied().map(Some).collect(),
                _ => vec![None],
            };
            contenders.extend(sizes.into_iter().map(|pool_bytes| Contender {
                pool_bytes,
                ..mode.into()
            }));
            if mode.is_ours() {
                contenders.extend((0..self.disks.len()).map(|at| Contender {
                    disk: Some(at),
                    ..mode.into()
                }));
            }
        }
        contenders
    }

    /// Where a contender's pool comes from.
    #[must_use]
    pub fn source_of(&self, contender: &Contender) -> PoolSource {
        match contender.disk.and_then(|at| self.disks.get(at)) {
            Some(dir) => PoolSource::OnDisk(dir.clone()),
            None => self.source.clone(),
        }
    }

    /// A contender's pool, which is `user`'s if there is one. The user's own pool stays as it is.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn make(
        &self,
        contender: &Contender,
        user: Option<&User>,
    ) -> Result<Option<ScratchPool>, MeasureError> {
        if !contender.is_ours() {
            return Ok(None);
        }
        let source = self.source_of(contender);
        let segments = match contender.disk {
            Some(_) => ON_DISK,
            None => self.segments,
        };
        let segments = segments.max(u64::from(self.lane_segments) * 2);
        let bytes = contender
            .pool_bytes
            .unwrap_or(segments * self.segment_bytes);
        // So large that one lane may take all of it.
        let segment = self.segment_bytes.max(bytes / u64::from(SEGMENTS_MAX));
        let pool = ScratchPool::new(&source, bytes / segment, segment)?;
        if let (Some(user), false) = (user, matches!(source, PoolSource::At(_))) {
            user.give(pool.path().parent().unwrap_or(pool.path()))?;
        }
        Ok(Some(pool))
    }
}
