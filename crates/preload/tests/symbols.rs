//! The library exports the functions that it has to hide, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::process::Command;

#[test]
fn exports_every_hook_and_nothing_else() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(support::library())
        .output()
        .expect("nm, of the binutils that the linker comes with");
    assert!(output.status.success(), "{output:?}");
    let names = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = names.lines().collect();
    exported.sort_unstable();
    let mut wanted = support::SYMBOLS.to_vec();
    wanted.sort_unstable();
    assert_eq!(exported, wanted);
}
