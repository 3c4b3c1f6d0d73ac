//! [`FileTail`]: the log's end without a pool: records go straight to the last value-log file.
//!
//! The file gets the same segments and records as a pool's lane would have. With `sync`, each
//! append is synced before it returns ([`Durability::Fsync`](crate::Durability)); without, nothing
//! is until [`FileTail::sync`].
//!
//! With `sync` they are written past the page cache, by whole pages. A page that goes to the disk
//! by way of the cache is at the mercy of the file system between write and sync. When that aborts
//! there (ext4 after an error of its journal, or when it is shut down), a sync may return without
//! the page, and without an error. A write past the cache has reached the device, or failed, when
//! it returns. The last page is written again by the next append, with the same bytes in front:
//! however that is torn, what was there before is there.

use super::{ValueLog, VlogFile, tail_pages::TailPages};
use crate::error::{StoreError, is_full};
use forebay_pool::{
    Lsn, RecordHeader,
    format::{
        record::{HEADER, KIND_SEAL},
        segment::{SEGMENT_HEADER, SegmentHeader, next_start},
    },
    persist::LINE,
    record_bytes,
};
use parking_lot::Mutex;
use std::{
    io::IoSlice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};
use uuid::Uuid;

/// A segment on a full disk has so many bytes, or a multiple of it.
const SMALL: u64 = 256 << 10;

/// The tail that appends go to when there is no pool.
pub(crate) struct FileTail {
    owner: Uuid,
    epoch: u32,
    segment_bytes: u64,
    sync_each: bool,
    log: Arc<ValueLog>,
    state: Mutex<TailState>,
    /// Log address of the next record.
    tail: AtomicU64,
}

struct TailState {
    /// The present segment's file and start; none before the first append.
    segment: Option<(Arc<VlogFile>, Lsn)>,
    /// Its bytes.
    segment_bytes: u64,
    /// The present segment ends at `at`: whatever stood behind its seal would never be found.
    sealed: bool,
    at: Lsn,
    /// All before this is synced. A seal is not, until the first record behind it is.
    durable: Lsn,
    /// The log's last page, and the record under construction; kept so that its memory is.
    pages: TailPages,
    /// Why nothing can be appended any more.
    failed: Option<String>,
}

impl FileTail {
    /// Appends go to `start`, a multiple of 4 KiB, and on.
    pub(crate) fn new(
        owner: Uuid,
        epoch: u32,
        segment_bytes: u64,
        sync_each: bool,
        log: Arc<ValueLog>,
        start: Lsn,
    ) -> Self {
        Self {
            owner,
            epoch,
            segment_bytes,
            sync_each,
            log,
            state: Mutex::new(TailState {
                segment: None,
                segment_bytes,
                sealed: false,
                at: start,
                durable: start,
                pages: TailPages::default(),
                failed: None,
            }),
            tail: AtomicU64::new(start),
        }
    }

    pub(crate) fn payload_max(&self) -> usize {
        usize::try_from(self.segment_bytes / 2).unwrap_or(usize::MAX) - HEADER
    }

    /// Log address of the next record, or of the next segment.
    pub(crate) fn tail(&self) -> Lsn {
        self.tail.load(SeqCst)
    }

    pub(crate) fn append(&self, kind: u16, parts: &[IoSlice<'_>]) -> Result<Lsn, StoreError> {
        let payload: usize = parts.iter().map(|p| p.len()).sum();
        if payload > self.payload_max() {
            return Err(StoreError::BatchTooLarge {
                bytes: payload,
                bytes_max: self.payload_max(),
            });
        }
        let mut state = self.state.lock();
        if let Some(reason) = &state.failed {
            return Err(StoreError::ReadOnly {
                reason: reason.clone(),
            });
        }
        let bytes = record_bytes(payload);
        let room = match &state.segment {
            Some((_, start)) if !state.sealed => start + state.segment_bytes - state.at,
            _ => 0,
        };
        if room < bytes {
            if room > 0 {
                self.write(&mut state, KIND_SEAL, &[])?;
                state.sealed = true;
            }
            self.open_segment(&mut state, bytes)?;
        }
        let lsn = self.write(&mut state, kind, parts)?;
        if self.sync_each {
            self.sync_locked(&mut state)?;
        }
        self.tail.store(state.at, SeqCst);
        Ok(lsn)
    }

    /// Makes everything appended durable.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.sync_locked(&mut self.state.lock())
    }

