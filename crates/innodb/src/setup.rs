//! Making a cache, looking at it, emptying it, and ending it: for the command, while no server has
//! it.

mod blank_headers;
mod cache_files;
mod create;
mod directory;
mod error;
#[cfg(test)]
pub(crate) mod fixtures;
mod flush;
mod give_up;
mod guarded_directory;
mod location;
mod occupancy;
mod remove;
mod resize;
mod retry;
mod rights;

pub(crate) use cache_files::CacheFiles;
pub use create::create;
pub use error::SetupError;
pub use flush::{FlushOutcome, flush};
pub use give_up::give_up;
pub use location::{CacheLocation, pool_of};
pub use occupancy::{CacheOccupancy, look};
pub use remove::remove;
pub use resize::{ResizeResult, resize, resize_found};
pub use retry::retry_in_use;
