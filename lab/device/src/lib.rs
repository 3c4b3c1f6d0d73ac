//! Emulated devices: what file I/O below a directory would cost on another disk, computed and
//! waited for.
//!
//! A [`Profile`] says what a device is like; [`Devices`] are the directories that have one, with
//! their state in memory that all processes of a run share, so that they queue up at the same
//! device; a [`Device`] is asked what a read, a write or a sync costs and answers with the time at
//! which it is done, and [`clock`] waits for it. The bytes are none of its business: they are the
//! file system's, as always. [`block`] is a device with a file system on it, for programs that load
//! no library. [`memory`] is the same for a pool's memory; [`fabric`] is one that is emulated as
//! both. docs/devices.md has the model with its formulas, the profiles' figures with their sources,
//! and the limits.

pub mod block;
mod cache;
pub mod clock;
mod device;
mod devices;
mod error;
pub mod fabric;
pub mod memory;
mod profile;
mod queue;
mod shared;
pub mod thin;

pub use device::{Device, FileKey, Mode};
pub use devices::{Counts, Devices, Placed};
pub use error::DeviceError;
pub use profile::{CacheModel, Cost, Profile};

/// Directories with a device in one run, at most.
pub const DEVICES_MAX: usize = 8;

/// Environment of the program: the devices and where their shared state is, as JSON.
pub const ENV_DEVICES: &str = "FOREBAY_DEVICES";

/// Bytes of a page: what the cache keeps, and what is written back.
pub const PAGE_BYTES: u64 = 4096;
