//! The speed of the disk under a directory, and figures for people.
//!
//! `forebay doctor` looks with it, and the laboratory's measurements stand on it.
//!
//! * [`disk`]: what holds a directory, and how long it takes to write there;
//! * [`figures`]: what several measurements say together;
//! * [`table`]: tables, and numbers with three digits.

pub mod disk;
pub mod figures;
pub mod table;

pub use disk::ProbeError;
