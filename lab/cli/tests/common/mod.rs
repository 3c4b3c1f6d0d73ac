//! What the tests share: a directory of their own, and the laboratory's program run in it.
#![allow(dead_code, unused_imports, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../../../../crates/cli/tests/common/sandbox.rs"]
mod sandbox;

pub use sandbox::{Ran, Sandbox};

/// The program under test.
pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay-lab");
