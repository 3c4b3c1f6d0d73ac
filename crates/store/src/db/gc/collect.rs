//! Collecting one file: its live records are written to the log again, and it goes.
//!
//! All of it lies below the index's watermark. In order:
//! 1. Walk its records. One is live if the index leads from its key to it.
//! 2. For each live one: under the key's lock, if it is *still* live, append it to the log again
//!    and give the key its new address. A newer write between the look and the lock wins; a deleted
//!    key never comes back.
//! 3. Make the copies durable (in persistent memory they are).
//! 4. Take the file out of the manifest, durably. The index's tables may still lead to it, but the
//!    log above the watermark has the copies, and is replayed at an opening.
//! 5. Unlink it, once no snapshot is open that was taken before step 4 and sees anything that is in
//!    it or behind.

use super::{CollectionProgress, set_aside::is_the_files};
use crate::{
    db::{StoreCore, sample::op_address, write::large_body},
    error::StoreError,
    index::{RecordAddress, ValueForm},
    log::{LogReader, LogTail, ReserveNeed, RoomClaim, VlogFile, WalkStop},
    memtable::ReadView,
    op::{KEY_LENGTH, KIND_DELETE, KeyChange, Op},
    stats::GcReport,
};
use forebay_pool::{Lsn, Record, record_bytes};
use std::{
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Bytes of a file between two moves of the pace.
const STEP: u64 = 64 << 10;

/// The bytes that writers may write while a file is collected, beside the collector's.
#[derive(Clone, Copy)]
pub(super) struct WriteGrant {
    /// The log's tail at the start.
    pub(super) from: Lsn,
    /// Bytes for each byte of the file that was looked at.
    pub(super) share: f64,
    /// Bytes at the end.
    pub(super) then: u64,
}

impl StoreCore {
    /// Steps 1 to 4 for one file. One that cannot be collected is set aside; an error is what keeps
    /// any from being collected.
    pub(super) fn collect(
        &self,
        progress: &mut CollectionProgress,
        file: &VlogFile,
        grant: Option<WriteGrant>,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        let Some(end) = file.end() else {
            return Ok(());
        };
        match self.copy_live(progress, file, end, grant, report) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if is_the_files(&error, file) => {
                self.collector.aside.add(file, &error, self.written());
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        forebay_pool::failpoint!("store:gc-copied");
        self.tail.make_durable()?;
        self.log.retire(&[file.start], self.watermark())?;
        forebay_pool::failpoint!("store:gc-retired");
        progress
            .retired
            .push((file.start, self.snapshots().next_number()));
        self.collector.aside.remove(file.start);
        report.files += 1;
        report.reclaimed_bytes += end - file.start;
        Ok(())
    }

    /// Steps 1 and 2. False if collection ended before the file did.
    fn copy_live(
        &self,
        progress: &mut CollectionProgress,
        file: &VlogFile,
        end: Lsn,
        grant: Option<WriteGrant>,
        report: &mut GcReport,
    ) -> Result<bool, StoreError> {
        let mut reader = LogReader::new(&self.log, self.uuid, file.start, end);
        let (mut copied_bytes, mut next_step) = (0, file.start);
        let allow = |looked_at: Lsn, copied_bytes: u64, more: u64| {
            if let Some(grant) = grant {
                let earned = ((looked_at - file.start) as f64 * grant.share) as u64;
                let allowed = grant.from + copied_bytes + earned + more;
                self.collector.pace.allow(allowed);
            }
        };
        loop {
            if reader.at() >= next_step {
                allow(reader.at(), copied_bytes, 0);
                next_step = reader.at() + STEP;
            }
            let record = match reader.next()? {
                Ok(record) => record,
                Err(WalkStop::End) => {
                    allow(end, copied_bytes, grant.map_or(0, |grant| grant.then));
                    return Ok(true);
                }
                Err(WalkStop::NoFile(lsn)) => {
                    return Err(StoreError::lost(&file.path, lsn, "no file"));
                }
                // Rather keep a file than lose what stands behind damage in it.
                Err(WalkStop::Invalid(lsn, what)) => {
                    return Err(StoreError::lost(&file.path, lsn, what));
                }
            };
            if self.collection_ends() {
                return Ok(false);
            }
            report.records += 1;
            copied_bytes += loop {
                match (
                    self.copy_record(record, RoomClaim::FileCopy, &file.path, report),
                    &self.tail,
                ) {
                    // Of a batch, what was copied before is not live here any more.
                    (Err(StoreError::Full { .. }), LogTail::Resident(resident)) => {
                        self.make_room(resident, progress, report)?;
                    }
                    (copied, _) => break copied?,
                }
            };
        }
    }

    /// Step 2 for the operations of one record, which was read from `path`. The bytes that the
    /// copies take.
    pub(super) fn copy_record(
        &self,
        record: Record<'_>,
        claim: RoomClaim,
        path: &Path,
        report: &mut GcReport,
    ) -> Result<u64, StoreError> {
        let lsn = record.header.lsn;
        let mut copied_bytes = 0;
        for op in crate::op::ops(record) {
            let op = op.map_err(|what| StoreError::lost(path, lsn, what))?;
            let from = op_address(lsn, &op);
            let is_alive = self.is_alive(op.expiry);
            let copied = match op.change {
                KeyChange::Delete | KeyChange::DeleteRange(_) => None,
                _ if self.keyspaces().is_dead(op.key) => None,
                _ if is_alive => self.relocate(claim, &op, from)?,
                _ => self.drop_expired(claim, &op, from)?,
            };
            if let Some(bytes) = copied {
                copied_bytes += bytes;
                if is_alive {
                    report.relocated += 1;
                    report.relocated_bytes += bytes;
                }
                self.collector.relocated_bytes.fetch_add(bytes, Relaxed);
            }
        }
        Ok(copied_bytes)
    }

    /// Step 2: writes a record again, as it is, if the key's address is still `from`. The bytes
    /// that this took, if it was. Nothing is compressed or decompressed.
    fn relocate(
        &self,
        claim: RoomClaim,
        op: &Op<'_>,
        from: RecordAddress,
    ) -> Result<Option<u64>, StoreError> {
        let payload = KEY_LENGTH + op.key.len() + op.body.len();
        self.write_again(op.key, payload, from, |still| match op.change {
            KeyChange::Put(stored) | KeyChange::Compressed(stored)
                if payload > self.tail.payload_max() =>
            {
                self.relocate_large(claim, op, stored, still)
            }
            _ => self.write_one(claim, op.kind, op.key, op.body, ValueForm::Record, still),
        })
    }

    /// Step 2 for a value that has expired: its key is deleted if its address is still `from`. So
    /// it never comes back, whatever the clock says later.
    pub(super) fn drop_expired(
        &self,
        claim: RoomClaim,
        op: &Op<'_>,
        from: RecordAddress,
    ) -> Result<Option<u64>, StoreError> {
        let payload = KEY_LENGTH + op.key.len();
        self.write_again(op.key, payload, from, |still| {
            self.write_one(claim, KIND_DELETE, op.key, &[], ValueForm::Tombstone, still)
        })
    }

    /// Step 2: has `write` append a record of `payload` bytes if it finds under the key's lock that
    /// the key's address is still `from`. The bytes that this took, if it was.
    fn write_again(
        &self,
        key: &[u8],
        payload: usize,
        from: RecordAddress,
        write: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<Option<Lsn>, StoreError>,
    ) -> Result<Option<u64>, StoreError> {
        let hash = self.hash(key);
        let before = self.view.load_full();
        if before.find(hash, key)? != Some(from) {
            return Ok(None);
        }
        // What is collected goes through the memtable as well, and keeps to its bounds.
        self.wait_for_memtable()?;
        let mut unknown = None;
        let mut still = || {
            self.still_at(&before, hash, key, from)
                .unwrap_or_else(|error| {
                    unknown = Some(error);
                    false
                })
        };
        let written = write(&mut still)?;
        let bytes = record_bytes(payload);
        // A record of which it is unknown whether it is live must not go.
        unknown.map_or(Ok(written.map(|_| bytes)), Err)
    }

    /// Under the key's lock: true if the key's address, which was `from` in the view `before`,
    /// still is.
    pub(super) fn still_at(
        &self,
        before: &ReadView,
        hash: u64,
        key: &[u8],
        from: RecordAddress,
    ) -> Result<bool, StoreError> {
        let now = self.view.load();
        if let Some(deleted) = &now.deleted
            && deleted.hides(key, from.lsn)
        {
            return Ok(false);
        }
        // What changed since is in memory, unless the tables changed as well.
        let in_memory = now
            .active
            .iter()
            .chain(&now.frozen)
            .find_map(|chunk| chunk.get(hash, key));
        Ok(match in_memory {
            Some(address) => address == from,
            None if Arc::ptr_eq(&now.tables, &before.tables) => true,
            None => now.tables.get(key)? == Some(from),
        })
    }

    /// A value that was written when segments were larger than today's becomes a large one.
    fn relocate_large(
        &self,
        claim: RoomClaim,
        op: &Op<'_>,
        stored: &[u8],
        still: impl FnMut() -> bool,
    ) -> Result<Option<Lsn>, StoreError> {
        let compressed = matches!(op.change, KeyChange::Compressed(_));
        let write = || self.large.write_stored(op.key, stored, compressed);
        let reserve = self.log.reserve();
        let large = reserve.with_room(ReserveNeed::Log, StoreError::is_full_disk, write)?;
        let (kind, reference) = large_body(&large.value, op.expiry);
        let written = self.write_one(claim, kind, op.key, &reference, ValueForm::Record, still);
        let in_vain = match &written {
            Ok(written) => written.is_none(),
            Err(error) => error.nothing_logged(),
        };
        if in_vain {
            large.discard();
        }
        written
    }

    /// Step 5, for all files that no snapshot needs; the same for large values.
    pub(super) fn unlink_retired(
        &self,
        progress: &mut CollectionProgress,
    ) -> Result<(), StoreError> {
        let (gone, kept): (Vec<_>, Vec<_>) = progress
            .retired
            .iter()
            .partition(|(start, number)| self.snapshots().none_sees(*number, *start));
        let held = kept.iter().filter_map(|(start, _)| self.log.find(*start));
        let held = held.map(|file| file.log_bytes()).sum();
        self.collector.held_bytes.store(held, Relaxed);
        progress.retired = kept;
        if !gone.is_empty() {
            let starts: Vec<Lsn> = gone.iter().map(|(start, _)| *start).collect();
            self.collector
                .files_removed
                .fetch_add(starts.len() as u64, Relaxed);
            self.log.unlink(&starts);
        }
        self.remove_retired_large(progress)
    }
}
