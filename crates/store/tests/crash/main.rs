//! Power cuts at any moment, with a pool and a disk that keep no more than they must.
//!
//! Two writers, one in a keyspace of its own, a collector, flushes; then the power fails at a
//! random moment: of the pool, any subset of what was not fenced is left (`SimMedia`); of the
//! files, any subset of what was not synced (`CrashDisk`); the index, which has crash tests of its
//! own, is as it was at that moment. A new session recovers, in any variant or resident in the
//! pool, and is cut as well, be it while it recovers. Each time, each writer's keys must be as they
//! were after its last acknowledged operation, or after the one that was in flight; with `nosync`,
//! and with puts that are not committed in a pool on a disk, as after any operation since the last
//! flush or commit.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod certain_moments;
#[path = "../common/mod.rs"]
mod common;
mod machine;
mod session;
mod two_cuts;