    fn sync_locked(&self, state: &mut TailState) -> Result<(), StoreError> {
        // The kernel tells of a failed sync once; a second one would claim that all is well.
        if let Some(reason) = &state.failed {
            return Err(StoreError::ReadOnly {
                reason: reason.clone(),
            });
        }
        let Some((file, _)) = &state.segment else {
            return Ok(());
        };
        let file = Arc::clone(file);
        // After a failed sync it is unknown what is on the disk, so nothing may follow it.
        file.file
            .sync()
            .map_err(StoreError::io("syncing", &file.path))
            .inspect_err(|e| state.failed = Some(e.to_string()))?;
        state.durable = state.at;
        Ok(())
    }

    /// Opens the next segment, which a record of so many `bytes` fits in. On a full disk it has
    /// room for little more.
    fn open_segment(&self, state: &mut TailState, bytes: u64) -> Result<(), StoreError> {
        let start = next_start(state.at);
        let small = (SEGMENT_HEADER + bytes).next_multiple_of(SMALL);
        let small = small.min(self.segment_bytes);
        let place = |bytes| Ok((self.log.place(start, bytes, bytes)?, bytes));
        let placed = match self.log.reserve().is_short() {
            true => place(small),
            false => match place(self.segment_bytes) {
                Err(StoreError::Io { source, .. }) if is_full(&source) => place(small),
                placed => placed,
            },
        };
        let (file, segment_bytes) = placed?;
        // What the file before this one holds must be durable before the log goes on elsewhere.
        if state
            .segment
            .as_ref()
            .is_some_and(|(old, _)| old.start != file.start)
        {
            self.sync_locked(state)?;
        }
        let header = SegmentHeader {
            start,
            epoch: self.epoch,
            bytes: segment_bytes,
            owner: self.owner,
        };
        if !self.sync_each {
            let write = || (file.file).write_all_at(&header.encode(), file.offset(start));
            self.log
                .with_room(write)
                .map_err(StoreError::io("writing", &file.path))?;
        }
        // Otherwise it goes to the disk with the first record.
        state.pages.clear();
        state.pages.with(&header.encode(), &[]);
        state.pages.keep(LINE);
        state.segment = Some((file, start));
        state.segment_bytes = segment_bytes;
        state.sealed = false;
        state.at = start + SEGMENT_HEADER;
        Ok(())
    }

    /// Writes a record at the present place, which has room for it.
    fn write(
        &self,
        state: &mut TailState,
        kind: u16,
        parts: &[IoSlice<'_>],
    ) -> Result<Lsn, StoreError> {
        let Some((file, _)) = &state.segment else {
            return Ok(state.at);
        };
        let payload: usize = parts.iter().map(|p| p.len()).sum();
        // Synced one by one, a record proves that all before it were durable, but for a seal right
        // before it; otherwise nothing.
        let lag = match self.sync_each {
            true => u32::try_from((state.at - state.durable) / LINE as u64).unwrap_or(u32::MAX),
            false => u32::MAX,
        };
        let header = RecordHeader {
            length: u32::try_from(payload).unwrap_or(u32::MAX),
            lsn: state.at,
            epoch: self.epoch,
            lag,
            kind,
        };
        let encoded = header.encode(self.owner, parts);
        let length = record_bytes(payload);
        // A write that failed half-way is overwritten by the next one at the same place.
        let written = self.log.with_room(|| {
            if self.sync_each {
                let page = state.at - state.pages.used() as u64;
                let pages = state.pages.with(&encoded, parts);
                file.file.write_pages_at(pages, file.offset(page))
            } else {
                let record = state.pages.alone(&encoded, parts);
                file.file.write_all_at(record, file.offset(state.at))
            }
        });
        written.map_err(StoreError::io("writing", &file.path))?;
        if self.sync_each {
            state.pages.keep(length as usize);
        }
        let lsn = state.at;
        state.at += length;
        Ok(lsn)
    }
}
