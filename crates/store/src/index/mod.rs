//! The index: key → address of its newest record in the log.
//!
//! The store keeps recent keys in memory (`memtable`); an [`Index`] holds all older ones in sorted
//! tables on disk. The store's background thread is the only one that calls [`Index::ingest`] and
//! [`Index::compact`]; any thread may take snapshots and read them, at any time, without waiting for
//! either.
//!
//! [`lsm::LsmIndex`] is the implementation. Its rooms: `address` (bytes of an entry), `table` (one file, in
//! lsm-tree's table format), `lookup` (the short way to a key in it), `writer` (entries in, tables out), `run` (tables in order),
//! `view` (the runs of one moment), `scan` (ordered iteration), `values` (the log's values, in the block cache's memory), `manifest` (which tables there are), `policy` and `merge` (compaction),
//! `lsm` (who calls what when, and the locks).
//!
//! The index is never the only copy of anything that is not also in the log above its
//! [`watermark`](Index::watermark): what an ingestion had not made durable at a crash is replayed from the log.
mod address;
mod lookup;
pub mod lsm;
mod manifest;
mod merge;
mod policy;
mod run;
mod scan;
mod table;
mod values;
mod view;
mod writer;

pub(crate) use values::ValueCache;

pub use lsm::{IndexOptions, LsmIndex};
pub use writer::KEY_BYTES_MAX;

use std::{fmt, io, ops::Bound, path::PathBuf, sync::Arc};

/// Where a key's newest record lies in the log, and how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Log address (bytes since the log began) of the bytes to read.
    pub lsn: u64,
    /// Number of bytes to read there.
    pub len: u32,
    /// How those bytes are to be read.
    pub form: Form,
}

/// The form of the bytes an [`Address`] leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Form {
    /// A whole record that holds this one operation.
    Record = 1,
    /// One operation within a batch's record, with a checksum of its own.
    InBatch = 2,
    /// The key is deleted; nothing need be read. Tables keep no address for it: it is found with `lsn` and
    /// `len` 0.
    Tombstone = 3,
}

/// Reads arbitrary bytes as the index's manifest, as they are and with the right checksum (`fuzzed`).
pub(crate) fn fuzz_manifest(data: &[u8]) {
    manifest::fuzz(data);
}

/// What an index lookup or iteration found for one key.
pub type Found = (Vec<u8>, Address);

/// A key range, as `RangeBounds` without the generics.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Iterator over a range of one snapshot, from either end, in key order.
pub type Iter = Box<dyn DoubleEndedIterator<Item = Result<Found, IndexError>> + Send>;

/// Sorted tables of keys and addresses on disk.
pub trait Index: Send + Sync {
    /// Makes a sorted run of keys part of the index, durably and as one step, together with the
    /// `watermark` up to which the log is then covered.
    ///
    /// `run` yields strictly ascending keys, tombstones included; it may be empty (the watermark
    /// still moves). A tombstone of a key that no table has is left out. Keys are 1 to [`KEY_BYTES_MAX`] bytes long. After a crash either all of it is there or
    /// nothing. One ingestion runs at a time; compaction may run beside it.
    ///
    /// # Errors
    /// I/O errors, a run or watermark that breaks these rules. The index then is as it was before, the
    /// space is given back, and the ingestion can be tried again.
    fn ingest(
        &self,
        run: &mut dyn Iterator<Item = (&[u8], Address)>,
        watermark: u64,
    ) -> Result<(), IndexError>;

    /// The watermark that the tables on disk themselves state: the log below it is covered.
    fn watermark(&self) -> u64;

    /// The present state of the tables. It does not change under its holder and costs no I/O.
    fn snapshot(&self) -> Arc<dyn IndexSnapshot>;

    /// Does one step of compaction, about the writing of one table; true if there is more to do.
    ///
    /// # Errors
    /// I/O errors and damaged tables; the index stays as it was. What was to be merged is merged anew at
    /// a later call.
    fn compact(&self) -> Result<bool, IndexError>;

    /// True if scans have passed over as many tombstones as there are entries since the last merge of all: [`compact`](Self::compact)
    /// would merge them away.
    fn is_passed_over(&self) -> bool;

    /// Merges all tables there are into one sorted run, without tombstones or replaced entries.
    ///
    /// # Errors
    /// As for [`compact`](Self::compact).
    fn merge_all(&self) -> Result<(), IndexError>;

    /// Sizes and counts for `stats`.
    fn stats(&self) -> IndexStats;

    /// Reads every table whole and checks its checksums and order.
    ///
    /// # Errors
    /// The first table that is damaged, named.
    fn verify(&self) -> Result<(), IndexError>;
}

/// A frozen view of an index.
pub trait IndexSnapshot: Send + Sync {
    /// The address of `key`, a tombstone's included; `None` if no table has the key. A tombstone is found
    /// until a merge has dropped it together with all that it hides.
    ///
    /// # Errors
    /// I/O errors and damaged tables.
    fn get(&self, key: &[u8]) -> Result<Option<Address>, IndexError>;

    /// The log address up to which the snapshot covers the log: what it holds follows from that.
    fn watermark(&self) -> u64;

    /// All keys of `range` in order, tombstones left out. A range whose start lies behind its end is empty.
    /// After an error the iterator is at its end.
    fn range(&self, range: KeyRange<'_>) -> Iter;
}

/// What `stats` says of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
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
    /// Memory pinned by filters and block indexes, and the block cache's present size, bytes.
    ///
    /// What is not counted: one open file and a few hundred bytes for each table, and while a table is
    /// written 8 bytes for each of its keys.
    pub memory_bytes: u64,
}

/// An index operation that failed.
#[derive(Debug)]
pub struct IndexError {
    /// The file or directory concerned.
    pub path: PathBuf,
    /// What was being done.
    pub doing: &'static str,
    /// Why it failed.
    pub cause: IndexCause,
}

/// Why an index operation failed.
#[derive(Debug)]
pub enum IndexCause {
    /// The operating system refused.
    Io(io::Error),
    /// The tables are damaged or not ours; the text says what was found.
    Corrupt(String),
    /// The caller asked for what an index cannot do; the text says what.
    Invalid(String),
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {}: {}: ", self.path.display(), self.doing)?;
        match &self.cause {
            IndexCause::Io(e) => write!(f, "{e}"),
            IndexCause::Corrupt(found) => write!(f, "damaged: {found}"),
            IndexCause::Invalid(what) => write!(f, "refused: {what}"),
        }
    }
}

impl std::error::Error for IndexError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            IndexCause::Io(e) => Some(e),
            IndexCause::Corrupt(_) | IndexCause::Invalid(_) => None,
        }
    }
}
