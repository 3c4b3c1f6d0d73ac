//! A pool's memory in other machines: its *legs*, which are NBD exports. docs/legs.md.
//!
//! * `mask`, `superblock`, `pool_file`, `address`: which legs there are, where, and what each says;
//! * `ledger`: the writer's protocol, and `choose`, a recovery's decision, both without input and
//!   output: `explore` drives them through every order of events;
//! * `handshake`, `link`, `channel`: a connection to one leg; `tls`, `certificates`, `psk` (by the
//!   system's `openssl`): an encrypted one, without the cargo feature `tls` refused (`no_tls`);
//!   `disk_leg`: one on this machine's disk;
//! * `group` (`group_state`, `asking`): all of them as one medium; `keeper` and `heartbeat`, its
//!   threads; `trip`: how far away one is; `lease`: for how long a look at the legs is good.

mod address;
mod asking;
#[cfg(feature = "tls")]
mod certificates;
mod channel;
mod choose;
mod disk_leg;
#[cfg(test)]
mod explore;
mod group;
mod group_state;
mod handshake;
mod heartbeat;
mod keeper;
mod lease;
mod ledger;
mod link;
mod mask;
#[cfg(not(feature = "tls"))]
mod no_tls;
#[cfg(feature = "tls")]
mod openssl;
mod pool_file;
#[cfg(feature = "tls")]
mod psk;
mod superblock;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_address;
mod trip;

pub(crate) use group::LegGroup;
pub(crate) use mask::LegMask;
#[cfg(not(feature = "tls"))]
use no_tls::{self as tls, self as tls_address};
pub(crate) use pool_file::LegsFile;
pub(crate) use superblock::LEG_DATA;
pub use trip::LegTrip;
