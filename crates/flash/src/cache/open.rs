//! Making a cache, opening it, and recovering it. docs/flash-format.md, "Making" and "Recovery".

use super::{
    Cache, CacheState, HomeBatch, adaptive::AdaptivePolicy, device::FlashDevice,
    files::FileRegistry, group::OpenGroup, read_ahead::ReadAhead, rebuild::RebuiltMetadata,
};
use crate::{
    buffer::Buffer,
    epochs::Epochs,
    error::FlashError,
    io::{Flash, Home},
    layout::{CacheGeometry, CacheHeader, GROUPS_MIN, HEADERS},
    map::Map,
    options::{CacheOptions, CreateOptions},
    rate_limit::RateLimit,
    stats::Counters,
};
use forebay_pool::{ClaimOptions, Lane, Pool};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64},
    },
    time::Duration,
};

/// The outcome of an opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenedCache {
    /// Pages in the cache.
    pub pages: u64,
    /// Of these, newer than at home.
    pub dirty: u64,
    /// Files that are registered.
    pub files: usize,
    /// The damage that was mended, in words.
    pub mended: Vec<String>,
}

impl Cache {
    /// Makes a cache on `flash`, which is blank, with its metadata in a new lane of `pool`.
    ///
    /// 1. *Claim* the lane.
    /// 2. *Write* the first checkpoint, and sync.
    /// 3. *Write* the headers, one after the other, and sync each: now it is a cache.
    ///
    /// A crash before that leaves a blank flash, and a lane that the same owner's next attempt
    /// finds.
    ///
    /// # Errors
    /// [`FlashError::NotBlank`], [`FlashError::BadSize`], [`FlashError::LaneInUse`]; what flash or
    /// the pool says.
    pub fn create(
        flash: Arc<dyn Flash>,
        home: Arc<dyn Home>,
        pool: &Pool,
        create: &CreateOptions,
        options: &CacheOptions,
    ) -> Result<Self, FlashError> {
        let device = FlashDevice(&*flash);
        let bytes = device.bytes()?;
        let geometry = CacheGeometry::fit(
            bytes,
            create.page_bytes,
            create.files_max,
            options.group_pages,
        )?;
        check_options(&geometry, options)?;
        device.check_blank()?;
        pool.check_appends_last()?;
        let claim = ClaimOptions::new()
            .segments(create.lane_segments)
            .label(format!("flash: {}", flash.describe()));
        let (lane, recovered) = pool.claim(create.owner, &claim)?;
        if recovered.records().next().is_some() {
            return Err(FlashError::LaneInUse {
                owner: create.owner,
            });
        }
        drop(recovered);
        let header = CacheHeader {
            geometry,
            owner: create.owner,
            pool: pool.uuid(),
        };
        let rebuilt = RebuiltMetadata {
            layout: 0,
            map: Map::new(geometry.slots, 0),
            files: FileRegistry::default(),
            epochs: Epochs::default(),
        };
        let cache = Self::new(flash, home, lane, header, options, rebuilt, 0);
        cache.checkpoint()?;
        FlashDevice(&*cache.flash).write_headers(&header, &HEADERS)?;
        Ok(cache)
    }

    /// Opens the cache on `flash` and restores its map from the metadata in `pool`: no page is
    /// read. Files keep their numbers; see [`files`](Self::files).
    ///
    /// # Errors
    /// All that can be wrong with it, before anything is changed: [`FlashError::NotACache`],
    /// [`FlashError::Version`], [`FlashError::PageSize`], [`FlashError::OtherPool`],
    /// [`FlashError::NoLane`], [`FlashError::Truncated`], [`FlashError::Damaged`]; what flash or
    /// the pool says.
    pub fn open(
        flash: Arc<dyn Flash>,
        home: Arc<dyn Home>,
        pool: &Pool,
        page_bytes: u32,
        options: &CacheOptions,
    ) -> Result<(Self, OpenedCache), FlashError> {
        let device = FlashDevice(&*flash);
        let (header, damaged) = device.read_header()?;
        device.check_header(&header, pool, page_bytes)?;
        check_options(&header.geometry, options)?;
        if !pool.has_lane(header.owner)? {
            return Err(FlashError::NoLane {
                flash: flash.describe(),
                owner: header.owner,
                pool: header.pool,
            });
        }
        let (lane, recovered) = pool.claim(header.owner, &ClaimOptions::new())?;
        let (checkpoint, body) = device.newest_checkpoint(&header, &recovered)?;
        let rebuilt = device.rebuild(&header, &checkpoint, &body, &recovered)?;
        drop((recovered, body));
        let mut opened = OpenedCache {
            pages: rebuilt.map.pages,
            dirty: rebuilt.map.dirty,
            files: rebuilt.files.iter().count(),
            mended: Vec::new(),
        };
        if let Some((at, what)) = damaged {
            // The other one is whole. Flash that does not take this one may be read still.
            let failed = device.write_headers(&header, &[at]).err();
            opened.mended.push(what);
            opened.mended.extend(failed.map(|e| e.to_string()));
        }
        let sequence = checkpoint.sequence;
        let cache = Self::new(flash, home, lane, header, options, rebuilt, sequence);
        cache.record_layout()?;
        forebay_pool::failpoint!("flash:recovered");
        // What was recovered goes to a checkpoint, so that the lane's segments are free. Flash that
        // takes none may be read still.
        match cache.checkpoint() {
            Err(error @ FlashError::Flash { .. }) => opened.mended.push(error.to_string()),
            done => done?,
        }
        Ok((cache, opened))
    }

