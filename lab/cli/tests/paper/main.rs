//! `forebay-lab paper` and `forebay-lab report`: every experiment at toy size gives all of its
//! rows, whatever is installed. Not how fast.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod complete;
mod partial;
mod rows;
mod toy;
