//! The pool: creating, opening, and sharing it out in lanes.
//!
//! Lock order: the pool lock (lock 0 of the medium, held while lanes and segments change hands), then a
//! lane's lock (1 + lane, held by its owner for as long as it lives). Both die with their process. A lane's lock is
//! taken under the pool lock only, and without waiting; the pool lock is waited for.

use crate::{
    error::{PoolError, PoolErrorKind},
    lane::{
        Lane, Recovered,
        recover::{LiveSegment, recover},
    },
    layout::{BUFFERS_MAX, Geometry, LANE_TABLE, PAGE, START_MAX},
    media::{
        FileMedia, Guard, Media, Profile, Survives, Timed, Window, map_file, open_dax,
        open_emulated,
    },
    record::Lsn,
    segment::SEGMENT_HEADER,
    superblock::{self, Superblock},
    table::{LaneEntry, LaneState, Tables},
};
use std::{
    fs::{self, OpenOptions},
    io::IoSlice,
    os::{
        fd::BorrowedFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};
use uuid::Uuid;

/// The lock that guards who owns which lane and segment.
const POOL_LOCK: u32 = 0;

/// The lock of a lane.
const fn lane_lock(lane: u32) -> u32 {
    1 + lane
}

/// What a lane needs of its pool.
pub(crate) struct Core {
    pub(crate) path: PathBuf,
    pub(crate) media: Arc<dyn Media>,
    pub(crate) superblock: Superblock,
}

impl Core {
    pub(crate) fn tables(&self) -> Tables<'_> {
        Tables {
            media: &*self.media,
            geometry: self.superblock.geometry,
            pool: self.superblock.uuid,
        }
    }

    fn fail(&self, kind: PoolErrorKind) -> PoolError {
        PoolError::new(&self.path, kind)
    }

    /// Waits for the pool lock.
    pub(crate) fn lock_pool(&self) -> Result<Guard, PoolError> {
        Guard::take(&self.media, POOL_LOCK, true)
            .map_err(|e| PoolError::io(&self.path, "locking the pool", e))
    }

    /// Takes the lock of `lane`, if nobody has it. The caller has the pool lock: so whoever is refused is
    /// refused by an owner, not by somebody who looks.
    pub(crate) fn try_lock_lane(&self, lane: u32) -> Result<Option<Guard>, PoolError> {
        match Guard::take(&self.media, lane_lock(lane), false) {
            Ok(guard) => Ok(Some(guard)),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(PoolError::io(&self.path, "locking a lane", e)),
        }
    }
}

/// Sizes of a pool to be made.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Bytes of the pool. A devdax device is taken whole; there this is the bytes used.
    pub bytes: u64,
    /// Bytes of a segment (one buffer): a multiple of 4 KiB, 4 KiB to 64 MiB.
    pub segment_bytes: u64,
    /// Lanes, that is owners at the same time.
    pub lanes: u32,
    /// Make an emulated pool in an ordinary file: it survives a process crash only.
    pub emulated: bool,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            segment_bytes: 8 << 20,
            lanes: 16,
            emulated: false,
        }
    }
}

/// How a lane is claimed.
#[derive(Clone, Debug)]
pub struct ClaimOptions {
    /// Number of segments (buffers) of a new lane, 1 to 64. A lane keeps its number: to change it,
    /// drain it, give it back ([`Lane::remove`]) and claim another.
    pub buffers: u16,
    /// The owner in words, for status: cut to 128 bytes.
    pub label: String,
    /// Log address at which a new lane starts, a multiple of 4 KiB up to [`START_MAX`](crate::layout::START_MAX).
    pub start: Lsn,
    /// The session's number is higher than this one.
    pub epoch_above: u32,
    /// Give up acknowledged records that are unreadable, instead of refusing.
    pub salvage: bool,
}

impl Default for ClaimOptions {
    fn default() -> Self {
        Self {
            buffers: 2,
            label: String::new(),
            start: 0,
            epoch_above: 0,
            salvage: false,
        }
    }
}

/// An open pool. Cheap to clone; lanes keep it open.
#[derive(Clone)]
pub struct Pool {
    pub(crate) core: Arc<Core>,
    damage: Vec<String>,
}

