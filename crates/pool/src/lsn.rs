//! [`Lsn`]: an address in a log.

/// A log address: bytes since the log began, headers and padding included.
pub type Lsn = u64;
