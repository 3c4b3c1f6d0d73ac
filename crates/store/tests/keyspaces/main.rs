//! Keyspaces: keys of their own, batches over several, values that expire or are compressed, and
//! drops that give space back and are for good.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod batches;
#[path = "../common/mod.rs"]
mod common;
mod compressed;
mod copies;
mod crashes;
mod cuts;
mod dropping;
mod ends;
mod expiry;
mod model;
mod opening;
mod ranges;

use common::tiny;
use forebay_store::{Durability, Scan, StoreOptions};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A clock that a test sets.
pub struct TestClock(&'static AtomicU64);

impl TestClock {
    fn new() -> Self {
        Self(Box::leak(Box::new(AtomicU64::new(1_000_000))))
    }

    fn set(&self, milliseconds: u64) {
        self.0.store(milliseconds, Relaxed);
    }

    fn pass(&self, milliseconds: u64) {
        self.0.fetch_add(milliseconds, Relaxed);
    }

    fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn options(&self, options: StoreOptions) -> StoreOptions {
        options.clock(self.0)
    }
}

fn without_pool() -> StoreOptions {
    tiny(Durability::NoSync).gc(false)
}

fn keys(scan: Scan) -> Vec<Vec<u8>> {
    scan.map(|pair| pair.unwrap().0).collect()
}
