//! Persistent memory, shared out as crash-consistent logs.
//!
//! A [`Pool`] lies on a [`media::Media`]: real persistent memory, or an emulation that says so. It
//! is divided into fixed-size segments. Each owner (a store, say) claims a [`Lane`], an ordered log
//! over a few segments. [`Lane::append`] returns when the record and all before it are durable: a
//! copy and a fence. (On an ordinary disk [`Lane::commit`] makes them so.) A full segment goes to
//! the owner's drain ([`Lane::take_sealed`]), which makes it durable elsewhere and releases it.
//! After a crash, [`Pool::claim`] gives back every acknowledged record, and no other.
//!
//! The modules, bottom up: `persist` (instructions) → [`media`] (memory) → `format` (bytes;
//! docs/pool-format.md) → `core` (what lanes and the pool share) → `lane` (the log) → `pool` →
//! `shared`, `status`. What is hidden is no part of the library's interface: Forebay's other crates
//! share system calls with this one.
//!
//! ```
//! use forebay_pool::{ClaimOptions, PoolOptions, RECORD_HEADER, Uuid};
//! use std::{io::IoSlice, time::Duration};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("example.pool");
//! let pool = PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(&path)?;
//! println!("{}: {}", pool.describe(), pool.durability());
//! let (lane, recovered) = pool.claim(Uuid::new_v4(), &ClaimOptions::new())?;
//! assert_eq!(recovered.records().count(), 0);
//! let lsn = lane.append(1, &[IoSlice::new(b"hello, "), IoSlice::new(b"log")])?; // durable now
//! assert_eq!(&lane.read(lsn + RECORD_HEADER, 10).ok_or("drained")?[..], b"hello, log");
//! let end = lane.seal();
//! let sealed = lane.take_sealed(Duration::ZERO).ok_or("nothing sealed")?;
//! // … make sealed.bytes() durable elsewhere, then:
//! sealed.release();
//! lane.wait_drained(end)?;
//! # Ok(())
//! # }
//! ```

mod checksum;
mod commit;
mod complain;
mod core;
#[doc(hidden)]
pub mod disk_signatures;
#[doc(hidden)]
pub mod disks;
mod error;
#[doc(hidden)]
pub mod extents;
#[doc(hidden)]
#[cfg_attr(not(feature = "failpoints"), path = "no_failpoints.rs")]
pub mod failpoint;
#[doc(hidden)]
pub mod format;
mod lane;
mod legs;
mod lsn;
#[doc(hidden)]
pub mod media;
mod monotonic;
#[doc(hidden)]
pub mod persist;
mod pool;
#[doc(hidden)]
pub mod rewrite;
#[doc(hidden)]
pub mod rights;
mod shared;
#[doc(hidden)]
pub mod sockets;
mod stack;
mod status;
#[cfg_attr(not(test), path = "no_steps.rs")]
mod steps;
mod sysfs;
mod wait_meter;

/// A moment at which the power-cut lab may cut the power, and tests wait or die. Nothing at all
/// without the feature `failpoints`.
#[macro_export]
#[doc(hidden)]
macro_rules! failpoint {
    ($name:literal) => {
        $crate::failpoint::pass($name)
    };
}

/// True if the power-cut lab or a test breaks this on purpose. Never, and known when compiled,
/// without the feature `failpoints`.
#[macro_export]
#[doc(hidden)]
macro_rules! fault_enabled {
    ($name:literal) => {
        $crate::failpoint::is_broken($name)
    };
}

#[doc(hidden)]
pub use checksum::{Checksum, crc32c};
#[doc(hidden)]
pub use complain::{complain, complain_repeated, note_standard_error, say_what_ended};
pub use error::{AppendError, PoolError, PoolErrorKind};
pub use format::{
    layout::PoolGeometry,
    record::{Lsn, Record},
};
#[doc(hidden)]
pub use format::{
    layout::{FORMAT_VERSION, PAGE, SEGMENTS_MAX},
    record::{RECORD_HEADER, RecordHeader, record_bytes},
};
#[doc(hidden)]
pub use lane::{AheadBytes, AheadPages, DrainWork, PinnedBytes};
pub use lane::{Crowded, Lane, LaneUse, Recovered, Sealed};
#[doc(hidden)]
pub use legs::LegTrip;
pub use media::PoolPersistence;
#[doc(hidden)]
pub use monotonic::MonotonicTime;
pub use pool::{ClaimOptions, LaneCopy, Pool, PoolOptions};
pub use shared::{CompleteSegment, Member, SharedLane};
#[doc(hidden)]
pub use stack::with_room;
pub use status::LaneStatus;
#[doc(hidden)]
pub use status::{LaneCheck, PoolHold, RecoveryLock};
pub use uuid::Uuid;
#[doc(hidden)]
pub use wait_meter::{WaitCounts, WaitMeter, WaitTimer};
