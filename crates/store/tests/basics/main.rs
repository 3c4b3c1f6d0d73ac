//! Duties of every variant of the store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod collector;
#[path = "../common/mod.rs"]
mod common;
mod snapshots;
mod values;

fn key(i: u32) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}

fn value(i: u32) -> Vec<u8> {
    vec![(i % 251) as u8; (i as usize * 37) % 3000]
}

fn round_value(round: u8, i: u32) -> Vec<u8> {
    [&[round][..], &value(i)].concat()
}
