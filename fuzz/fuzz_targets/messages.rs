//! Arbitrary messages, and arbitrary sequences of valid ones, to a supervisor.
//!
//! Promise: as `a_supervisor_outlives_any_message_and_keeps_nothing_of_it`.
#![no_main]

#[path = "../../crates/files/tests/support/fuzzed.rs"]
mod fuzzed;

use fuzzed::Attacked;
use std::sync::OnceLock;

/// One for all inputs: what they leave behind counts.
static ATTACKED: OnceLock<Attacked> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| ATTACKED.get_or_init(Attacked::new).input(data));
