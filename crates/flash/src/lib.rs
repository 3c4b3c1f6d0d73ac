//! A cache of pages on flash that survives crashes: the multi-version FIFO of FaCE (Kang, Lee,
//! Moon, VLDB 2012).
//!
//! Pages go to the rear of a circular queue on flash, by large sequential writes, however they are
//! scattered at home. Several versions of a page may be in the queue; the newest one counts. What
//! reaches the front goes home, sorted, if it is the newest and home has an older one. What is in
//! which slot is logged in a lane of a pool ([`forebay_pool`]). A newer page never goes over the
//! one at home before it is durable on flash, so pages are written atomically: a doublewrite buffer
//! is not needed.
//!
//! When [`Cache::sync`] returns, all pages that were [enqueued](Cache::enqueue) before are durable.
//! After a crash [`Cache::open`] restores the map from the metadata and reads no page.
//! docs/flash-format.md has the format, the protocol, and the invariants by number.
//!
//! The crate knows pages and files, and no database. [`Flash`] and [`Home`] are its ways to both
//! devices.
//!
//! ```
//! use forebay_flash::{Cache, CreateOptions, FlashFile, HomeFiles, Identity, CacheOptions, ReadOutcome};
//! use forebay_pool::PoolOptions;
//! use std::{fs::File, sync::Arc};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let pool = PoolOptions::new().size(1 << 20).segment_size(64 << 10).emulated(true).create(dir.path().join("p"))?;
//! # let path = dir.path().join("t.ibd");
//! # std::fs::write(&path, vec![0; 1 << 20])?;
//! let flash = Arc::new(FlashFile::create(&dir.path().join("cache"), 8 << 20)?);
//! let home = Arc::new(HomeFiles::new(8));
//! let cache = Cache::create(flash, home.clone(), &pool, &CreateOptions::default(), &CacheOptions::default())?;
//! let file = cache.register(Identity { device: 1, inode: 2, generation: 3 }, "t.ibd")?;
//! home.attach(file.id(), File::options().write(true).open(&path)?);
//!
//! cache.enqueue(&file, 7, &[42; 16 << 10])?;
//! cache.sync(&file)?; // durable now, and the file itself has not been touched
//! let mut page = vec![0; 16 << 10];
//! assert!(matches!(cache.read(&file, 7, &mut page)?, ReadOutcome::Hit));
//! cache.flush(|_| std::ops::ControlFlow::Continue(()))?; // home
//! assert_eq!(std::fs::read(&path)?[7 * (16 << 10)], 42);
//! # Ok(())
//! # }
//! ```

mod buffer;
mod cache;
mod checkpoint;
mod epochs;
mod error;
mod file;
mod io;
pub mod layout;
mod map;
mod options;
mod rate_limit;
mod record;
mod sequential;
mod stats;

pub use cache::{
    Cache, DequeueStep, Enqueued, FlushProgress, Flushed, OpenedCache, PastWrite, ReadOutcome,
    ResizedCache, Ticket,
};
pub use epochs::Epochs;
pub use error::{FlashError, PageName};
pub use file::{CachedFile, FileId, Identity};
pub use io::{Flash, FlashFile, Home, HomeFiles, HomePage};
pub use options::{AdmissionPolicy, CacheOptions, CreateOptions, Watermarks, WritePolicy};
pub use stats::CacheStats;
