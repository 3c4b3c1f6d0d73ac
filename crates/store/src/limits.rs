//! The limits of a key and a value.

/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = STORED_KEY_BYTES_MAX - 6;

/// Longest key as it is stored, with its keyspace's number: what a table of the index can hold.
pub const STORED_KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Longest value, bytes: 1 GiB.
pub const VALUE_BYTES_MAX: usize = 1 << 30;
