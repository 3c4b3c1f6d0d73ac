//! Replaying the log at an opening. docs/store-format.md, "Opening", 4, 6 and 7.
//!
//! The index's tables say up to which address they are complete. Behind it the log is walked: first
//! in the value-log files, then in what the pool's lane still had. Each operation is put into the
//! memtable as the writer had put it there. A large value that no record leads to then was never
//! acknowledged, and its file goes.

use super::{StoreCore, sample::op_address};
use crate::{
    error::StoreError,
    log::{LogReader, LogTail, RoomClaim, ValueLog, VlogFile, WalkStop, ZEROS},
    op::{KeyChange, ops},
    range_tombstones::RangeTombstone,
};
use forebay_pool::{Lsn, Record};
use std::path::Path;
use uuid::Uuid;

/// Finds where the log in the files ends, and the last session there, without keeping anything.
///
/// What stands behind the first invalid record was never acknowledged, unless something behind it
/// proves the contrary: then the log is damaged, and nothing is given up without `salvage`.
pub(super) fn find_end(
    log: &ValueLog,
    owner: Uuid,
    from: Lsn,
    salvage: bool,
) -> Result<(Lsn, u32), StoreError> {
    let mut reader = LogReader::new(log, owner, log.first_from(from), Lsn::MAX);
    let (lsn, found) = loop {
        match reader.next()? {
            Ok(_) => {}
            Err(WalkStop::End) => break (Lsn::MAX, None),
            Err(WalkStop::NoFile(lsn)) => break (lsn, None),
            Err(WalkStop::Invalid(lsn, found)) => break (lsn, Some(found)),
        }
    };
    let end = (lsn, reader.epoch());
    if salvage {
        return Ok(end);
    }
    match (found, reader.file()) {
        (Some(found), Some(file)) => match evidence(log, owner, file, lsn, reader.epoch())? {
            Some(later) => Err(StoreError::lost(
                &file.path,
                lsn,
                format!(
                    "{found}, but the record had been acknowledged: a later one stands at {later}"
                ),
            )),
            None => Ok(end),
        },
        // Nothing above the watermark is ever collected.
        _ => match log.files().iter().find(|file| file.start > lsn) {
            Some(file) => Err(StoreError::damaged(
                &file.path,
                format!("no value-log file holds log address {lsn}, which comes before it"),
            )),
            None => Ok(end),
        },
    }
}

/// Looks for something behind the invalid record at `lost`, in `file`, that was only written once
/// that record was durable.
fn evidence(
    log: &ValueLog,
    owner: Uuid,
    file: &VlogFile,
    lost: Lsn,
    epoch: u32,
) -> Result<Option<Lsn>, StoreError> {
    // A file is whole on the disk before the first segment of the next one is begun.
    for later in log.files().iter().filter(|later| later.start > lost) {
        if later.holds_log()? {
            return Ok(Some(later.start));
        }
    }
    // With every put synced, a valid record proves that all before it were.
    file.find_record(owner, lost, ZEROS, |header| {
        header.epoch >= epoch && header.durable_before() > lost
    })
}