impl Pool {
    /// Makes a pool at `path`. A file is created there; a devdax device is formatted.
    ///
    /// # Errors
    /// [`PoolErrorKind::Exists`] if anything is there already, [`PoolErrorKind::BadSize`],
    /// [`PoolErrorKind::NotPersistentMemory`] without `emulated`. A file that was made is removed again.
    pub fn create(path: &Path, options: CreateOptions) -> Result<Self, PoolError> {
        let geometry = Geometry::fit(options.bytes, options.segment_bytes, options.lanes)
            .map_err(|kind| PoolError::new(path, kind))?;
        let open = |path: &Path| -> Result<FileMedia, PoolError> {
            if options.emulated {
                open_emulated(path)
            } else {
                open_dax(path)
            }
        };
        let is_device = fs::metadata(path).is_ok_and(|m| m.file_type().is_char_device());
        let media: Arc<dyn Media> = if is_device {
            let media = open(path)?;
            // Both superblocks: one alone is a pool.
            let mut start = vec![0; (2 * PAGE).min(media.bytes()) as usize];
            media.load(0, &mut start);
            if start.iter().any(|&b| b != 0) {
                return Err(PoolError::new(
                    path,
                    PoolErrorKind::Exists {
                        found: "a device that holds data; zero its first 8 KiB to give it up"
                            .into(),
                    },
                ));
            }
            Arc::new(media)
        } else {
            allocate(path, options.bytes)?;
            // Whatever fails from here on leaves no half-made pool behind.
            Arc::new(open(path).inspect_err(|_| drop(fs::remove_file(path)))?)
        };
        Self::format(path, media, geometry, options.emulated)
    }

    /// Formats `media` as a pool of this geometry. Whatever was on it is lost.
    ///
    /// # Errors
    /// [`PoolErrorKind::Truncated`] if the medium is too small.
    pub fn format(
        path: &Path,
        media: Arc<dyn Media>,
        geometry: Geometry,
        emulated: bool,
    ) -> Result<Self, PoolError> {
        if media.bytes() < geometry.pool_bytes {
            return Err(PoolError::new(
                path,
                PoolErrorKind::Truncated {
                    stated: geometry.pool_bytes,
                    found: media.bytes(),
                },
            ));
        }
        let core = Core {
            path: path.to_owned(),
            media,
            superblock: Superblock::new(geometry, emulated),
        };
        prepare(&core, 0, geometry.data(), true)?;
        // Superblocks go first and come last: a pool half made, or half remade, is no pool.
        zero(&*core.media, 0, LANE_TABLE);
        zero(&*core.media, LANE_TABLE, geometry.data() - LANE_TABLE);
        core.tables().format();
        core.superblock.write(&*core.media);
        Ok(Self {
            core: Arc::new(core),
            damage: Vec::new(),
        })
    }

