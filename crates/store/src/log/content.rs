//! Finds a value-log file's contents without knowing where its records begin: an opening looks
//! here before it changes anything.
//!
//! A file is allocated ahead and filled from its start, so a long stretch of zeros means that
//! nothing stands behind it either. docs/store-format.md, "Opening".

use super::VlogFile;
use crate::error::StoreError;
use forebay_pool::{
    Lsn, PAGE, RecordHeader,
    format::{
        record::{self, HEADER},
        segment::next_start,
    },
    persist::LINE,
};
use uuid::Uuid;

/// Bytes read at a time.
const WINDOW: u64 = 256 << 10;
/// So many zeros end what was written, wherever one begins to look.
pub(crate) const ZEROS: u64 = 4 << 20;
/// The same behind the log's end, where a later session's first segment begins.
pub(crate) const ZEROS_AT_AN_END: u64 = WINDOW;
/// Bytes looked at first before an address: most records end within.
const BACK: u64 = 16 << 10;
/// No record is longer: half of the largest segment.
const RECORD_MAX: u64 = 32 << 20;

impl VlogFile {
    /// Bytes of the file on the disk behind its header.
    pub(crate) fn bytes_there(&self) -> Result<u64, StoreError> {
        let length = self.file.len();
        let length = length.map_err(StoreError::io("reading", &self.path))?;
        Ok(length.saturating_sub(self.offset(self.start)))
    }

    /// True if anything was ever written to it behind its header.
    pub(crate) fn holds_log(&self) -> Result<bool, StoreError> {
        let mut window = vec![0; to_usize(self.bytes_there()?.min(WINDOW))];
        self.read(self.start, &mut window)?;
        Ok(window.iter().any(|&byte| byte != 0))
    }

    /// The first valid record of `owner` at `from` or behind, with the header that `wanted` asks
    /// for, and with less than `zeros` zeros before it.
    pub(crate) fn find_record(
        &self,
        owner: Uuid,
        from: Lsn,
        zeros: u64,
        wanted: impl Fn(&RecordHeader) -> bool,
    ) -> Result<Option<Lsn>, StoreError> {
        let end = self.start.saturating_add(self.bytes_there()?);
        let (mut window, mut record) = (Vec::new(), Vec::new());
        let mut at = from.max(self.start).next_multiple_of(LINE as u64);
        let mut zeros_from = at;
        while at < end {
            window.resize(to_usize((end - at).min(WINDOW)), 0);
            self.read(at, &mut window)?;
            if window.iter().all(|&byte| byte == 0) {
                at += WINDOW;
                if at - zeros_from >= zeros {
                    // Allocated and never written: nothing stands behind it.
                    break;
                }
                continue;
            }
            for (line, lsn) in window.chunks(LINE).zip((at..).step_by(LINE)) {
                let Ok(header) = record::peek(line) else {
                    continue;
                };
                let bytes = HEADER as u64 + u64::from(header.length);
                if header.lsn == lsn && wanted(&header) && bytes <= end - lsn {
                    record.resize(to_usize(bytes), 0);
                    self.read(lsn, &mut record)?;
                    if record::read(&record, lsn, owner).is_ok() {
                        return Ok(Some(lsn));
                    }
                }
            }
            at += WINDOW;
            zeros_from = at;
        }
        Ok(None)
    }

    /// The address at which the file's content stops short of `to`, which the log is known to reach
    /// in this file: from there on it has only zeros. `None` if it reaches, or has bytes that are
    /// no record: that is damage, and not for an opening to judge.
    pub(crate) fn stops_short_of(&self, owner: Uuid, to: Lsn) -> Result<Option<Lsn>, StoreError> {
        let zeros_from = self.zeros_before(to)?;
        if to - zeros_from < PAGE {
            return Ok(None);
        }
        // Unless the last record ends in zeros of its own.
        let earliest = zeros_from.saturating_sub(RECORD_MAX).max(self.start);
        let mut bytes = vec![0; to_usize(to.min(zeros_from + RECORD_MAX) - earliest)];
        self.read(earliest, &mut bytes)?;
        let last = (earliest..zeros_from)
            .step_by(LINE)
            .zip(bytes.chunks(LINE))
            .filter(|(lsn, line)| record::peek(line).is_ok_and(|header| header.lsn == *lsn))
            .filter_map(|(lsn, _)| {
                record::read(&bytes[to_usize(lsn - earliest)..], lsn, owner).ok()
            })
            .last();
        let whole = last.is_some_and(|r| next_start(r.header.lsn + r.header.record_bytes()) >= to);
        Ok((!whole).then_some(zeros_from))
    }

    /// The first address from which on there are only zeros up to `to`, rounded down to a line.
    fn zeros_before(&self, to: Lsn) -> Result<Lsn, StoreError> {
        let (mut end, mut step) = (to, BACK);
        let mut bytes = Vec::new();
        while end > self.start {
            let from = end.saturating_sub(step).max(self.start);
            bytes.resize(to_usize(end - from), 0);
            self.read(from, &mut bytes)?;
            if let Some(last) = bytes.iter().rposition(|&byte| byte != 0) {
                return Ok((from + last as u64 + 1)
                    .next_multiple_of(LINE as u64)
                    .min(to));
            }
            (end, step) = (from, WINDOW);
        }
        Ok(self.start)
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
