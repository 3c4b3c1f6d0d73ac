//! What the tests share: a directory of their own, and the program run in it.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

pub mod cut;
pub mod databases;
pub mod disk;
pub mod mariadb;
pub mod postgres;
mod sandbox;
pub mod writers;

pub use sandbox::{Ran, Sandbox, pools_on_disk};

/// The program under test.
pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");
