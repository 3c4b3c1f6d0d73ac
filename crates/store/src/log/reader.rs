//! [`LogReader`]: walks the records of the value-log files in address order.

use super::{ValueLog, VlogFile};
use crate::error::StoreError;
use forebay_pool::{
    Lsn, PAGE, Record, RecordHeader,
    format::{
        record::{self, HEADER, InvalidRecord, KIND_SEAL, KIND_VOID},
        segment::{SEGMENT_HEADER, SegmentHeader, next_start},
    },
    persist::LINE,
};
use std::sync::Arc;
use uuid::Uuid;

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;
/// Bytes that the kernel is asked to have ready ahead of a long walk.
const AHEAD: usize = 4 << 20;

/// The reason that a walk stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalkStop {
    /// At the address it was told to stop at.
    End,
    /// There is no file for this address.
    NoFile(Lsn),
    /// There is no valid record at this address.
    Invalid(Lsn, InvalidRecord),
}

/// A walk over the log from one address to another.
pub(crate) struct LogReader<'a> {
    log: &'a ValueLog,
    owner: Uuid,
    at: Lsn,
    end: Lsn,
    /// The file that holds `at`, once looked for.
    file: Option<Arc<VlogFile>>,
    /// Bytes read at a time.
    block_bytes: usize,
    /// Log bytes from `block_at` on.
    block: Vec<u8>,
    block_at: Lsn,
    /// The kernel was asked for what lies below.
    asked_to: Lsn,
    /// End of the present segment's space, if its header was seen.
    limit: Option<Lsn>,
    /// Epochs never fall along the log.
    epoch: u32,
    /// Bytes of voids that were stepped over.
    void_bytes: u64,
}

impl<'a> LogReader<'a> {
    /// Walks from `from`, which is the address of a record, of a segment, or of the end, up to
    /// `end`.
    pub(crate) fn new(log: &'a ValueLog, owner: Uuid, from: Lsn, end: Lsn) -> Self {
        Self {
            log,
            owner,
            at: from,
            end,
            file: None,
            block_bytes: BLOCK,
            block: Vec::new(),
            block_at: 0,
            asked_to: 0,
            limit: None,
            epoch: 0,
            void_bytes: 0,
        }
    }

    /// Reads so many bytes at a time, for a short walk.
    pub(crate) fn read_blocks_of(&mut self, bytes: usize) {
        self.block_bytes = bytes;
    }

    /// Goes to the first valid record at `from` or behind; false if there is none. A record names
    /// its own address, so this needs no knowledge of where records begin.
    pub(crate) fn seek(&mut self, from: Lsn) -> Result<bool, StoreError> {
        (self.limit, self.epoch) = (None, 0);
        self.at = from.next_multiple_of(LINE as u64);
        while self.at < self.end && self.find_file() {
            let at = self.at;
            if let Ok(header) = record::peek(self.bytes(HEADER)?)
                && header.lsn == at
                && at + header.record_bytes() <= self.end
            {
                let (bytes, owner) = (HEADER + header.length as usize, self.owner);
                if !self.is_beyond_the_file(bytes)?
                    && record::read(self.bytes(bytes)?, at, owner).is_ok()
                {
                    return Ok(true);
                }
            }
            self.at += LINE as u64;
        }
        Ok(false)
    }

    /// Goes to an address, of which it is not known whether a record begins there: only
    /// [`seek`](Self::seek) goes on from here.
    pub(crate) fn skip_to(&mut self, at: Lsn) {
        self.at = at.max(self.at).min(self.end);
    }

    /// The walk's place: behind the last record returned.
    pub(crate) fn at(&self) -> Lsn {
        self.at
    }

    /// The present file, if any.
    pub(crate) fn file(&self) -> Option<&VlogFile> {
        self.file.as_deref()
    }

