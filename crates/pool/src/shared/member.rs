//! A member of a shared lane: it appends.

use super::{
    MEMBERS_MAX,
    prefault::PrefaultedParts,
    state::{NONE, SharedState, VERSION, WriterCell, first},
};
use crate::{
    commit::write_void,
    core::Core,
    error::{AppendError, PoolError, PoolErrorKind},
    format::record::{HEADER, Lsn, RecordHeader, record_bytes},
    lane::{PublishMark, pack, payload_of, split, write_record},
    media::{DescriptorSharing, Mapped},
    persist::LINE,
    pool::Pool,
};
use std::{
    io::IoSlice,
    ops::Range,
    os::fd::{BorrowedFd, RawFd},
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire, Relaxed},
    },
    time::Duration,
};
use uuid::Uuid;

/// One process's part in a shared lane. Shared by reference between its threads.
///
/// A forked child is another process: it joins anew. An append that a living process leaves in the
/// middle holds up the whole lane. So none may be left by a jump out of a signal handler or by a
/// thread's cancellation, or be waited for by an append in a handler that interrupted it.
pub struct Member {
    pub(super) core: Arc<Core>,
    pub(super) state: Arc<Mapped<SharedState>>,
    member: u32,
    pub(super) owner: Uuid,
    epoch: u32,
    pub(super) segment_bytes: u64,
    /// The medium is a disk: see [`Self::commit`].
    pub(super) needs_commit: bool,
    /// True once the owner is gone: then it ends no commit that was left in the middle.
    pub(super) is_orphan: fn() -> bool,
    ready: PrefaultedParts,
}

/// The mark as a member sees it: once the owner is gone, who fills what the dead leave, it may
/// stand still for ever.
pub(super) struct MemberMark<'a>(&'a Member);

impl PublishMark for MemberMark<'_> {
    #[inline]
    fn at(&self) -> Lsn {
        self.0.state.at()
    }

    #[inline]
    fn set(&self, to: Lsn) {
        self.0.state.set(to);
    }

    #[inline]
    fn move_from(&self, from: Lsn, to: Lsn) -> bool {
        self.0.state.move_from(from, to)
    }

    fn is_abandoned(&self) -> bool {
        self.0.state.is_abandoned() || (self.0.is_orphan)()
    }
}

/// A reserved place.
struct ReservedPlace {
    /// Offset in the pool.
    offset: u64,
    lsn: Lsn,
}

/// The outcome of a try to reserve.
enum ReserveOutcome {
    Reserved(ReservedPlace),
    /// Another segment than the wanted one is open, or it has no room.
    Full,
}

impl Pool {
    /// Joins the shared lane whose state `state` describes, as the member with the number that its
    /// owner gave this process: from 1 on, below 2^20, and none of a process that was not buried.
    /// `self` is opened from the owner's open file, which keeps the lane's lock; nothing is to be
    /// claimed through it, since the locks on that file are the owner's as well.
    ///
    /// A process that is forked is another member. One that shares this one's memory until it
    /// executes a program (`vfork`) is part of this one, which is not
    /// [buried](super::SharedLane::bury) before.
    ///
    /// # Errors
    /// [`PoolErrorKind::Damaged`] if it is no state of a lane of this version and this pool; I/O
    /// errors of mapping it.
    pub fn join(&self, state: BorrowedFd<'_>, member: u32) -> Result<Member, PoolError> {
        self.core.check_writable()?;
        let state = Mapped::<SharedState>::map(state)
            .map_err(|e| PoolError::io(self.path(), "mapping a shared lane", e.into()))?;
        if state.version() != VERSION || member == 0 || member >= MEMBERS_MAX {
            let what = format!(
                "the shared lane is of version {:016x}, this program knows {VERSION:016x}: install forebay and libforebay.so of one release",
                state.version()
            );
            return Err(PoolError::new(self.path(), PoolErrorKind::Damaged { what }));
        }
        let pool = self.uuid();
        if state.pool() != pool {
            let what = format!(
                "the shared lane is in pool {}, this one is {pool}",
                state.pool()
            );
            return Err(PoolError::new(self.path(), PoolErrorKind::Damaged { what }));
        }
        let shared = self.core.media.share(DescriptorSharing::IsReceived);
        shared.map_err(|e| PoolError::io(self.path(), "joining a shared lane", e))?;
        Ok(Member::new(Arc::clone(&self.core), Arc::new(state), member))
    }
}

impl Member {
    pub(super) fn new(core: Arc<Core>, state: Arc<Mapped<SharedState>>, member: u32) -> Self {
        Self {
            owner: state.owner(),
            epoch: state.epoch.load(Relaxed),
            segment_bytes: core.superblock.geometry.segment_bytes,
            ready: PrefaultedParts::new(core.media.bytes()),
            needs_commit: core.media.needs_commit(),
            is_orphan: || false,
            core,
            state,
            member,
        }
    }

