//! How much of a value-log file is garbage: an estimate by sampling, without any state on the disk.
//!
//! A record names its own log address, so a walk can begin anywhere: the first line that holds a valid record is one. Some
//! records at evenly spread places are looked up in the index; a record is live if the index leads to it.

use super::Shared;
use crate::{
    error::StoreError,
    index::{Address, Form},
    log::{LogReader, VlogFile},
    op::ops,
};
use forebay_pool::{
    Lsn,
    persist::LINE,
    record::{self, HEADER},
};

/// Places in a file at which records are looked at.
const PLACES: u64 = 24;
/// Records looked at from one place on.
const RECORDS: usize = 16;
/// Bytes read at a time to find the first record behind a place.
const WINDOW: usize = 64 << 10;

/// Bytes seen and how many of them were live.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) seen: u64,
    pub(super) live: u64,
}

impl Sample {
    /// The share of garbage; nothing seen is no garbage.
    pub(super) fn garbage(&self) -> f64 {
        if self.seen == 0 {
            return 0.0;
        }
        1.0 - self.live as f64 / self.seen as f64
    }
}

impl Shared {
    /// Looks at some records of the part of `file` that lies below `end`.
    pub(super) fn sample(&self, file: &VlogFile, end: Lsn) -> Result<Sample, StoreError> {
        let mut sample = Sample::default();
        let step = (end.saturating_sub(file.start) / PLACES).max(1);
        let mut walked_to = file.start;
        for place in 0..PLACES {
            let from = (file.start + place * step)
                .max(walked_to)
                .next_multiple_of(LINE as u64);
            if from >= end || self.stopping() {
                break;
            }
            let Some(first) = self.first_record(file, from, end)? else {
                continue;
            };
            let mut reader = LogReader::new(&self.log, self.uuid, first, end);
            reader.read_blocks_of(WINDOW);
            for _ in 0..RECORDS {
                let Ok(record) = reader.next()? else {
                    break;
                };
                let lsn = record.header.lsn;
                let bytes = record.header.record_bytes();
                let mut found = (0, 0);
                for op in ops(record).flatten() {
                    found.0 += 1;
                    found.1 += u64::from(self.is_live(op.key, lsn, &op)?);
                }
                sample.seen += bytes;
                sample.live += bytes * found.1 / found.0.max(1);
            }
            walked_to = reader.at();
        }
        Ok(sample)
    }

    /// True if the index leads from `key` to this operation of the record at `lsn`.
    pub(super) fn is_live(
        &self,
        key: &[u8],
        lsn: Lsn,
        op: &crate::op::Op<'_>,
    ) -> Result<bool, StoreError> {
        let view = self.view.load();
        let found = view.find(self.hash(key), key)?;
        Ok(found == Some(op_address(lsn, op)))
    }

    /// The address of the first valid record of `file` at or behind `from`.
    fn first_record(
        &self,
        file: &VlogFile,
        from: Lsn,
        end: Lsn,
    ) -> Result<Option<Lsn>, StoreError> {
        let mut window = Vec::new();
        let mut at = from;
        while at < end {
            let bytes = WINDOW.min(usize::try_from(end - at).unwrap_or(usize::MAX));
            window.resize(bytes, 0);
            file.read(at, &mut window)?;
            for (line, lsn) in window.chunks(LINE).zip((at..).step_by(LINE)) {
                let Ok(header) = record::peek(line) else {
                    continue;
                };
                let whole = HEADER as u64 + u64::from(header.length);
                if header.lsn != lsn || lsn + whole > end {
                    continue;
                }
                let mut bytes = vec![0; usize::try_from(whole).unwrap_or(usize::MAX)];
                file.read(lsn, &mut bytes)?;
                if record::read(&bytes, lsn, self.uuid).is_ok() {
                    return Ok(Some(lsn));
                }
            }
            at += bytes as u64;
        }
        Ok(None)
    }
}

/// The address under which the index has this operation of the record at `lsn`, if it is live. (That of a
/// delete is a tombstone's, which the index does not keep.)
pub(super) fn op_address(lsn: Lsn, op: &crate::op::Op<'_>) -> Address {
    let form = match (op.change, op.at) {
        (crate::op::Change::Delete, _) => Form::Tombstone,
        (_, 0) => Form::Record,
        _ => Form::InBatch,
    };
    Address {
        lsn: lsn + op.at as u64,
        len: u32::try_from(op.bytes).unwrap_or(u32::MAX),
        form,
    }
}