    /// Bytes of the log that hold nothing (commits on a disk end a page) and were stepped over
    /// since this was asked last.
    pub(crate) fn take_void_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.void_bytes)
    }

    /// The last epoch seen.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The next record, or why there is none.
    pub(crate) fn next(&mut self) -> Result<Result<Record<'_>, WalkStop>, StoreError> {
        loop {
            if self.at >= self.end {
                return Ok(Err(WalkStop::End));
            }
            if !self.find_file() {
                return Ok(Err(WalkStop::NoFile(self.at)));
            }
            if self.begin_segment()? {
                continue;
            }
            let at = self.at;
            let header = match self.check_record()? {
                Ok(header) => header,
                Err(invalid) => return Ok(Err(WalkStop::Invalid(at, invalid))),
            };
            self.epoch = header.epoch;
            self.at += header.record_bytes();
            match header.kind {
                KIND_SEAL => {
                    self.at = next_start(self.at);
                    self.limit = None;
                    continue;
                }
                KIND_VOID => {
                    self.void_bytes += header.record_bytes();
                    continue;
                }
                _ => {}
            }
            let skip = usize::try_from(at - self.block_at).unwrap_or(usize::MAX);
            let bytes = HEADER + header.length as usize;
            return Ok(Ok(Record {
                header,
                payload: &self.block[skip + HEADER..skip + bytes],
            }));
        }
    }

    /// Steps over the header of a segment, if one begins here. Every page may begin one: a session
    /// that ended at a page's start was not sealed.
    fn begin_segment(&mut self) -> Result<bool, StoreError> {
        if !self.at.is_multiple_of(PAGE) {
            return Ok(false);
        }
        let header = SegmentHeader::decode(self.bytes(LINE)?);
        let Some(header) = header.filter(|header| {
            header.start == self.at && header.owner == self.owner && header.epoch >= self.epoch
        }) else {
            return Ok(false);
        };
        self.epoch = header.epoch;
        self.limit = Some(self.at + header.bytes);
        self.at += SEGMENT_HEADER;
        Ok(true)
    }

    /// The header of the record that is here, of which all is in the block then; or what is wrong
    /// with it.
    fn check_record(&mut self) -> Result<Result<RecordHeader, InvalidRecord>, StoreError> {
        let at = self.at;
        if self.limit == Some(at) {
            return Ok(Err(InvalidRecord::NoMagic));
        }
        let header = match record::peek(self.bytes(HEADER)?) {
            Ok(header) if header.lsn == at && header.epoch >= self.epoch => header,
            Ok(header) => return Ok(Err(InvalidRecord::Elsewhere(header.lsn))),
            Err(invalid) => return Ok(Err(invalid)),
        };
        let bytes = HEADER + header.length as usize;
        let room = self.file.as_ref().map_or(0, |f| {
            let limit = (f.start + f.bytes).max(f.end().unwrap_or(0));
            limit.saturating_sub(at)
        });
        if bytes as u64 > room || self.is_beyond_the_file(bytes)? {
            return Ok(Err(InvalidRecord::Short {
                found: room as usize,
                needed: bytes,
            }));
        }
        let owner = self.owner;
        let read = record::read(self.bytes(bytes)?, at, owner);
        Ok(read.map(|_| header))
    }

    /// Finds the file that holds the present address, if there is one.
    fn find_file(&mut self) -> bool {
        if self.file.as_ref().is_none_or(|file| !file.holds(self.at)) {
            self.file = self.log.find(self.at);
            self.block.clear();
            self.asked_to = self.at;
        }
        self.file.is_some()
    }

    /// True if so many bytes, more than are read at a time anyway, are not in the file: a length
    /// that only says so is not to cost memory.
    fn is_beyond_the_file(&self, bytes: usize) -> Result<bool, StoreError> {
        match &self.file {
            Some(file) if bytes > BLOCK => {
                Ok(file.start.saturating_add(file.bytes_there()?) < self.at + bytes as u64)
            }
            _ => Ok(false),
        }
    }

    /// At least `bytes` bytes at the present address, as far as the file has them; zeros behind its
    /// end.
    fn bytes(&mut self, bytes: usize) -> Result<&[u8], StoreError> {
        let in_block = self
            .at
            .checked_sub(self.block_at)
            .and_then(|skip| usize::try_from(skip).ok())
            .filter(|skip| skip + bytes <= self.block.len());
        if let Some(skip) = in_block {
            return Ok(&self.block[skip..]);
        }
        let Some(file) = &self.file else {
            return Ok(&[]);
        };
        let length = file
            .file
            .len()
            .map_err(StoreError::io("reading", &file.path))?;
        let there =
            usize::try_from(length.saturating_sub(file.offset(self.at))).unwrap_or(usize::MAX);
        // Not beyond the walk's end: there a file may be written, and cut, meanwhile.
        let to_end = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        if self.block_bytes == BLOCK {
            let ahead = self.at + there.min(to_end).min(BLOCK + AHEAD) as u64;
            if let Some(more) = ahead.checked_sub(self.asked_to).filter(|more| *more > 0) {
                file.file.will_need(file.offset(self.asked_to), more);
                self.asked_to = ahead;
            }
        }
        let wanted = bytes.max(self.block_bytes.min(to_end));
        let found = wanted.min(there);
        // Memory once zeroed is not zeroed again.
        self.block.resize(wanted, 0);
        self.block[found..].fill(0);
        if let Err(error) = file.read(self.at, &mut self.block[..found]) {
            self.block.clear();
            return Err(error);
        }
        self.block_at = self.at;
        Ok(&self.block)
    }
}
