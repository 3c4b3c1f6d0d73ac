//! An embedded key-value store: values in a log whose end lies in persistent memory or on a fast
//! disk, keys in an index that leads to them.
//!
//! ```
//! use forebay_pool::PoolOptions;
//! use forebay_store::StoreOptions;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir_in(".")?;
//! let pool = PoolOptions::new().on_disk(true).open_or_create(dir.path().join("pool"))?;
//! let store = StoreOptions::new().open(dir.path().join("data"), &pool)?;
//!
//! store.put("boat", "blue")?; // it survives a power cut from here on
//! if let Some(colour) = store.get("boat")? {
//!     println!("the boat is {colour:?}");
//! }
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Store`] is shared by reference between threads. Beside [`put`](Store::put),
//! [`get`](Store::get), [`delete`](Store::delete) and [`contains_key`](Store::contains_key) it has
//! [batches](Store::batch), which are written whole or not at all, [scans](Store::range) from
//! [both ends](Scan) and from [any key](Scan::seek), [several keys](Store::multi_get) as of one
//! moment, and [snapshots](Store::snapshot), which later writes leave as they are:
//!
//! ```
//! # use forebay_pool::PoolOptions;
//! # use forebay_store::StoreOptions;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let pool = PoolOptions::new().emulated(true).create(dir.path().join("pool"))?;
//! # let store = StoreOptions::new().open(dir.path().join("store"), &pool)?;
//! let before = store.snapshot()?;
//! let mut batch = store.batch();
//! batch.put("ark", "brown")?;
//! batch.put("canoe", "green")?;
//! batch.delete("boat")?;
//! store.write(&batch)?; // all of it, or nothing
//! for pair in store.range("a".."c")? {
//!     let (name, colour) = pair?;
//!     println!("{} is {colour:?}", name.escape_ascii());
//! }
//! assert!(!before.contains_key("ark")?);
//! # Ok(())
//! # }
//! ```
//!
//! What depends on what was read is done by a [transaction](Store::transaction), or for one key by
//! [`compare_and_swap`](Store::compare_and_swap), [`update`](Store::update) and
//! [`increment`](Store::increment).
//!
//! A [`Keyspace`] has keys of its own, beside those of the store's own methods: batches and
//! transactions may go over several, and [dropping](Store::drop_keyspace) one gives its space back
//! without a delete for each key. Its values [expire](KeyspaceOptions::ttl), if it was made so:
//!
//! ```
//! # use forebay_pool::PoolOptions;
//! # use forebay_store::StoreOptions;
//! use forebay_store::KeyspaceOptions;
//! use std::time::Duration;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let pool = PoolOptions::new().emulated(true).create(dir.path().join("pool"))?;
//! # let store = StoreOptions::new().open(dir.path().join("store"), &pool)?;
//! let users = store.keyspace("users", KeyspaceOptions::new())?;
//! let hour = KeyspaceOptions::new().ttl(Duration::from_secs(3600));
//! let sessions = store.keyspace("sessions", hour)?;
//! let mut batch = store.batch();
//! batch.put_in(&users, "alice", "alice@example.org")?;
//! batch.put_in(&sessions, "4711", "alice")?; // for an hour
//! store.write(&batch)?;
//! assert!(sessions.contains_key("4711")? && !users.contains_key("4711")?);
//! store.drop_keyspace("sessions")?; // all of them have to log in again
//! assert!(users.contains_key("alice")?);
//! # Ok(())
//! # }
//! ```
//!
//! Every call may wait: for a disk, for another thread that holds a key, for the collector. In an
//! asynchronous program it goes to a thread that may be kept waiting, with tokio by
//! `spawn_blocking`; the example `in_async` shows it. A scan goes there as a whole.
//!
//! | cargo feature | has |
//! |---|---|
//! | `lz4` (default) | [`Compression::Lz4`] |
//! | `zstd` | [`Compression::Zstd`], [`Compression::ZstdDictionary`]; needs a C compiler |
//! | `serde` | values of Rust types, as JSON: `Store::put_json`, `Store::get_json`, `to_json` |
//! | `bytes` | `bytes::Bytes` from a [`Value`], without a copy |
//!
//! Other processes [read](StoreOptions::open_read_only) a store that one has open.
//!
//! Keys and values are appended to a log; an index leads from each key to its newest record. The
//! log's end lies in a [`forebay_pool::Pool`]: on persistent memory a put is durable after a memory
//! copy, [on a disk](forebay_pool::PoolOptions::on_disk) after one write that all threads share
//! that put meanwhile. It is drained to value-log files in large sequential writes. Without a pool,
//! puts go to the files directly ([`Durability::Fsync`], [`Durability::NoSync`]). Which options
//! matter: [`StoreOptions`].
//!
//! The modules:
//!
//! * `options`; `disk`: files, and files that fail; `op`: operations as bytes;
//! * `compression`: of values; `dictionaries`: the files of what small ones have in common;
//! * `log`: the address space of records; `large_values`: too large for it;
//! * `memtable`: recent keys; `index`: all others; `range_tombstones`: deleted ranges; `manifest`;
//! * `db`: where they come together.
//!
//! Formats: docs/store-format.md. What is promised: docs/durability.md.

mod compression;
mod db;
mod dictionaries;
// The three that are hidden are no part of the library's interface: they are open for its own tests
// and fuzzers. What only these need is in no build that ships.
#[doc(hidden)]
pub mod disk;
mod error;
#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub mod fuzzed;
#[doc(hidden)]
pub mod index;
mod index_error;
#[cfg(feature = "serde")]
mod json;
mod keyspace;
mod large_values;
mod limits;
mod log;
mod manifest;
mod memtable;
mod op;
mod options;
mod range_tombstones;
mod salvage;
mod stats;

pub use compression::Compression;
pub use db::{
    Batch, DetachedTransaction, Keyspace, ReadOnlyStore, Scan, ScanRange, Snapshot, Store,
    Transaction, TransactionScan, Value,
};
pub use error::StoreError;
pub use index::IndexStats;
pub use index_error::{IndexCause, IndexError};
#[cfg(feature = "serde")]
pub use json::to_json;
pub use keyspace::{KeyspaceInfo, KeyspaceOptions};
pub use limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use options::{Durability, StoreOptions};
pub use stats::{
    BackupReport, CompactionProgress, CompactionReport, CompactionStage, CompressionStats,
    CopyReport, GcReport, SetAside, Stats, ValueSample, VerifyReport, WaitStats, WriterWaits,
};
