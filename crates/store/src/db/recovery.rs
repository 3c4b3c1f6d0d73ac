//! Replaying the log at an opening. docs/store-format.md, "Opening".
//!
//! The index's tables say up to which address they are complete. Behind it the log is walked: first in
//! the value-log files, then in what the pool's lane still had. Each operation is put into the memtable as the writer had
//! put it there.

use super::{Shared, sample::op_address};
use crate::{
    error::StoreError,
    log::{LogReader, Stop, ValueLog, VlogFile},
    op::ops,
};
use forebay_pool::{
    Lsn, Recovered,
    persist::LINE,
    record::{self, HEADER, Record},
    segment::SegmentHeader,
};
use std::path::Path;
use uuid::Uuid;

/// Finds where the log in the files ends, without keeping anything.
///
/// What stands behind the first invalid record was never acknowledged, unless something behind it proves the
/// contrary: then the log is damaged, and nothing is given up without `salvage`.
pub(super) fn find_end(
    log: &ValueLog,
    owner: Uuid,
    from: Lsn,
    salvage: bool,
) -> Result<Lsn, StoreError> {
    let mut reader = LogReader::new(log, owner, log.first_from(from), Lsn::MAX);
    let (lsn, found) = loop {
        match reader.next()? {
            Ok(_) => {}
            Err(Stop::End) => break (Lsn::MAX, None),
            Err(Stop::NoFile(lsn)) => break (lsn, None),
            Err(Stop::Invalid(lsn, found)) => break (lsn, Some(found)),
        }
    };
    if let (Some(found), Some(file), false) = (found, reader.file(), salvage)
        && let Some(later) = evidence(log, owner, file, lsn, reader.epoch())?
    {
        return Err(StoreError::lost(
            &file.path,
            lsn,
            format!("{found}, but the record had been acknowledged: a later one stands at {later}"),
        ));
    }
    Ok(lsn)
}

/// Looks for something behind the invalid record at `lost`, in `file`, that was only written once that record was durable.
fn evidence(
    log: &ValueLog,
    owner: Uuid,
    file: &VlogFile,
    lost: Lsn,
    epoch: u32,
) -> Result<Option<Lsn>, StoreError> {
    // A file is whole on the disk before the first segment of the next one is begun.
    for later in log.files().iter().filter(|later| later.start > lost) {
        let mut line = [0; LINE];
        later.read(later.start, &mut line)?;
        let header = SegmentHeader::decode(&line);
        if header.is_some_and(|h| h.start == later.start && h.owner == owner) {
            return Ok(Some(later.start));
        }
    }
    // With every put synced, a valid record proves that all before it were.
    const WINDOW: u64 = 4 << 20;
    let length = file
        .file
        .len()
        .map_err(StoreError::io("reading", &file.path))?;
    let end = file.start + length.saturating_sub(file.offset(file.start));
    let mut window = Vec::new();
    let mut record = Vec::new();
    let mut at = lost;
    while at < end {
        window.resize(usize::try_from((end - at).min(WINDOW)).unwrap_or(0), 0);
        file.read(at, &mut window)?;
        if window.iter().all(|&byte| byte == 0) {
            // Allocated and never written: nothing stands behind it.
            break;
        }
        for (line, lsn) in window.chunks(LINE).zip((at..).step_by(LINE)) {
            let Ok(header) = record::peek(line) else {
                continue;
            };
            let bytes = HEADER as u64 + u64::from(header.length);
            if header.lsn == lsn
                && header.epoch >= epoch
                && header.durable_before() > lost
                && lsn + bytes <= end
            {
                record.resize(usize::try_from(bytes).unwrap_or(0), 0);
                file.read(lsn, &mut record)?;
                if record::read(&record, lsn, owner).is_ok() {
                    return Ok(Some(lsn));
                }
            }
        }
        at += WINDOW;
    }
    Ok(None)
}

impl Shared {
    /// Puts the operations of the log between the index's watermark and `files_end`, and those of `lane`, into the memtable.
    pub(super) fn replay(
        &self,
        files_end: Lsn,
        lane: Option<&Recovered>,
    ) -> Result<(), StoreError> {
        // A session that gave up the log's end, of which the index was told, left a gap.
        let from = self.log.first_from(self.watermark());
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
        forebay_pool::failpoint!("store:replay");
        let mut full = None;
        for op in ops(record) {
            let op = op.map_err(|what| StoreError::lost(path, lsn, what))?;
            let hash = self.hash(op.key);
            let writers = self.stripe(hash).lock();
            full = self
                .insert(&writers.active, hash, op.key, op_address(lsn, &op))
                .or(full);
        }
        if full.is_some() {
            // Between records: what is below the new chunk's start must all be in the old ones.
            self.freeze_at(lsn + record.header.record_bytes());
        }
        Ok(())
    }
}