    /// Opens the pool at `path`: on persistent memory, or emulated if it was made so. With
    /// `emulated`, a pool that was made on persistent memory and moved is opened as an emulated one.
    ///
    /// # Errors
    /// [`PoolErrorKind`] for everything that can be wrong with it; nothing is changed.
    pub fn open(path: &Path, emulated: bool) -> Result<Self, PoolError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|e| PoolError::io(path, "opening the pool", e))?;
        Self::open_either(path, file, emulated)
    }

    /// As [`open`](Self::open), of a `file` that is open for reading and writing: for a process that was given it by one that may
    /// open it. `path` is what errors call it. Lanes are locked by this open file, so it must not be one that is shared.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_file(path: &Path, file: fs::File) -> Result<Self, PoolError> {
        Self::open_either(path, file, false)
    }

    fn open_either(path: &Path, file: fs::File, emulated: bool) -> Result<Self, PoolError> {
        let mut refused = None;
        let media = map_file(path, file, |e| match &e.kind {
            PoolErrorKind::NotPersistentMemory { file_system } => {
                refused = Some(file_system.clone());
                true
            }
            _ => false,
        })?;
        // Before anything is repaired: a pool that is refused is not touched.
        if let Some(file_system) = refused
            && !emulated
            && !Superblock::read(&media, path)?.superblock.emulated
        {
            return Err(PoolError::new(
                path,
                PoolErrorKind::MovedOffPersistentMemory { file_system },
            ));
        }
        Self::open_media(path, Arc::new(media))
    }

    /// Opens the pool on `media`. A damaged superblock copy is rewritten from the intact one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_media(path: &Path, media: Arc<dyn Media>) -> Result<Self, PoolError> {
        let superblock::Read { superblock, damage } = Superblock::read(&*media, path)?;
        let core = Arc::new(Core {
            path: path.to_owned(),
            media,
            superblock,
        });
        // The tables; a lane's segments when it is claimed.
        prepare(&core, 0, superblock.geometry.data(), false)?;
        if !damage.is_empty() {
            let _pool = core.lock_pool()?;
            superblock.repair(&*core.media);
        }
        Ok(Self { core, damage })
    }

    /// The same pool as slow as a device: each access takes as long as `profile` says.
    #[must_use]
    pub fn slowed(self, profile: Profile) -> Self {
        let media = Arc::new(Timed::new(Arc::clone(&self.core.media), profile));
        Self {
            core: Arc::new(Core {
                path: self.core.path.clone(),
                media,
                superblock: self.core.superblock,
            }),
            damage: self.damage,
        }
    }

    /// The pool's identity and sizes.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        self.core.superblock
    }

    /// The pool's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.core.path
    }

    /// What the pool's contents live through.
    #[must_use]
    pub fn survives(&self) -> Survives {
        self.core.media.survives()
    }

    /// The open file that holds this process's locks on the pool; a forked child closes its copy (see [`Media::descriptor`]).
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.core.media.descriptor()
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

    /// Claims the lane of `owner`, making one if there is none, and recovers its log.
    ///
    /// What was recovered must be replayed by the owner; then the lane's drain makes it durable elsewhere as any other
    /// segment. The lane belongs to the caller until it, what was recovered, and what was read from it are dropped.
    ///
    /// # Errors
    /// [`PoolErrorKind::InUse`] if somebody has the lane, [`PoolErrorKind::Full`],
    /// [`PoolErrorKind::BadStart`], [`PoolErrorKind::Damaged`], [`PoolErrorKind::LostRecords`].
    pub fn claim(
        &self,
        owner: Uuid,
        options: &ClaimOptions,
    ) -> Result<(Lane, Recovered), PoolError> {
        let start = options.start;
        if !start.is_multiple_of(PAGE) || start > START_MAX {
            return Err(self.core.fail(PoolErrorKind::BadStart { start }));
        }
        let claimed = {
            let _pool = self.core.lock_pool()?;
            self.core.tables().settle_pool();
            match self.claim_made(owner)? {
                Some(claimed) => claimed,
                None => self.make_lane(owner, options)?,
            }
        };
        self.open_lane(claimed, options)
    }

    /// Under the pool lock: takes the lane that `owner` has, if any.
    fn claim_made(&self, owner: Uuid) -> Result<Option<Claimed>, PoolError> {
        let core = &self.core;
        let Some((lane, entry)) = self.lane_of(owner)? else {
            return Ok(None);
        };
        let Some(lock) = core.try_lock_lane(lane)? else {
            let label = entry.label;
            return Err(core.fail(PoolErrorKind::InUse { lane, label }));
        };
        core.tables().settle_lane(lane);
        // Read again: until we had the lock, its owner may have moved the head, or given it back.
        let entry = core.tables().lane(lane);
        if entry.state.is_some_and(|s| !s.taken) {
            return Ok(None);
        }
        let segments = self.segments_of(lane, &entry)?;
        Ok(Some(Claimed {
            lane,
            lock,
            entry,
            segments,
        }))
    }

    /// The lane that `owner` has, if any.
    fn lane_of(&self, owner: Uuid) -> Result<Option<(u32, LaneEntry)>, PoolError> {
        let mut unreadable = None;
        for (lane, entry) in self.entries() {
            match entry.state {
                Some(state) if state.taken && state.owner == owner => {
                    return Ok(Some((lane, entry)));
                }
                Some(_) => {}
                None => unreadable = entry.damage,
            }
        }
        // A lane without an intact state could be anybody's: refuse rather than take its owner for new.
        match unreadable {
            Some(what) => Err(self.core.fail(PoolErrorKind::Damaged { what })),
            None => Ok(None),
        }
    }

    /// True if `owner` has a lane here.
    ///
    /// # Errors
    /// [`PoolErrorKind::Damaged`] if the lane table is.
    pub fn has_lane(&self, owner: Uuid) -> Result<bool, PoolError> {
        Ok(self.lane_of(owner)?.is_some())
    }

    /// The number of the last session on the lane of `owner`, if it has one. Takes nothing and changes nothing.
    ///
    /// # Errors
    /// As [`has_lane`](Self::has_lane).
    pub fn last_session(&self, owner: Uuid) -> Result<Option<u32>, PoolError> {
        let lane = self.lane_of(owner)?;
        Ok(lane
            .and_then(|(_, entry)| entry.state)
            .map(|state| state.epoch))
    }

    /// Changes the label of `owner`'s lane, if it has one, as [`Lane::relabel`](crate::Lane::relabel) does: also of a lane in use.
    ///
    /// # Errors
    /// As [`has_lane`](Self::has_lane).
    pub fn relabel(&self, owner: Uuid, label: &str) -> Result<(), PoolError> {
        if let Some((lane, _)) = self.lane_of(owner)? {
            self.core.tables().write_label(lane, label);
        }
        Ok(())
    }

    /// Every lane's entry.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, LaneEntry)> {
        (0..self.core.superblock.geometry.lanes).map(|lane| (lane, self.core.tables().lane(lane)))
    }

    /// The segments that the map gives to `lane`: as many as its state says, or more, where a crash cut a change of their number
    /// (see `shared::breathe`).
    pub(crate) fn segments_of(&self, lane: u32, entry: &LaneEntry) -> Result<Vec<u64>, PoolError> {
        let damaged = |what| self.core.fail(PoolErrorKind::Damaged { what });
        let Some(state) = entry.state.filter(|s| s.taken) else {
            return Ok(Vec::new());
        };
        let owners = self.core.tables().segment_owners().map_err(damaged)?;
        let segments: Vec<u64> = owners
            .iter()
            .zip(0..)
            .filter(|(owner, _)| **owner == Some((lane, state.incarnation)))
            .map(|(_, segment)| segment)
            .collect();
        if segments.len() < state.segments as usize || segments.len() > usize::from(BUFFERS_MAX) {
            return Err(damaged(format!(
                "lane {lane} has {} segments in the segment map, its entry states {}",
                segments.len(),
                state.segments
            )));
        }
        Ok(segments)
    }

    /// Gives `owner` a free lane and free segments, which are zeroed: nothing that was in them, not
    /// even an earlier log of the same owner, is ever taken for this one's. The lane's entry, written last, is
    /// what makes it so.
    fn make_lane(&self, owner: Uuid, options: &ClaimOptions) -> Result<Claimed, PoolError> {
        let core = &self.core;
        let tables = core.tables();
        let wanted = options.buffers.clamp(1, BUFFERS_MAX);
        let mut free_lanes = self.free_lanes()?;
        let mut owners = self.segment_owners(&free_lanes)?;
        let Some((lane, mut entry, lock)) = (!free_lanes.is_empty()).then(|| free_lanes.remove(0))
        else {
            return Err(core.fail(PoolErrorKind::Full {
                unit: "lanes",
                wanted: 1,
                free: 0,
            }));
        };
        let incarnation = entry.state.map_or(1, |s| s.incarnation.wrapping_add(1));
        let mut segments = Vec::new();
        for (segment, owner) in (0..).zip(&mut owners) {
            if owner.is_none() && segments.len() < usize::from(wanted) {
                *owner = Some((lane, incarnation));
                segments.push(segment);
            }
        }
        if segments.len() < usize::from(wanted) {
            return Err(core.fail(PoolErrorKind::Full {
                unit: "segments",
                wanted: u64::from(wanted),
                free: segments.len() as u64,
            }));
        }
        let geometry = core.superblock.geometry;
        for &segment in &segments {
            self.prepare_segment(segment, true)?;
            zero(
                &*core.media,
                geometry.segment(segment),
                geometry.segment_bytes,
            );
        }
        tables.write_segment_owners(&owners);
        tables.write_label(lane, &options.label);
        entry.label.clone_from(&options.label);
        let state = LaneState {
            taken: true,
            sequence: 0,
            owner,
            head: options.start,
            epoch: entry.state.map_or(0, |s| s.epoch),
            segments: u32::from(wanted),
            incarnation,
        };
        tables.write_lane(lane, &mut entry, state);
        Ok(Claimed {
            lane,
            lock,
            entry,
            segments,
        })
    }

    /// Under the pool lock: the lanes that are free, each with its lock. One whose lock is held was given back, but something read from it is still
    /// lent out.
    fn free_lanes(&self) -> Result<Vec<(u32, LaneEntry, Guard)>, PoolError> {
        let mut free = Vec::new();
        for (lane, entry) in self.entries() {
            if entry.state.is_some_and(|s| !s.taken)
                && let Some(lock) = self.core.try_lock_lane(lane)?
            {
                self.core.tables().settle_lane(lane);
                free.push((lane, entry, lock));
            }
        }
        Ok(free)
    }

    /// Whose each segment is. What a free lane has by the map is free: its owner left, or died while taking it.
    fn segment_owners(
        &self,
        free: &[(u32, LaneEntry, Guard)],
    ) -> Result<Vec<Option<(u32, u32)>>, PoolError> {
        let mut owners = (self.core.tables().segment_owners())
            .map_err(|what| self.core.fail(PoolErrorKind::Damaged { what }))?;
        for owner in &mut owners {
            if owner.is_some_and(|(lane, _)| free.iter().any(|(free, ..)| *free == lane)) {
                *owner = None;
            }
        }
        Ok(owners)
    }

    /// Under the pool lock: gives a free segment, made zero, to `lane` in the map, durably. None if there is none.
    pub(crate) fn take_segment(
        &self,
        lane: u32,
        incarnation: u32,
    ) -> Result<Option<u64>, PoolError> {
        let core = &self.core;
        core.tables().settle_pool();
        let free_lanes = self.free_lanes()?;
        let mut owners = self.segment_owners(&free_lanes)?;
        let Some(at) = owners.iter().position(Option::is_none) else {
            return Ok(None);
        };
        let segment = at as u64;
        self.prepare_segment(segment, true)?;
        let geometry = core.superblock.geometry;
        zero(
            &*core.media,
            geometry.segment(segment),
            geometry.segment_bytes,
        );
        owners[at] = Some((lane, incarnation));
        core.tables().write_segment_owners(&owners);
        Ok(Some(segment))
    }

    /// Under the pool lock: takes a segment from its lane in the map, durably.
    pub(crate) fn give_segment(&self, segment: u64) -> Result<(), PoolError> {
        let mut owners = self.segment_owners(&[])?;
        if let Some(owner) = usize::try_from(segment)
            .ok()
            .and_then(|at| owners.get_mut(at))
        {
            *owner = None;
        }
        self.core.tables().write_segment_owners(&owners);
        Ok(())
    }

    /// Recovers the lane's log and starts a new session on it.
    fn open_lane(
        &self,
        claimed: Claimed,
        options: &ClaimOptions,
    ) -> Result<(Lane, Recovered), PoolError> {
        let core = &self.core;
        let Claimed {
            lane,
            lock,
            mut entry,
            segments,
        } = claimed;
        let Some(state) = entry.state else {
            return Err(core.fail(PoolErrorKind::Damaged {
                what: format!("lane {lane} has no intact state"),
            }));
        };
        // Here and not while something is appended. The rest of the pool is never mapped: it would count as this process's memory.
        for &segment in &segments {
            self.prepare_segment(segment, true)?;
        }
        let windows = self.windows(&segments, lock);
        let segment_bytes = core.superblock.geometry.segment_bytes;
        let mut recovered = recover(
            &core.path,
            lane,
            &state,
            &windows,
            segment_bytes,
            options.salvage,
        )?;
        let state = LaneState {
            segments: u32::try_from(segments.len()).unwrap_or(u32::MAX),
            ..state
        };
        let epoch = self.begin_session(lane, &mut entry, state, options.epoch_above)?;
        // A segment without records, opened by the last session, is opened again. Behind a first record that
        // was torn there can be whole ones that nobody acknowledged; they would testify to a loss if the power failed
        // while the header, which they know to have been durable, is written anew. So they go first.
        if recovered.segments.last().is_some_and(LiveSegment::is_empty)
            && let Some(empty) = recovered.segments.pop()
        {
            let slot = empty.slot;
            drop(empty);
            zero(
                &*core.media,
                windows[slot].offset() + SEGMENT_HEADER,
                segment_bytes - SEGMENT_HEADER,
            );
            windows[slot].close();
        }
        let lane = Lane::resume(
            Arc::clone(core),
            lane,
            entry,
            epoch,
            windows,
            &mut recovered,
        );
        Ok((lane, recovered))
    }

    /// Gives the lane's next session its number.
    fn begin_session(
        &self,
        lane: u32,
        entry: &mut LaneEntry,
        state: LaneState,
        above: u32,
    ) -> Result<u32, PoolError> {
        let core = &self.core;
        let exhausted = || {
            core.fail(PoolErrorKind::Damaged {
                what: format!("lane {lane} has used up its session numbers"),
            })
        };
        let epoch = state.epoch.max(above).checked_add(1);
        let epoch = epoch.ok_or_else(exhausted)?;
        // Twice, so that both slots have it: a later loss of one slot must not bring the old epoch back.
        for _ in 0..2 {
            core.tables()
                .write_lane(lane, entry, LaneState { epoch, ..state });
        }
        Ok(epoch)
    }

    /// Gives a new `owner` a lane, empty, with its first session begun.
    pub(crate) fn claim_new(
        &self,
        owner: Uuid,
        options: &ClaimOptions,
    ) -> Result<Claimed, PoolError> {
        let mut claimed = {
            let _pool = self.core.lock_pool()?;
            self.core.tables().settle_pool();
            if let Some((lane, entry)) = self.lane_of(owner)? {
                let label = entry.label;
                return Err(self.core.fail(PoolErrorKind::InUse { lane, label }));
            }
            self.make_lane(owner, options)?
        };
        if let Some(state) = claimed.entry.state {
            self.begin_session(claimed.lane, &mut claimed.entry, state, options.epoch_above)?;
        }
        Ok(claimed)
    }

    /// Maps the pages of a segment, see [`Media::prepare`].
    pub(crate) fn prepare_segment(&self, segment: u64, write: bool) -> Result<(), PoolError> {
        let geometry = self.core.superblock.geometry;
        let at = geometry.segment(segment);
        prepare(&self.core, at, geometry.segment_bytes, write)
    }

    /// A window for each of `segments`, which keep the `lock` of their lane.
    pub(crate) fn windows(&self, segments: &[u64], lock: Guard) -> Vec<Arc<Window>> {
        let geometry = self.core.superblock.geometry;
        let lock = Arc::new(lock);
        segments
            .iter()
            .map(|&segment| {
                let media = Arc::clone(&self.core.media);
                Arc::new(Window::new(
                    media,
                    Arc::clone(&lock),
                    geometry.segment(segment),
                    geometry.segment_bytes,
                ))
            })
            .collect()
    }
}

