//! The cache: its parts, and its locks. docs/flash-format.md, "Protocol".
//!
//! * `group`: pages on their way to flash; `enqueue`: how they come in; `commit`: group out, flash
//!   synced, metadata durable;
//! * `write_around`: the same at home, when flash fails or the policy says so;
//! * `read`: how they are found, with `read_ahead` (of a scan, at home); `files`: registering,
//!   tombstones;
//! * `dequeue`: how they leave, with `readable_slots` (what of them can be read); `flush`:
//!   everything home, with `dirty_pages` (what is dirty); `home`: how they get there;
//! * `adaptive`: whether flash pays, by what `reads` and `writes` take;
//! * `resize`: another size, with what is in it;
//! * `log`: the lane and its checkpoints; `open`: making and opening, with `device` (headers) and
//!   `rebuild` (recovery).
//!
//! Locks, in the order in which they are taken:
//!
//! | lock | held for | guards |
//! |---|---|---|
//! | `resizing` | a resize | that there is one at a time |
//! | `homing` | a batch of home writes and their sync; a tombstone | what is being written home |
//! | `entrance` | shared: copying one page; alone: the end of a resize | that pages come in |
//! | `committing` | a commit | groups leave memory in order |
//! | `tail` | copying one page, 16 KiB in about 2 µs | the open group |
//! | `checkpointer` | a checkpoint | the two regions |
//! | `flash_sync` | a sync of flash | whether one failed |
//! | `home_sync` | shared: a sync of a home; alone: a moment after those of a batch | whether one failed |
//! | `log` | one record, and applying it to the map | the order of records; flags of slots below `recorded`, `recorded`, `front` |
//! | a block of `read_ahead` | one read of home, for those who want its pages | what a scan is given |
//! | those of `adaptive` | a moment | what reads and writes take |
//! | `state` | a look-up or an insertion: tens of nanoseconds | the map |
//!
//! No lock is held by a read while it waits for flash. One lock for the map is enough: what is done
//! under it is a hundredth of the copy that every page costs anyway, and of the read of flash that
//! a hit costs.

mod adaptive;
mod commit;
mod dequeue;
mod device;
mod dirty_pages;
mod enqueue;
mod files;
mod flush;
mod group;
mod home;
mod log;
mod open;
mod read;
mod read_ahead;
mod readable_slots;
mod rebuild;
mod resize;
mod write_around;

pub use dequeue::DequeueStep;
pub use enqueue::{Enqueued, PastWrite};
pub use flush::{FlushProgress, Flushed};
pub use open::OpenedCache;
pub use read::{ReadOutcome, Ticket};
pub use resize::ResizedCache;

use crate::{
    buffer::Buffer,
    epochs::Epochs,
    error::{FlashError, PageName},
    file::CachedFile,
    io::{Flash, Home},
    layout::{CacheGeometry, CacheHeader},
    map::Map,
    options::{AdmissionPolicy, CacheOptions, Watermarks, WritePolicy},
    rate_limit::RateLimit,
    record::{EPOCHS, encode_epochs},
    stats::{CacheStats, Counters, add},
};
use adaptive::AdaptivePolicy;
use files::FileRegistry;
use forebay_pool::Lane;
use group::{Group, OpenGroup};
use parking_lot::{Mutex, RwLock};
use read_ahead::ReadAhead;
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};
use uuid::Uuid;
use write_around::DeviceFault;

