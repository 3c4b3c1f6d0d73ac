//! Promises of an index, one for each test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../index_support/mod.rs"]
mod index_support;
mod runs;
mod snapshots;
mod tombstones;
