//! The library exports the hooks of libforebay.so, those that its guards need beside them, and
//! nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../../../crates/preload/tests/support/mod.rs"]
mod support;

#[test]
fn exports_every_hook_of_the_product_and_its_own() {
    let mut wanted = support::SYMBOLS.to_vec();
    wanted.extend(["sigaction", "signal"]);
    wanted.sort_unstable();
    let library = support::beside_the_tests("libforebay_lab.so");
    assert_eq!(support::exported(&library), wanted);
}
