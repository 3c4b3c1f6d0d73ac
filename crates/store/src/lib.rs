//! An embedded key-value store: values in a log whose end lies in persistent memory, keys in an
//! index that leads to them.
//!
//! Keys and values are appended to a log; an index leads from each key to its newest record. The
//! log's end lies in a [`forebay_pool::Pool`], so a put is durable after a memory copy, and is
//! drained to value-log files in large sequential writes. Without a pool, puts go to the files
//! directly ([`Durability::Fsync`], [`Durability::NoSync`]).
//!
//! ```
//! use forebay_pool::PoolOptions;
//! use forebay_store::{Batch, StoreOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let pool = PoolOptions::new().emulated(true).create(dir.path().join("pool"))?;
//! let store = StoreOptions::new().open(dir.path().join("store"), &pool)?;
//! store.put(b"forebay", b"a small pool in front of a much larger body of water")?; // durable now
//! let mut batch = Batch::new();
//! batch.put(b"a", b"1");
//! batch.delete(b"forebay");
//! store.write(&batch)?; // both, or none
//! assert!(store.get(b"forebay")?.is_none());
//! for pair in store.range("a".."c")? {
//!     let (key, value) = pair?;
//!     println!("{key:?} {:?}", &*value);
//! }
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! The modules:
//!
//! * `options`; `disk`: files, and files that fail; `op`: operations as bytes;
//! * `log`: the address space of records; `large_values`: too large for it;
//! * `memtable`: recent keys; `index`: all others; `manifest`;
//! * `db`: where they come together.
//!
//! Formats: docs/store-format.md. What is promised: docs/durability.md.

mod db;
// The three that are hidden are no part of the library's interface: they are open for its own tests
// and fuzzers.
#[doc(hidden)]
pub mod disk;
mod error;
#[doc(hidden)]
pub mod fuzzed;
#[doc(hidden)]
pub mod index;
mod index_error;
mod large_values;
mod limits;
mod log;
mod manifest;
mod memtable;
mod op;
mod options;
mod salvage;
mod stats;

pub use db::{Batch, Scan, ScanRange, Snapshot, Store, Value};
pub use error::StoreError;
pub use index::IndexStats;
pub use index_error::{IndexCause, IndexError};
pub use limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use options::{Durability, StoreOptions};
pub use stats::{GcReport, SetAside, Stats, VerifyReport, WaitStats, WriterWaits};
