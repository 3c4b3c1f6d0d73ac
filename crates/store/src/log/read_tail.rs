//! [`ReadTail`]: the end of a log that another process may be writing, as it was at one moment.

use forebay_pool::{LaneCopy, Lsn, Record};

/// The log's end, and the records that were in a pool only.
pub(crate) struct ReadTail {
    end: Lsn,
    copy: Option<LaneCopy>,
}

impl ReadTail {
    pub(crate) fn new(end: Lsn, copy: Option<LaneCopy>) -> Self {
        Self { end, copy }
    }

    /// The log address behind the last record.
    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    /// Log address below which everything is in the files.
    pub(crate) fn in_files(&self) -> Lsn {
        self.copy.as_ref().map_or(self.end, LaneCopy::head)
    }

    /// So many bytes at a log address, if they were in the pool.
    pub(crate) fn read(&self, lsn: Lsn, bytes: usize) -> Option<&[u8]> {
        self.copy.as_ref()?.read(lsn, bytes)
    }

    /// The records that were in the pool.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.copy.iter().flat_map(LaneCopy::records)
    }
}
