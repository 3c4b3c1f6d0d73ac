//! The bytes of a pool, and of a log wherever it lies. docs/pool-format.md.
//!
//! Not a part of the library's interface: hidden from its documentation, and free to change with
//! any version. It is open for those who keep segments elsewhere than in a pool (forebay-store,
//! whose value-log files are the same segments) and for tests.

pub mod layout;
pub mod record;
pub mod segment;
pub mod superblock;
pub mod table;
