//! A pool's memory in other machines: its *legs*, which are NBD exports. docs/legs.md.
//!
//! * `mask`, `superblock`, `pool_file`, `address`: which legs there are, where, and what each says;
//! * `ledger`: the writer's protocol, and `complete_legs`, a recovery's decision, both without
//!   input and output: `explore` drives them through every order of events;
//! * `handshake`, `link`, `channel`: a connection to one leg; `tls`, `certificates`, `psk` (by the
//!   system's `openssl`): an encrypted one, without the cargo feature `tls` refused (`no_tls`);
//!   `disk_leg`: one on this machine's disk;
//! * `group` (`group_state`, `inquiry`): all of them as one medium; `rejoin` and `heartbeat`, its
//!   threads; `round_trip`: how far away one is; `lease`: for how long a look at the legs is good.

mod address;
#[cfg(feature = "tls")]
mod certificates;
mod channel;
mod complete_legs;
mod disk_leg;
#[cfg(test)]
mod explore;
mod group;
mod group_state;
mod handshake;
mod heartbeat;
mod inquiry;
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
mod rejoin;
mod round_trip;
mod superblock;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_address;

pub(crate) use group::LegGroup;
pub(crate) use mask::LegMask;
#[cfg(not(feature = "tls"))]
use no_tls::{self as tls, self as tls_address};
pub(crate) use pool_file::LegsFile;
pub use round_trip::LegTrip;
pub(crate) use superblock::LEG_DATA;
