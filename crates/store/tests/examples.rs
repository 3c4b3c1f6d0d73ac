//! The examples, run as a user would, and the one that README.md shows.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::example;
use std::{fs, path::Path, process::Command};

/// Runs an example that is to say each of `words`.
fn says(name: &str, words: &[&str]) {
    let Some(program) = example(name) else {
        return;
    };
    let ran = Command::new(program).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}{complained}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

#[test]
fn put_get_puts_gets_and_deletes() {
    says("put_get", &["put, got, deleted"]);
}

#[test]
fn batch_scan_finds_its_writes_and_deleted_keys_in_the_snapshot() {
    says(
        "batch_scan",
        &["fruit/pear 4\nfruit/apple 3\n3 fruits before the delete"],
    );
}

#[test]
fn recover_finds_every_put_that_returned_before_the_kill() {
    says("recover", &["killed after put 9999; "]);
}

#[test]
fn group_commit_finds_what_was_committed_and_nothing_else() {
    says(
        "group_commit",
        &["200 puts were committed, one was not; 200 are there"],
    );
}

#[test]
fn in_async_finds_what_its_tasks_put() {
    says("in_async", &["50 boats were put by as many tasks"]);
}

#[test]
fn the_readme_shows_an_example_as_it_is() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Beside the crate where it is published, and two directories up in the repository.
    for readme in ["README.md", "../../README.md"] {
        let Ok(text) = fs::read_to_string(here.join(readme)) else {
            continue;
        };
        let shown = text.split_once("```rust\n").map(|(_, rest)| rest);
        let shown = shown.and_then(|rest| rest.split_once("```")).unwrap().0;
        let example = fs::read_to_string(here.join("examples/put_get.rs")).unwrap();
        assert!(shown == example, "{readme} shows:\n{shown}");
    }
}
