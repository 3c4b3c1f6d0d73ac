//! MariaDB's page files behind a flash cache: what was acknowledged is there after SIGKILL, without
//! a doublewrite buffer, and the cache goes on warm. A server that is started without Forebay does
//! not come up until the cache was flushed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod checkpoints;
#[path = "../common/mod.rs"]
mod common;
mod cut_off;
mod disks;
mod failing_homes;
mod faults;
mod flush;
mod foreign_programs;
mod full_disk;
mod guard;
mod killed;
mod misplaced;
mod place;
mod policies;
mod remove;
mod resize;
mod snapshots;
mod tables;
mod world;
