//! Replaying the log at an opening. docs/store-format.md, "Opening".
//!
//! The index's tables say up to which address they are complete. Behind it the log is walked: first in
//! the value-log files, then in what the pool's lane still had. Each operation is put into the memtable as the writer had
//! put it there.

use super::{Shared, sample::op_address};
use crate::{
    error::StoreError,
    log::{LogReader, Stop, ValueLog},
    op::ops,
};
use forebay_pool::{Lsn, Recovered, record::Record, segment::witness};
use std::path::Path;
use uuid::Uuid;

/// Finds where the log in the files ends, without keeping anything.
pub(super) fn find_end(
    log: &ValueLog,
    owner: Uuid,
    from: Lsn,
    salvage: bool,
) -> Result<Lsn, StoreError> {
    let mut reader = LogReader::new(log, owner, from, Lsn::MAX);
    let (lsn, found) = loop {
        match reader.next()? {
            Ok(_) => {}
            Err(Stop::End) => break (Lsn::MAX, None),
            Err(Stop::NoFile(lsn)) => break (lsn, None),
            Err(Stop::Invalid(lsn, found)) => break (lsn, Some(found)),
        }
    };
    // With every put synced, a valid record behind an invalid one proves that it had been acknowledged.
    if let (Some(found), Some(file), false) = (found, reader.file(), salvage) {
        let mut at = lsn;
        let length = file
            .file
            .len()
            .map_err(StoreError::io("reading", &file.path))?;
        let end = file.start + length.saturating_sub(file.offset(file.start));
        let mut window = Vec::new();
        while at < end {
            const WINDOW: u64 = 4 << 20;
            const OVERLAP: u64 = 1 << 20;
            window.resize(usize::try_from((end - at).min(WINDOW)).unwrap_or(0), 0);
            file.read(at, &mut window)?;
            if let Some(later) = witness(&window, owner, lsn, reader.epoch()) {
                return Err(StoreError::lost(
                    &file.path,
                    lsn,
                    format!(
                        "{found}, but the record had been acknowledged: a later one stands at {}",
                        later.lsn
                    ),
                ));
            }
            if window.iter().all(|&byte| byte == 0) {
                // Allocated and never written: nothing stands behind it.
                break;
            }
            at += WINDOW - OVERLAP;
        }
    }
    Ok(lsn)
}

impl Shared {
    /// Puts the operations of the log between the index's watermark and `files_end`, and those of `lane`, into the memtable.
    pub(super) fn replay(
        &self,
        files_end: Lsn,
        lane: Option<&Recovered>,
    ) -> Result<(), StoreError> {
        let from = self.watermark();
        let mut reader = LogReader::new(&self.log, self.uuid, from, files_end);
        loop {
            match reader.next()? {
                Ok(record) => self.replay_record(record, &self.dir)?,
                Err(Stop::End) => break,
                Err(stop) if self.options.salvage => {
                    // Said by `verify` and the opening's options: what stands behind is given up.
                    let _ = stop;
                    break;
                }
                Err(Stop::NoFile(lsn)) => {
                    return Err(StoreError::damaged(
                        &self.dir,
                        format!(
                            "no value-log file holds log address {lsn}, which is below the log's end {files_end}"
                        ),
                    ));
                }
                Err(Stop::Invalid(lsn, found)) => {
                    let path = reader.file().map_or(&*self.dir, |file| &*file.path);
                    return Err(StoreError::lost(path, lsn, found));
                }
            }
        }
        for record in lane.into_iter().flat_map(Recovered::records) {
            if record.header.lsn >= from {
                self.replay_record(record, Path::new("the pool"))?;
            }
        }
        Ok(())
    }

    fn replay_record(&self, record: Record<'_>, path: &Path) -> Result<(), StoreError> {
        let lsn = record.header.lsn;
        let mut full = None;
        for op in ops(record) {
            let op = op.map_err(|what| StoreError::lost(path, lsn, what))?;
            full = self
                .insert(self.hash(op.key), op.key, op_address(lsn, &op))
                .or(full);
        }
        if full.is_some() {
            // Between records: what is below the new chunk's start must all be in the old ones.
            self.freeze_at(lsn + record.header.record_bytes());
        }
        Ok(())
    }
}
