//! The supervisor's messages: arbitrary bytes, and valid messages in any order with wrong numbers
//! and descriptors, neither end it nor hold it up, and it keeps nothing of those who sent them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;
#[path = "support/fuzzed.rs"]
mod fuzzed;

use common::Rng;
use fuzzed::Attacked;
use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

static PANICS: AtomicU32 = AtomicU32::new(0);

/// From now on a panic of any thread, also of one that nothing waits for, is known.
fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Relaxed);
        before(info);
    }));
}

fn seeds() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/messages")
}

/// The only test here that runs: the supervisor's memory and descriptors are those of the process.
///
/// Promise (processes): Messages of a process, whatever they are and in whatever order, end no
/// thread of the supervisor, hold none up, and cost no memory or descriptor that stays.
#[test]
fn a_supervisor_outlives_any_message_and_keeps_nothing_of_it() {
    count_panics();
    let attacked = Attacked::new();
    attacked.must_welcome();
    let mut number = 0;
    for seed in fs::read_dir(seeds()).unwrap() {
        let path = seed.unwrap().path();
        eprintln!("{}", path.display());
        attacked.input(&fs::read(&path).unwrap());
        number += 1;
    }
    assert!(number > 3);
    let mut rng = Rng(10);
    for _ in 0..120 {
        let bytes: Vec<u8> = (0..rng.below(120)).map(|_| rng.below(256) as u8).collect();
        attacked.input(&bytes);
        // The same as a client that was welcomed.
        attacked.input(&[&[0, 0], &bytes[..]].concat());
    }
    attacked.end();
    assert_eq!(PANICS.load(Relaxed), 0, "threads panicked");
}

#[test]
#[ignore = "writes fuzz/seeds"]
fn write_the_seeds() {
    fs::create_dir_all(seeds()).unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(seeds().join(name), bytes).unwrap();
    // A connection, a message, and what the message is made of: see `Client::send_next`.
    let hello = [0, 0];
    let register = |descriptor: u8, number: u8, path: u8| [0, 3, descriptor, number, path];
    put("hello", &hello);
    put("register", &[&hello[..], &register(0, 0, 0)].concat());
    for (name, descriptor) in [
        ("unlinked-file", 4),
        ("directory", 5),
        ("pipe", 6),
        ("pipe-to-write", 7),
        ("device", 8),
        ("memfd", 9),
        ("path-only", 10),
        ("no-descriptor", 11),
    ] {
        let bytes = [&hello[..], &register(descriptor, 1, 0)].concat();
        put(&format!("register-{name}"), &bytes);
    }
    put(
        "register-as-256",
        &[&hello[..], &register(0, 5, 0)].concat(),
    );
    let twice = [&hello[..], &register(0, 0, 0), &register(3, 0, 1)].concat();
    put("two-files-of-one-number", &twice);
    let drained = [&register(0, 1, 0)[..], &[0, 7, 3, 1, 6, 7, 5]].concat();
    put("drain-unknown-files", &[&hello[..], &drained].concat());
    let unlinked = [&register(4, 1, 0)[..], &[0, 10, 1, 3], &[0, 7, 1, 1, 2]].concat();
    put("unlinked-then-drained", &[&hello[..], &unlinked].concat());
    put("repaired-and-forgotten-unasked", &[0, 0, 0, 9, 1, 0, 11, 6]);
    put("hello-twice", &[0, 0, 0, 0]);
    put("too-many-descriptors", &[0, 0, 0, 13, 0, 0, 4, 5, 6, 7, 1]);
    put("not-json", b"\0\x0Fnot JSON at all");
    put("deep-json", &[0, 14, 7]);
    put("too-large", &[0, 0, 0, 14, 11]);
    let two = [&hello[..], &register(0, 0, 0), &[1, 0], &[1, 3, 0, 0, 0]].concat();
    put("two-clients-one-file", &two);
}