/// A lane that was found or made, and is ours.
pub(crate) struct Claimed {
    pub(crate) lane: u32,
    pub(crate) lock: Guard,
    pub(crate) entry: LaneEntry,
    pub(crate) segments: Vec<u64>,
}

fn prepare(core: &Core, offset: u64, bytes: u64, write: bool) -> Result<(), PoolError> {
    let done = core.media.prepare(offset, bytes, write);
    done.map_err(|e| PoolError::io(&core.path, "mapping the pool's memory", e))
}

/// Makes `bytes` bytes at `offset`, both multiples of a line, zero, durably.
fn zero(media: &dyn Media, offset: u64, bytes: u64) {
    let zeros = vec![0; 1 << 20];
    let mut done = 0;
    while done < bytes {
        let now = (bytes - done).min(zeros.len() as u64);
        let part = &zeros[..usize::try_from(now).unwrap_or(zeros.len())];
        media.stream(offset + done, &[IoSlice::new(part)], 0);
        done += now;
    }
    media.fence();
}

/// Makes a file of `bytes` bytes, all allocated and durable.
fn allocate(path: &Path, bytes: u64) -> Result<(), PoolError> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => PoolError::new(
                path,
                PoolErrorKind::Exists {
                    found: describe_existing(path),
                },
            ),
            _ => PoolError::io(path, "creating the pool", e),
        })?;
    let zero = || -> std::io::Result<()> {
        // Real zeros rather than unwritten extents: no later store may need an allocation.
        use std::io::Write;
        let chunk = vec![0; 1 << 20];
        let mut left = bytes;
        let mut to = &file;
        while left > 0 {
            let now = left.min(chunk.len() as u64);
            to.write_all(&chunk[..usize::try_from(now).unwrap_or(0)])?;
            left -= now;
        }
        file.sync_all()?;
        let parent = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        fs::File::open(parent)?.sync_all()
    };
    zero().map_err(|e| {
        // Nothing is in it yet; the error that matters is the first one.
        drop(fs::remove_file(path));
        PoolError::io(path, "allocating the pool", e)
    })
}

/// Looks, and changes nothing.
fn describe_existing(path: &Path) -> String {
    match open_emulated(path).and_then(|media| Superblock::read(&media, path)) {
        Ok(read) => format!("a pool, uuid {}", read.superblock.uuid),
        Err(_) => fs::metadata(path).map_or_else(
            |_| "something unreadable".to_owned(),
            |m| format!("a file of {} bytes that is no pool", m.len()),
        ),
    }
}
