//! Shared by the tests: a directory of their own, and the laboratory's program run in it.
#![allow(dead_code, unused_imports, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../../../../crates/cli/tests/common/sandbox.rs"]
mod sandbox;

pub use sandbox::{Ran, Sandbox};

/// The program under test.
pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay-lab");

/// A command that writes zeros to a log, each write synced: `zeros.py` of the command's own tests.
pub const ZEROS: &str = concat!(
    "python3 ",
    env!("CARGO_MANIFEST_DIR"),
    "/../../crates/cli/tests/programs/zeros.py"
);
