//! Transactions, and changes of one key that depend on its value.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod anomalies;
#[path = "../common/mod.rs"]
mod common;
mod histories;
mod ranges;
mod schedules;
mod updates;

use forebay_store::StoreError;

/// The key that a commit was refused for.
fn conflict(committed: Result<(), StoreError>) -> Vec<u8> {
    match committed {
        Err(StoreError::Conflict { key }) => key,
        other => panic!("no conflict: {other:?}"),
    }
}
