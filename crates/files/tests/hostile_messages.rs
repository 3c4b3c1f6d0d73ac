//! Single messages that once ended the supervisor's threads or held them up.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/fuzzed.rs"]
mod fuzzed;

use forebay_files::WIRE_VERSION;
use fuzzed::Attacked;
use serde_json::json;
use std::{
    fs,
    os::{fd::AsFd, unix::ffi::OsStringExt},
};

#[test]
fn a_file_name_that_is_not_utf8_leaves_the_status_readable() {
    let attacked = Attacked::new();
    let path = attacked.data().join("a.log");
    let file = fs::File::create(path).unwrap();
    let mut name = attacked.data().join("a").into_os_string().into_vec();
    name.extend([0xFF, 0xFE]);
    let client = attacked.connect();
    client.send(&attacked.hello(), &[]);
    client.receive().unwrap();
    let register = json!({"register": {"path": name}});
    client.send(&register, &[file.as_fd()]);
    client.receive().unwrap();
    attacked.must_be_well();
}

#[test]
fn a_name_below_a_fifo_does_not_hold_up_the_supervisor() {
    let attacked = Attacked::new();
    let fifo = attacked.data().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    let path = attacked.data().join("a.log");
    let file = fs::File::create(&path).unwrap();
    let below = fifo.join("a.log").into_os_string().into_vec();
    let client = attacked.connect();
    client.send(&attacked.hello(), &[]);
    client.receive().unwrap();
    let register = |path: Vec<u8>| json!({"register": {"path": path}});
    client.send(
        &register(path.clone().into_os_string().into_vec()),
        &[file.as_fd()],
    );
    client.receive().unwrap();
    fs::remove_file(path).unwrap();
    client.send(&json!({"unlinked": {"file": 0, "path": below}}), &[]);
    attacked.must_be_well();
    client.send(&register(below), &[file.as_fd()]);
    client.receive().unwrap();
    attacked.must_be_well();
}

#[test]
fn a_process_of_another_version_is_refused_and_told_both() {
    let attacked = Attacked::new();
    let client = attacked.connect();
    let mut hello = attacked.hello();
    let (ours, other) = (WIRE_VERSION, WIRE_VERSION + 1);
    hello["hello"]["version"] = json!(other);
    client.send(&hello, &[]);
    let answer = client.receive().unwrap().to_string();
    let words = [
        "refused".to_owned(),
        format!("version {other}"),
        format!("the supervisor {ours}"),
        "of one release".to_owned(),
    ];
    assert!(words.iter().all(|word| answer.contains(word)), "{answer}");
    attacked.must_be_well();
}
