//! Parts that an opening works with until there is a store: those on the disk and in the pool.
//! docs/store-format.md, "Opening", 3, 7 and 8.
//!
//! [`OpeningSession::find`] opens the parts, and [`OpeningSession::check`] refuses those that are
//! not of one moment ([`check`](crate::db::check)). Both leave everything as it is, but for what
//! salvage gives up. [`OpeningSession::note`] is the opening's last step, and the one that makes it
//! a session of the store: nothing is appended before.

use super::lane::{LeftLane, claim_left, give_up};
use crate::{
    db::check::StoreParts,
    disk::{Disk, HeldDirectory},
    error::StoreError,
    index::{Index, IndexOptions},
    log::{UnlistedFiles, ValueLog},
    manifest::{ManifestState, PoolRef, StoreManifest},
    options::{Durability, StoreOptions},
    range_tombstones::RANGES_IN_MANIFEST,
    salvage::GivenUp,
};
use forebay_pool::{Lsn, Pool, format::layout::LSN_MAX};
use parking_lot::Mutex;
use std::{path::Path, sync::Arc};

/// Name of the index's directory in the store's.
pub(super) const INDEX: &str = "index";

/// What is kept in reserve for what a lane holds, or for the next segment, and for the index's
/// tables and the manifests, at most.
const LANE_MAX: u64 = 64 << 20;
const TABLES_MAX: u64 = 8 << 20;
/// And of a disk one part in so many, and as much again for the lane.
const DISK_SHARE: u64 = 8;
/// A file is no larger than one part in so many of the disk, so that the reserve has room for its
/// copies, and for deletes beside.
const DISK_FILES: u64 = 16;

/// The parts that an opening works with until there is a store.
pub(super) struct OpeningSession<'a> {
    directory: &'a HeldDirectory,
    pub(super) dir: &'a Path,
    pub(super) disk: Arc<dyn Disk>,
    /// The manifest's state when it was read.
    pub(super) state: ManifestState,
    pub(super) log: Arc<ValueLog>,
    /// Value-log files that the manifest does not name.
    unnamed: Vec<UnlistedFiles>,
    pub(super) index: Arc<Index>,
    pub(super) pool: Option<&'a Pool>,
    pub(super) options: &'a StoreOptions,
    pub(super) given_up: GivenUp,
}

/// What the options allow for, too.
const FILE_BYTES_LEAST: u64 = 1 << 20;

impl<'a> OpeningSession<'a> {
    /// Claims the lane that the last session left something in, and opens the value log and the
    /// index.
    pub(super) fn find(
        disk: Arc<dyn Disk>,
        directory: &'a Arc<HeldDirectory>,
        manifest: StoreManifest,
        pool: Option<&'a Pool>,
        options: &'a StoreOptions,
    ) -> Result<(Self, Option<LeftLane>), StoreError> {
        let given_up = GivenUp::new(directory.path(), options.salvage);
        let lane = claim_left(directory.path(), manifest.state(), pool, options, &given_up)?;
        let is_new = manifest.state().epoch == 0;
        let mut session = Self::parts(disk, directory, manifest, options, given_up, is_new)?;
        session.pool = pool;
        Ok((session, lane))
    }

    /// Opens the value log and the index for reading alone, whoever has the lane.
    pub(super) fn beside(
        disk: Arc<dyn Disk>,
        directory: &'a Arc<HeldDirectory>,
        manifest: StoreManifest,
        options: &'a StoreOptions,
    ) -> Result<Self, StoreError> {
        let given_up = GivenUp::new(directory.path(), false);
        Self::parts(disk, directory, manifest, options, given_up, false)
    }

    fn parts(
        disk: Arc<dyn Disk>,
        directory: &'a Arc<HeldDirectory>,
        manifest: StoreManifest,
        options: &'a StoreOptions,
        given_up: GivenUp,
        makes_index: bool,
    ) -> Result<Self, StoreError> {
        let dir = directory.path();
        let state = manifest.state().clone();
        let manifest = Arc::new(Mutex::new(manifest));
        let disk_bytes = directory.file_system_bytes().unwrap_or(u64::MAX);
        let file_bytes_most = (disk_bytes / DISK_FILES).max(FILE_BYTES_LEAST);
        let (log, unnamed) = ValueLog::open(
            Arc::clone(&disk),
            dir,
            options.file_bytes.min(file_bytes_most),
            manifest,
            given_up.clone(),
        )?;
        let index = Index::open_below(
            directory,
            INDEX,
            IndexOptions {
                create: makes_index,
                cache_bytes: options.cache_bytes,
                prefix_bytes: options.prefix_bytes,
                ..IndexOptions::default()
            },
        )?;
        let watermark = index.watermark();
        if watermark > LSN_MAX {
            let what = format!("its watermark is log address {watermark}, which no log reaches");
            return Err(StoreError::damaged(&dir.join(INDEX), what));
        }
        index.keyspaces().load(&state.keyspaces);
        Ok(Self {
            directory,
            dir,
            disk,
            state,
            log: Arc::new(log),
            unnamed,
            index: Arc::new(index),
            pool: None,
            options,
            given_up,
        })
    }

