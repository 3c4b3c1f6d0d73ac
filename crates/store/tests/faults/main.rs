//! Failing disks: nothing acknowledged is lost, errors say what to do, and nothing hangs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod any_operation;
#[path = "../common/mod.rs"]
mod common;
mod files;
mod refused;

use common::tiny;
use forebay_store::{
    Durability, Store, StoreOptions,
    disk::{
        RealDisk,
        faulty::{FaultPlan, FaultyDisk},
    },
};
use std::{io, path::Path, sync::Arc};

fn faulty(plan: &Arc<FaultPlan>) -> Arc<FaultyDisk> {
    Arc::new(FaultyDisk::new(
        Arc::new(RealDisk::default()),
        Arc::clone(plan),
    ))
}

fn quiet(variant: Durability) -> StoreOptions {
    tiny(variant).gc(false)
}

/// Bytes of log that a segment of two [`half_a_segment`]s takes, with headers, seal, and up to the
/// next page.
const SEGMENT_TAKES: u32 = 60 << 10;
/// So many of [`half_a_segment`] fill a file under [`quiet`] options.
const FILE_FULL: u32 = 34;

fn half_a_segment() -> Vec<u8> {
    vec![7; 30_000]
}

fn get(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|value| value.into_vec())
}

/// True for a value-log file.
fn is_value_log(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "vlog")
}

fn io_error() -> io::Error {
    io::Error::other("the disk is broken")
}
