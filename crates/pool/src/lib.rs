//! Persistent memory, shared out as crash-consistent logs.
//!
//! A [`Pool`] lies on a [`media::Media`]: real persistent memory, or an emulation that says so. It is divided into
//! fixed-size segments. Each owner (a store, say) claims a [`Lane`], an ordered log over a few segments.
//! [`Lane::append`] returns when the record and all before it are durable: a copy and a fence. A full segment
//! goes to the owner's drain ([`Lane::take_sealed`]), which makes it durable elsewhere and releases
//! it. After a crash, [`Pool::claim`] gives back every acknowledged record, and no other.
//!
//! The modules, bottom up: [`persist`] (instructions) → [`media`] (memory) → [`layout`], [`superblock`],
//! [`table`], [`segment`], [`record`] (formats; docs/pool-format.md) → `core` (what lanes and the pool share) → `lane` (the log) → `pool` →
//! `shared`, [`status`].
//!
//! ```
//! use forebay_pool::{ClaimOptions, CreateOptions, Pool};
//! use std::{io::IoSlice, time::Duration};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("example.pool");
//! let pool = Pool::create(&path, CreateOptions { bytes: 1 << 20, segment_bytes: 64 << 10, emulated: true, ..Default::default() })?;
//! println!("{}: {}", pool.describe(), pool.survives());
//! let (lane, recovered) = pool.claim(uuid::Uuid::new_v4(), &ClaimOptions::default())?;
//! assert_eq!(recovered.records().count(), 0);
//! let lsn = lane.append(1, &[IoSlice::new(b"hello, "), IoSlice::new(b"log")])?; // durable now
//! assert_eq!(&lane.read(lsn + 32, 10).ok_or("drained")?[..], b"hello, log");
//! let end = lane.seal();
//! let sealed = lane.take_sealed(Duration::ZERO).ok_or("nothing sealed")?;
//! // … make sealed.bytes() durable elsewhere, then:
//! sealed.release();
//! lane.wait_drained(end)?;
//! # Ok(())
//! # }
//! ```

mod checksum;
mod core;
mod error;
#[cfg(feature = "failpoints")]
pub mod failpoint;
mod lane;
pub mod layout;
pub mod media;
pub mod persist;
mod pool;
pub mod record;
pub mod segment;
mod shared;
pub mod status;
pub mod superblock;
pub mod table;
mod waits;

/// A moment at which the power-cut lab may cut the power. Nothing at all without the feature `failpoints`.
#[cfg(feature = "failpoints")]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        $crate::failpoint::pass($name)
    };
}

/// A moment at which the power-cut lab may cut the power. Nothing at all without the feature `failpoints`.
#[cfg(not(feature = "failpoints"))]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {};
}

/// True if the power-cut lab breaks this on purpose. Never, and known when compiled, without the feature `failpoints`.
#[cfg(feature = "failpoints")]
#[macro_export]
macro_rules! broken {
    ($name:literal) => {
        $crate::failpoint::is_broken($name)
    };
}

/// True if the power-cut lab breaks this on purpose. Never, and known when compiled, without the feature `failpoints`.
#[cfg(not(feature = "failpoints"))]
#[macro_export]
macro_rules! broken {
    ($name:literal) => {
        false
    };
}

pub use checksum::{Checksum, crc32c};
pub use error::{AppendError, PoolError, PoolErrorKind};
pub use lane::{Ahead, AheadBytes, Lane, LaneUse, PinnedBytes, Recovered, Sealed, Work};
pub use pool::{ClaimOptions, CreateOptions, Pool};
pub use record::Lsn;
pub use shared::{Member, Segment, SharedLane};
pub use waits::{WaitMeter, Waiting, Waits};