    /// Log address below which the index says that it is complete.
    pub(super) fn watermark(&self) -> Lsn {
        self.index.watermark()
    }

    /// Refuses parts that are not of one moment, before anything is changed; with salvage, notes
    /// what they cost. The lane, unless its content is given up.
    pub(super) fn check(&self, lane: Option<LeftLane>) -> Result<Option<LeftLane>, StoreError> {
        let watermark = self.watermark();
        let parts = StoreParts {
            log: &self.log,
            unnamed: &self.unnamed,
            state: &self.state,
            watermark,
            lane: lane.as_ref().map(|(_, recovered)| recovered),
        };
        if !self.options.salvage {
            parts.refuse_contradictions(self.dir)?;
            return Ok(lane);
        }
        let found = parts.contradictions()?;
        for contradiction in &found {
            let (gives_up, found) = (&contradiction.gives_up, &contradiction.found);
            self.given_up.say(format!("{gives_up}: {found}"));
        }
        for file in &self.unnamed {
            if !file.is_dead(&self.state) {
                self.given_up.set_aside(&*self.disk, &file.path)?;
            }
        }
        match lane {
            // The files have more: what the lane has must not be written over it.
            Some(lane) if found.iter().any(|c| c.lane_is_stale) => {
                give_up(self.dir, lane).map(|()| None)
            }
            lane => Ok(lane),
        }
    }

    /// The same for who only reads, and has or has not a copy of the owner's lane.
    pub(super) fn check_beside(&self, has_lane: bool) -> Result<(), StoreError> {
        let parts = StoreParts {
            log: &self.log,
            unnamed: &self.unnamed,
            state: &self.state,
            watermark: self.watermark(),
            lane: None,
        };
        match has_lane {
            true => parts.refuse_contradictions_beside(self.dir),
            false => parts.refuse_contradictions(self.dir),
        }
    }

    /// Sizes the reserve of a full disk: also for the records that the last session `left` in a
    /// lane.
    pub(super) fn size_reserve(&self, left: Option<&LeftLane>) {
        let options = self.options;
        let segment = self.pool.map_or(0, |pool| pool.geometry().segment_bytes);
        let left = left.map_or(0, |(lane, _)| lane.segments() as u64 * segment);
        let lane = match options.durability {
            Durability::Buffered(_) if options.resident => 0,
            Durability::Buffered(segments) => left.max(u64::from(segments) * segment),
            Durability::Fsync | Durability::NoSync => left.max(options.segment_bytes),
        };
        let tables = TABLES_MAX + RANGES_IN_MANIFEST;
        let tables = tables.min(options.memtable_bytes as u64);
        let disk = self.directory.file_system_bytes();
        let most = disk.map_or(u64::MAX / 2, |bytes| bytes / DISK_SHARE);
        let lane = LANE_MAX.min(lane).min(most);
        (self.log.reserve()).set_beside(lane + tables, most + lane);
    }

    /// Keeps room for a full disk: a resident log has no files that need any.
    fn keep_reserve(&self) {
        match self.log.files().is_empty() {
            false => self.log.keep_reserve(),
            true if self.options.resident => self.log.reserve().keep(0),
            // With the first file.
            true => {}
        }
    }

    /// Removes value-log files that are dead.
    pub(super) fn unlink_dead(&self) {
        let dead: Vec<_> = self
            .unnamed
            .iter()
            .filter(|file| file.is_dead(&self.state))
            .cloned()
            .collect();
        self.log.unlink_dead(&dead);
    }

    /// Removes value-log files that are dead, and notes the session in the manifest.
    pub(super) fn note(&self, epoch: u32, large_next: u64) -> Result<(), StoreError> {
        let watermark = self.watermark();
        self.unlink_dead();
        // Behind this no power cut brings one of them back.
        self.log.unlinked_for_good()?;
        let left = self.log.left_over();

        let pool = match self.options.durability {
            Durability::Buffered(_) => self.pool.map(|pool| PoolRef {
                uuid: pool.uuid(),
                path: pool
                    .path()
                    .canonicalize()
                    .unwrap_or_else(|_| pool.path().to_owned())
                    .display()
                    .to_string(),
            }),
            Durability::Fsync | Durability::NoSync => None,
        };
        self.log.note(|state| {
            state.epoch = epoch;
            state.pool.clone_from(&pool);
            state.log_end = None;
            state.large_from = large_next;
            state.retired.clone_from(&left);
            state.indexed_to = watermark;
        })?;
        self.keep_reserve();
        Ok(())
    }
}