    /// Ends the cache, which is [empty](Self::empty): flash is blank afterwards, and the lane is
    /// the pool's again.
    ///
    /// 1. *Blank* both headers, durably: it is no cache any more.
    /// 2. *Release* the lane's segments, and give it back. After a crash between the two the lane
    ///    is left, with a label that names the flash; its owner can claim it and give it back.
    ///
    /// # Errors
    /// [`FlashError::NotEmpty`]; what flash says.
    pub fn remove(self) -> Result<(), FlashError> {
        let used = self.state.lock().map.used();
        if used > 0 {
            return Err(FlashError::NotEmpty(used));
        }
        FlashDevice(&*self.flash).blank_headers()?;
        self.lane.seal();
        while let Some(sealed) = self.lane.take_sealed(Duration::ZERO) {
            sealed.release();
        }
        // Nothing else has the lane, and nothing in it is left.
        let _ = self.lane.remove();
        Ok(())
    }

    fn new(
        flash: Arc<dyn Flash>,
        home: Arc<dyn Home>,
        lane: Lane,
        header: CacheHeader,
        options: &CacheOptions,
        rebuilt: RebuiltMetadata,
        checkpoint: u64,
    ) -> Self {
        let page_bytes = header.geometry.page_bytes as usize;
        let leaving = options.group_pages as usize * options.groups_leaving_max.max(1) as usize;
        let cache = Self {
            flash,
            home,
            lane,
            header: RwLock::new(header),
            page_bytes,
            options: *options,
            contents: AtomicU8::new(options.contents as u8),
            policy: AtomicU8::new(options.policy as u8),
            watermarks: [AtomicU8::new(0), AtomicU8::new(0)],
            home_limit: RateLimit::new(options.home_bytes_per_second),
            flash_limit: RateLimit::new(options.flash_bytes_per_second),
            emptying: AtomicBool::new(false),
            resizing: Mutex::new(()),
            entrance: RwLock::new(()),
            homing: Mutex::new(HomeBatch {
                bytes: Buffer::new(leaving * page_bytes),
                begun: 0,
            }),
            committing: Mutex::new(()),
            tail: Mutex::new(OpenGroup::new()),
            checkpointer: Mutex::new(checkpoint),
            flash_sync: Mutex::new(()),
            flash_failures: AtomicU64::new(0),
            home_sync: RwLock::new(()),
            home_failures: AtomicU64::new(0),
            flash_failing: AtomicBool::new(false),
            skipped: AtomicBool::new(false),
            half_resized: AtomicBool::new(false),
            worth: AdaptivePolicy::new(),
            ahead: ReadAhead::default(),
            trouble: Mutex::default(),
            log: Mutex::new(Vec::new()),
            state: Mutex::new(CacheState {
                map: rebuilt.map,
                open: None,
                pending: VecDeque::new(),
                kept: 0,
            }),
            files: RwLock::new(rebuilt.files),
            epochs: Mutex::new(rebuilt.epochs),
            counters: Counters::default(),
        };
        cache.set_watermarks(options.watermarks);
        cache
    }
}

pub(super) fn check_options(
    geometry: &CacheGeometry,
    options: &CacheOptions,
) -> Result<(), FlashError> {
    let group = options.group_pages;
    let bad = |reason| Err(FlashError::BadSize { reason });
    if group < 2 || group.saturating_mul(GROUPS_MIN) > geometry.slots {
        return bad(format!(
            "groups of {group} pages in {} slots; 2 pages at least, and {GROUPS_MIN} groups in the slots are needed",
            geometry.slots
        ));
    }
    if options.second_chances_max >= group {
        return bad(format!(
            "{} second chances in a group of {group} pages; fewer than the group has are needed, or the queue would not move",
            options.second_chances_max
        ));
    }
    if options.groups_unsynced_max == 0 {
        return bad("no group may be unsynced; one at least is needed".to_owned());
    }
    Ok(())
}
