//! Making a cache, looking at it, emptying it, and ending it: for the command, while no server has
//! it.

mod create;
mod directory;
mod error;
#[cfg(test)]
pub(crate) mod fixtures;
mod flush;
mod give_up;
mod guarded;
mod held;
mod place;
mod remove;
mod retry;
mod rights;
mod warm;

pub use create::create;
pub(crate) use create::create_in;
pub use error::SetupError;
pub(crate) use flush::attach_guarded;
pub use flush::{Flushing, flush};
pub use give_up::give_up;
pub(crate) use guarded::rights_to_data;
pub(crate) use held::Held;
pub use place::{Place, pool_of};
pub use remove::remove;
pub use retry::retry_in_use;
pub(crate) use rights::exercise;
pub use warm::{Warm, look};
