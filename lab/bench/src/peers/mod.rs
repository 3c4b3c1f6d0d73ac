//! The stores that ours is compared with, driven by their own benchmark programs.
//!
//! A peer runs as a process of its own, with its defaults except where a setting decides whether the comparison
//! is fair (compression off, the same sizes, threads, block cache). A peer that is not installed is
//! reported so, and the run goes on.

pub(crate) mod db_bench;
pub mod leveldb;
pub mod other;
pub mod rocksdb;