/// A flash cache in use. Shared by reference between any number of threads.
pub struct Cache {
    flash: Arc<dyn Flash>,
    home: Arc<dyn Home>,
    lane: Lane,
    /// Changed by a resize only, together with the map and under `state`: the map's positions are
    /// of its layout.
    header: RwLock<CacheHeader>,
    page_bytes: usize,
    options: CacheOptions,
    contents: AtomicU8,
    policy: AtomicU8,
    watermarks: [AtomicU8; 2],
    home_limit: RateLimit,
    flash_limit: RateLimit,
    /// True while `step` goes on towards the low watermark.
    emptying: AtomicBool,
    resizing: Mutex<()>,
    homing: Mutex<HomeBatch>,
    entrance: RwLock<()>,
    committing: Mutex<()>,
    tail: Mutex<OpenGroup>,
    checkpointer: Mutex<u64>,
    flash_sync: Mutex<()>,
    /// Syncs of flash that failed: what was written before is written again.
    flash_failures: AtomicU64,
    home_sync: RwLock<()>,
    /// Syncs of homes that failed: what was on its way home is written there again.
    home_failures: AtomicU64,
    /// Flash failed to take something, and has taken no group since.
    flash_failing: AtomicBool,
    /// Positions below `recorded` that the lane does not know of. Under `log`.
    skipped: AtomicBool,
    /// A resize failed where it is not known what the header says: nothing is recorded any more.
    half_resized: AtomicBool,
    worth: AdaptivePolicy,
    ahead: ReadAhead,
    /// Taken last, and for a moment.
    trouble: Mutex<DeviceFault>,
    log: Mutex<Vec<u8>>,
    state: Mutex<CacheState>,
    files: RwLock<FileRegistry>,
    /// Changed under `log`.
    epochs: Mutex<Epochs>,
    counters: Counters,
}

/// The state under `state`.
struct CacheState {
    map: Map,
    /// The group that pages are copied to.
    open: Option<Arc<Group>>,
    /// Full groups that are not recorded, in order.
    pending: VecDeque<Arc<Group>>,
    /// Copies of pages on their way home may be kept for positions below this. Until these are
    /// recorded a crash brings the copies back, also of a page that has left the queue. Changed
    /// under `homing`.
    kept: u64,
}

/// Buffers of a batch of home writes.
struct HomeBatch {
    /// The pages of as many groups as leave at a time.
    bytes: Buffer,
    /// Positions below this were on their way home around flash. Until they are recorded some of
    /// their pages may be torn there, and nothing but the copies that the homes' owner keeps has
    /// them whole after a crash.
    begun: u64,
}

impl Cache {
    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn geometry(&self) -> CacheGeometry {
        self.header.read().geometry
    }

    /// The cache's identity: the owner of its lane.
    #[must_use]
    pub fn owner(&self) -> Uuid {
        self.header.read().owner
    }

    /// The owner's epochs that it is in.
    #[must_use]
    pub fn epochs(&self) -> Epochs {
        *self.epochs.lock()
    }

    /// It is in these from now on, durably.
    ///
    /// # Errors
    /// What the lane or a checkpoint says; it is in those that it was in, or in these after a
    /// crash.
    pub fn set_epochs(&self, epochs: Epochs) -> Result<(), FlashError> {
        self.record(|cache, _| {
            let record = encode_epochs(epochs);
            let appended = cache.try_append(EPOCHS, &[IoSlice::new(&record)])?;
            Ok(appended.then(|| *cache.epochs.lock() = epochs))
        })
    }

    /// Changes which pages come in, from now on.
    pub fn set_contents(&self, contents: AdmissionPolicy) {
        self.contents.store(contents as u8, Relaxed);
    }

    /// Changes the policy for writes, from now on. What is in the cache stays there until the front
    /// reaches it, [`flush`](Self::flush) writes it home, or, with [`WritePolicy::Off`], `step`
    /// does.
    pub fn set_policy(&self, policy: WritePolicy) {
        self.policy.store(policy as u8, Relaxed);
    }

    /// Changes the watermarks.
    pub fn set_watermarks(&self, watermarks: Watermarks) {
        self.watermarks[0].store(watermarks.low.min(watermarks.high), Relaxed);
        self.watermarks[1].store(watermarks.high, Relaxed);
    }

    /// Changes how many bytes a second are written home by `step`, and to flash, at most; 0 for no
    /// limit.
    pub fn set_limits(&self, home_bytes_per_second: u64, flash_bytes_per_second: u64) {
        self.home_limit.set(home_bytes_per_second);
        self.flash_limit.set(flash_bytes_per_second);
    }