    /// The largest payload of a record: half a segment less the header.
    #[must_use]
    pub fn payload_max(&self) -> usize {
        usize::try_from(self.segment_bytes / 2).unwrap_or(usize::MAX) - HEADER
    }

    pub(super) fn number(&self) -> u32 {
        self.member
    }

    /// The descriptor of the pool's file has this number from now on: the program wanted the one
    /// before. Nothing is committed meanwhile.
    pub fn moved(&self, to: RawFd) {
        self.core.media.moved(to);
    }

    /// The pool's open file, if the pool's bytes do not lie there, but on legs. As of
    /// [`moved`](Self::moved).
    #[must_use]
    pub fn file_elsewhere(&self) -> Option<BorrowedFd<'_>> {
        self.core.file_elsewhere()
    }

    /// The session number stamped on records.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The addresses at which the lane's state is mapped.
    #[must_use]
    pub fn state_memory(&self) -> Range<usize> {
        self.state.memory()
    }

    /// The addresses at which the pool is mapped; empty if it is in no memory.
    #[must_use]
    pub fn pool_memory(&self) -> Range<usize> {
        self.core.media.memory()
    }

    /// The addresses at which it asks the lane's owner to write to the pool, if it does.
    #[must_use]
    pub fn posts_memory(&self) -> Range<usize> {
        self.core.media.posts_memory()
    }

    /// Log address below which everything is durable.
    #[must_use]
    pub fn published(&self) -> Lsn {
        self.state.mark.0.load(Acquire)
    }

    /// Log address at which the open segment starts.
    ///
    /// # Errors
    /// [`AppendError::Closed`].
    #[inline]
    pub fn segment(&self) -> Result<Lsn, AppendError> {
        Ok(self.open_segment()?.2)
    }

    /// Appends a record of `kind` whose payload is the concatenation of `parts` to the open
    /// segment, if that is the one that starts at `segment`. Returns when it is durable, and with
    /// it every record of the lane with a lower address. `None` if another segment is open, or this
    /// one has no room ([`next_segment`](Self::next_segment) opens the next).
    ///
    /// # Errors
    /// [`AppendError::TooLarge`], [`AppendError::Closed`], [`AppendError::Forked`].
    ///
    /// # Panics
    /// If `kind` is 0 or 0xFFFF, the pool's own.
    #[inline]
    pub fn append_in(
        &self,
        segment: Lsn,
        kind: u16,
        parts: &[IoSlice<'_>],
    ) -> Result<Option<Lsn>, AppendError> {
        let payload = payload_of(kind, parts, self.payload_max())?;
        self.core.check_own()?;
        let bytes = record_bytes(payload);
        self.get_ready(bytes);
        let writer = self.announce()?;
        crate::failpoint!("shared:announced");
        let reserved = match self.reserve(segment, bytes) {
            Ok(ReserveOutcome::Reserved(reserved)) => reserved,
            other => {
                writer.free();
                return other.map(|_| None);
            }
        };
        crate::failpoint!("shared:reserved");
        let ReservedPlace { offset, lsn } = reserved;
        writer.claim(lsn, lsn + bytes);
        crate::failpoint!("shared:claimed");
        let header = self.header(lsn, kind, payload);
        write_record(&*self.core.media, offset, &header, self.owner, parts);
        crate::failpoint!("shared:written");
        self.publish(lsn, lsn + bytes, writer)?;
        Ok(Some(lsn))
    }

    /// True if `bytes` bytes of records have room in the open segment, or the next one is prepared.
    /// So also of a lane that is closed: an append says that.
    #[inline]
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        self.open_segment().map_or(true, |(tail, _, start)| {
            let (_, lsn) = split(tail);
            let limit = start + self.segment_bytes;
            bytes <= limit.saturating_sub(lsn) || self.next_tail(limit).is_some()
        })
    }

    /// Has the pages that the next `bytes` bytes of the log go to mapped, while no other member
    /// waits for this one.
    #[inline]
    fn get_ready(&self, bytes: u64) {
        if let Ok((tail, offset, start)) = self.open_segment() {
            let (_, lsn) = split(tail);
            let done = lsn - start;
            let end = self.segment_bytes.min(done + bytes);
            self.ready
                .get(&*self.core.media, offset + done..offset + end);
        }
    }

    #[inline]
    pub(super) fn mark(&self) -> MemberMark<'_> {
        MemberMark(self)
    }

    #[inline]
    pub(super) fn announce(&self) -> Result<&WriterCell, AppendError> {
        let writer = self.state.announce(self.member);
        writer.ok_or(AppendError::Closed)
    }

    /// The owner is gone, so that no hole is filled any more: nothing is appended by any member
    /// from now on, and appends of any that wait for an earlier record end with
    /// [`AppendError::Closed`]. Their records are written; whether they are recovered depends on
    /// those before them.
    pub fn abandon(&self) {
        self.state.abandon();
    }

    /// An append or a commit that waits for another asks `is_orphan` whether the owner is gone, and
    /// ends with [`AppendError::Closed`] then: the other may be dead, and is replaced by none.
    #[must_use]
    pub fn asking(mut self, is_orphan: fn() -> bool) -> Self {
        self.is_orphan = is_orphan;
        self.core.media.ask_owner(is_orphan);
        self
    }

    /// Appends to whatever segment is open, waiting for the owner while there is no room.
    ///
    /// # Errors
    /// As [`append_in`](Self::append_in).
    ///
    /// # Panics
    /// As [`append_in`](Self::append_in).
    #[inline]
    pub fn append(&self, kind: u16, parts: &[IoSlice<'_>]) -> Result<Lsn, AppendError> {
        loop {
            let segment = self.segment()?;
            if let Some(lsn) = self.append_in(segment, kind, parts)? {
                return Ok(lsn);
            }
            let seen = self.prepared();
            if self.next_segment(segment)?.is_none() {
                self.wait(seen, Duration::from_millis(20));
            }
        }
    }

    /// Tail, offset in the pool and start of the open segment.
    #[inline]
    pub(super) fn open_segment(&self) -> Result<(u64, u64, Lsn), AppendError> {
        let geometry = &self.core.superblock.geometry;
        loop {
            let tail = self.state.tail.0.load(Acquire);
            if tail == NONE || self.state.is_closed() {
                return Err(AppendError::Closed);
            }
            let (slot, lsn) = split(tail);
            // Read between two looks at the tail: it never comes back to a value, so the slot held
            // this segment in between.
            let segment = self.state.segment(slot, geometry);
            if self.state.tail.0.load(Acquire) != tail {
                continue;
            }
            let inside = |(_, start): &(u64, Lsn)| {
                (first(*start)..=start + self.segment_bytes).contains(&lsn)
            };
            // A member has written nonsense there.
            let (offset, start) = segment.filter(inside).ok_or(AppendError::Closed)?;
            return Ok((tail, offset, start));
        }
    }

    #[inline]
    fn reserve(&self, wanted: Lsn, bytes: u64) -> Result<ReserveOutcome, AppendError> {
        loop {
            let (tail, offset, start) = self.open_segment()?;
            let (slot, lsn) = split(tail);
            if start != wanted || lsn + bytes > start + self.segment_bytes {
                return Ok(ReserveOutcome::Full);
            }
            crate::failpoint!("shared:looked");
            if self.exchange_tail(tail, pack(slot, lsn + bytes)) {
                let offset = offset + (lsn - start);
                return Ok(ReserveOutcome::Reserved(ReservedPlace { offset, lsn }));
            }
        }
    }

    #[inline]
    pub(super) fn exchange_tail(&self, from: u64, to: u64) -> bool {
        (self.state.tail.0)
            .compare_exchange(from, to, AcqRel, Relaxed)
            .is_ok()
    }

    #[inline]
    fn header(&self, lsn: Lsn, kind: u16, payload: usize) -> RecordHeader {
        RecordHeader {
            length: u32::try_from(payload).unwrap_or(u32::MAX),
            lsn,
            epoch: self.epoch,
            lag: self.lag(lsn),
            kind,
        }
    }

    #[inline]
    fn lag(&self, lsn: Lsn) -> u32 {
        let durable = match self.needs_commit {
            true => self.state.commits.committed(),
            false => self.published(),
        };
        let lines = lsn.saturating_sub(durable) / LINE as u64;
        u32::try_from(lines).unwrap_or(u32::MAX)
    }

    /// Makes `[from, to)`, at `offset` in the pool, a void record, durably.
    pub(super) fn void(&self, offset: u64, from: Lsn, to: Lsn) {
        let log = (self.owner, self.epoch);
        write_void(&*self.core.media, offset, (from, to), log, self.lag(from));
    }

    #[inline]
    pub(super) fn publish(
        &self,
        from: Lsn,
        to: Lsn,
        writer: &WriterCell,
    ) -> Result<(), AppendError> {
        let published = self.state.finished.publish(&self.mark(), from, to);
        crate::failpoint!("shared:published");
        writer.free();
        if published {
            Ok(())
        } else {
            Err(AppendError::Closed)
        }
    }
}
