//! The library exports the functions that it has to hide, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

#[test]
fn exports_every_hook_and_nothing_else() {
    let mut wanted = support::SYMBOLS.to_vec();
    wanted.sort_unstable();
    assert_eq!(support::exported(&support::library()), wanted);
}