    /// The options that can be changed while it is open, as they are now.
    #[must_use]
    pub fn options(&self) -> CacheOptions {
        let all = self.contents.load(Relaxed) == AdmissionPolicy::All as u8;
        CacheOptions {
            contents: if all {
                AdmissionPolicy::All
            } else {
                AdmissionPolicy::Dirty
            },
            policy: self.policy(),
            watermarks: Watermarks {
                low: self.watermarks[0].load(Relaxed),
                high: self.watermarks[1].load(Relaxed),
            },
            home_bytes_per_second: self.home_limit.get(),
            flash_bytes_per_second: self.flash_limit.get(),
            ..self.options
        }
    }

    /// The policy for writes.
    #[must_use]
    pub fn policy(&self) -> WritePolicy {
        let number = usize::from(self.policy.load(Relaxed));
        WritePolicy::ALL[number % WritePolicy::ALL.len()]
    }

    fn takes_clean(&self) -> bool {
        self.contents.load(Relaxed) == AdmissionPolicy::All as u8
            && self.flash_pays_for_reads()
            && !self.goes_around()
    }

    /// Its work since it was opened, and its contents.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let state = self.state.lock();
        CacheStats {
            slots: state.map.slots(),
            slots_used: state.map.used(),
            groups_unsynced: state.pending.len() as u64,
            pages: state.map.pages,
            dirty_pages: state.map.dirty,
            lost_pages: state.map.lost,
            ..self.counters.read()
        }
    }

    fn slots(&self) -> u64 {
        u64::from(self.geometry().slots)
    }

    /// Slots that are kept for second chances, and one for lost pages, when pages come in.
    fn spare_slots(&self) -> u64 {
        u64::from(self.options.second_chances_max) + 1
    }

    /// Slots that leave at a time: whole groups.
    fn slots_leaving(&self) -> u64 {
        let group = u64::from(self.options.group_pages);
        let groups = (self.slots() / 8 / group).min(self.options.groups_leaving_max.into());
        groups.max(1) * group
    }

    /// Slots that dirty and clean pages may use when they come in.
    fn slots_for_pages(&self) -> u64 {
        self.slots() - self.spare_slots()
    }

    /// Offset of a page in a file at home.
    fn home_offset(&self, page: u32) -> u64 {
        u64::from(page) * self.page_bytes() as u64
    }

    /// The page for people.
    fn name(&self, file: u32, page: u32) -> PageName {
        let file = match self.files.read().get(file) {
            Some(known) => known.name().to_string(),
            None => format!("file number {file}"),
        };
        PageName { file, page }
    }

    fn flash_error(&self, doing: &'static str, source: io::Error) -> FlashError {
        FlashError::Flash {
            flash: self.flash.describe(),
            doing,
            source,
        }
    }

    fn check_page(&self, file: &CachedFile, bytes: usize) -> Result<(), FlashError> {
        let wanted = self.page_bytes();
        if bytes != wanted {
            return Err(FlashError::NotAPage {
                found: bytes,
                wanted,
            });
        }
        if file.is_dropped() {
            return Err(FlashError::NoSuchFile(file.id().number));
        }
        Ok(())
    }

    /// Does the `writes` to flash, and makes them durable.
    ///
    /// A sync that fails may lose all that was written since the last one that did not, and the
    /// next one does not say so. So it counts for the writes of every thread: groups that are in
    /// memory are written again, and a thread whose writes were under way has failed, too.
    fn write_durably(
        &self,
        writes: impl FnOnce() -> Result<(), FlashError>,
    ) -> Result<(), FlashError> {
        let failures = self.flash_failures.load(Relaxed);
        writes()?;
        self.sync_flash()?;
        if self.flash_failures.load(Relaxed) == failures {
            return Ok(());
        }
        let e = io::Error::other("another sync failed meanwhile");
        Err(self.flash_failed("syncing it", e))
    }

    fn sync_flash(&self) -> Result<(), FlashError> {
        add(&self.counters.flash_syncs, 1);
        self.syncing_flash(|| self.flash.sync())
            .map_err(|e| self.flash_failed("syncing it", e))
    }

    /// Runs `sync`, which syncs flash. If it fails, what is in memory is written to flash again.
    fn syncing_flash(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _one_at_a_time = self.flash_sync.lock();
        sync().inspect_err(|_| {
            self.flash_failures.fetch_add(1, Relaxed);
        })
    }
}
