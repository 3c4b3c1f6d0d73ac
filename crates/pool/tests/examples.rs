//! The example, run as a user would, and as README.md shows it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fs, path::Path, process::Command};

#[test]
fn pool_log_recovers_what_it_appended_and_drains_it() {
    // Beside the tests' directory, where cargo puts examples.
    let own = std::env::current_exe().unwrap();
    let example = own.ancestors().nth(2).unwrap().join("examples/pool_log");
    if !example.is_file() {
        println!("skipped: not built: cargo build -p forebay-pool --example pool_log");
        // `make test-aarch64` builds the tests only.
        let built_without = cfg!(target_arch = "aarch64") || std::env::var_os("CI").is_none();
        assert!(built_without, "the example was not built");
        return;
    }
    let ran = Command::new(example).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}{complained}");
    let words = ["64 started", "128 paid", "192 shipped", "drained up to "];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn the_readme_shows_the_example_as_it_is() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(here.join("README.md")).unwrap();
    let (_, rest) = text.split_once("```rust\n").unwrap();
    let shown = rest.split_once("```").unwrap().0;
    assert_eq!(
        shown,
        fs::read_to_string(here.join("examples/pool_log.rs")).unwrap()
    );
}
