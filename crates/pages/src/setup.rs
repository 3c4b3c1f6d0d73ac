//! Making a cache, looking at it, emptying it, and ending it: for the command, while no server has it.

mod create;
mod error;
mod flush;
mod give_up;
mod guarded;
mod place;
mod remove;
mod retry;
mod rights;
mod warm;

pub use create::create;
pub use error::SetupError;
pub(crate) use flush::attach_guarded;
pub use flush::{Flushing, flush};
pub use give_up::give_up;
pub(crate) use guarded::rights_to_data;
pub use place::{Place, pool_of};
pub use remove::remove;
pub use retry::retry_in_use;
pub(crate) use rights::{Held, exercise, rights_to};
pub use warm::{Warm, look};
