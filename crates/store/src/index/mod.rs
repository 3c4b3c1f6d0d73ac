//! The index: key → address of its newest record in the log.
//!
//! The store keeps recent keys in memory (`memtable`); the [`Index`] holds all older ones in sorted
//! tables on disk. The store's background thread is the only one that calls [`Index::ingest`] and
//! [`Index::compact`]; any thread may take snapshots and read them, at any time, without waiting
//! for either.
//!
//! Its rooms:
//!
//! * `address`: the bytes of an entry; `table`: one file, in lsm-tree's table format; `lookup`: the
//!   short way to a key in it; `prefix_filter`: which prefixes its keys have;
//! * `writer`: entries in, tables out; `dead_stretch`: a range in the place of many tombstones;
//!   `run`: tables in order; `view`: the runs of one moment; `scan`: ordered iteration;
//! * `values`: the log's values, in the block cache's memory;
//! * `manifest`: which tables there are; `policy` and `merge`: compaction;
//! * `lsm`: who calls what when, and the locks.
//!
//! The index is never the only copy of anything that is not also in the log above its
//! [`watermark`](Index::watermark): what an ingestion had not made durable at a crash is replayed
//! from the log.
mod address;
mod dead_stretch;
mod lookup;
mod lsm;
mod manifest;
mod merge;
mod policy;
mod prefix_filter;
mod run;
mod scan;
mod table;
mod values;
mod view;
mod writer;

pub(crate) use values::ValueCache;

pub use crate::{
    index_error::{IndexCause, IndexError},
    limits::STORED_KEY_BYTES_MAX as KEY_BYTES_MAX,
};
pub use lsm::{Index, IndexOptions};
pub(crate) use lsm::{MergeState, NamedTable};
pub use view::IndexView;

use std::ops::Bound;

/// The place of a key's newest record in the log, and the way to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordAddress {
    /// Log address (bytes since the log began) of the bytes to read.
    pub lsn: u64,
    /// Number of bytes to read there.
    pub len: u32,
    /// The form of those bytes.
    pub form: ValueForm,
}

#[cfg(test)]
impl RecordAddress {
    /// That of a record at `lsn`, for tests which read none.
    pub(crate) fn at(lsn: u64) -> Self {
        Self {
            lsn,
            len: 64,
            form: ValueForm::Record,
        }
    }
}

/// The form of the bytes an [`RecordAddress`] leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueForm {
    /// A whole record that holds this one operation.
    Record = 1,
    /// One operation within a batch's record, with a checksum of its own.
    InBatch = 2,
    /// The key is deleted; nothing need be read. Tables keep no address for it: it is found with
    /// `lsn` and `len` 0.
    Tombstone = 3,
}

/// Reads arbitrary bytes as the index's manifest, as they are and with the right checksum
/// (`fuzzed`).
#[cfg(feature = "failpoints")]
pub(crate) fn fuzz_manifest(data: &[u8]) {
    manifest::fuzz(data);
}

/// The result of an index lookup or iteration for one key.
pub type IndexEntry = (Vec<u8>, RecordAddress);

/// A key range, as `RangeBounds` without the generics.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Iterator over a range of one snapshot, from either end, in key order.
pub type IndexIter = Box<dyn DoubleEndedIterator<Item = Result<IndexEntry, IndexError>> + Send>;

/// An index's part of `stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct IndexStats {
    /// Bytes of all tables on disk.
    pub disk_bytes: u64,
    /// Tables on disk.
    pub tables: u64,
    /// Sorted runs that a lookup may have to visit.
    pub runs: u64,
    /// Entries in all tables, older versions and tombstones included.
    pub entries: u64,
    /// The tombstones among them.
    pub tombstones: u64,
    /// Ranges of keys that are deleted, and of which tables still have entries.
    pub deleted_ranges: u64,
    /// Memory pinned by filters and block indexes, and the block cache's present size, bytes.
    ///
    /// What is not counted: one open file and a few hundred bytes for each table, and while a table
    /// is written 8 bytes for each of its keys.
    pub memory_bytes: u64,
}