/// Hands the records of the log in the files between two addresses to `each`, with the file; what
/// cannot be read there is damage. The last session there, 0 if nothing is.
pub(super) fn walk(
    log: &ValueLog,
    owner: Uuid,
    from: Lsn,
    to: Lsn,
    mut each: impl FnMut(Record<'_>, &Path) -> Result<(), StoreError>,
) -> Result<u32, StoreError> {
    let mut reader = LogReader::new(log, owner, log.first_from(from), to);
    loop {
        match reader.next()? {
            Ok(record) => each(record, log.dir())?,
            Err(WalkStop::End) => return Ok(reader.epoch()),
            Err(WalkStop::NoFile(lsn)) => {
                return Err(StoreError::damaged(
                    log.dir(),
                    format!(
                        "no value-log file holds log address {lsn}, which is below the log's end {to}"
                    ),
                ));
            }
            Err(WalkStop::Invalid(lsn, found)) => {
                let path = reader.file().map_or(log.dir(), |file| &*file.path);
                return Err(StoreError::lost(path, lsn, found));
            }
        }
    }
}

impl StoreCore {
    /// Puts the operations of the log between the index's watermark and `files_end`, and those of
    /// `lane`, into the memtable.
    pub(super) fn replay<'r>(
        &self,
        files_end: Lsn,
        lane: impl Iterator<Item = Record<'r>>,
    ) -> Result<(), StoreError> {
        // A session that gave up the log's end, of which the index was told, left a gap.
        let from = self.log.first_from(self.watermark());
        let replayed = walk(&self.log, self.uuid, from, files_end, |record, path| {
            self.replay_record(record, path)
        });
        match replayed.map(|_| ()) {
            Err(error @ StoreError::Damaged { .. }) if self.options.salvage => {
                self.given_up.say(format!("the log from there on: {error}"));
            }
            replayed => replayed?,
        }
        for record in lane {
            if record.header.lsn >= from {
                self.replay_record(record, Path::new("the pool"))?;
            }
        }
        Ok(())
    }

    /// The same for a store that is only read, whose tail has what was in the pool.
    pub(super) fn replay_look(&self, files_end: Lsn) -> Result<(), StoreError> {
        match &self.tail {
            LogTail::ReadOnly(tail) => self.replay(files_end, tail.records()),
            _ => self.replay(files_end, std::iter::empty()),
        }
    }

    fn replay_record(&self, record: Record<'_>, path: &Path) -> Result<(), StoreError> {
        let lsn = record.header.lsn;
        forebay_pool::failpoint!("store:replay");
        let mut full = None;
        for op in ops(record) {
            let op = op.map_err(|what| StoreError::lost(path, lsn, what))?;
            self.check_stored(op.key)?;
            if self.keyspaces().is_dead(op.key) {
                continue;
            }
            if let KeyChange::DeleteRange(end) = op.change {
                let at = lsn + op.at as u64;
                let replayed = self.replay_range_delete(RangeTombstone::new(op.key, end, at));
                full = replayed.or(full);
                continue;
            }
            let hash = self.hash(op.key);
            let writers = self.locks.stripe().lock();
            full = self
                .insert(
                    RoomClaim::Put,
                    &writers.active,
                    hash,
                    op.key,
                    op_address(lsn, &op),
                )
                .or(full);
        }
        if full.is_some() {
            // Between records: what is below the new chunk's start must all be in the old ones.
            self.freeze_at(lsn + record.header.record_bytes());
        }
        Ok(())
    }

    /// Refuses tables with keys that no table of this store may have.
    pub(super) fn check_keyspaces(&self) -> Result<(), StoreError> {
        // Of keys with the mark the last one has the highest number.
        (self.index.last_key()).map_or(Ok(()), |key| self.check_stored(&key))
    }

    /// Refuses a key that was found, if it is of a keyspace that MANIFEST never had, which is older
    /// then.
    fn check_stored(&self, key: &[u8]) -> Result<(), StoreError> {
        let Some(number) = self.keyspaces().unknown(key) else {
            return Ok(());
        };
        Err(StoreError::NotOneMoment {
            dir: self.dir.clone(),
            found: format!(
                "there are keys of keyspace number {number}, which MANIFEST never had: it is older"
            ),
            gives_up: "nothing by itself: salvage makes up no MANIFEST".to_owned(),
        })
    }

    /// Removes the large values that were written since the last opening and whose record was never
    /// appended.
    pub(super) fn remove_unreferenced_large(&self, from: u64) -> Result<(), StoreError> {
        // The manifest may be one of which that session did not see that it lasts: with the one
        // before it back, a value would be missed.
        let synced = self.disk.sync_dir(&self.dir);
        synced.map_err(StoreError::io("syncing", &self.dir))?;
        let mut buffer = Vec::new();
        for id in self.large.ids()?.into_iter().filter(|&id| id >= from) {
            let referenced = match self.large.key_of(id) {
                Ok(key) => match self.leads_to(&key, id, &mut buffer) {
                    // A reader of the key will get the error.
                    Err(StoreError::Damaged { .. }) => true,
                    found => found?,
                },
                // A header that is damaged, rather than never written, may be an acknowledged
                // value's: its file stays.
                Err(StoreError::Damaged { .. }) => !self.large.never_written(id)?,
                Err(e) => return Err(e),
            };
            match referenced {
                true => {}
                // What led to it may be among what was given up.
                false if self.options.salvage => {
                    self.given_up.set_aside(&*self.disk, &self.large.path(id))?;
                }
                false => self.large.remove(id)?,
            }
        }
        Ok(())
    }
}
