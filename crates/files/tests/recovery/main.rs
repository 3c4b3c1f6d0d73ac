//! A recovery brings what was acknowledged to the right files, with the right times, by the right
//! hands, and says what it could not.
#![allow(clippy::unwrap_used, reason = "tests")]

mod boots;
mod clones;
#[path = "../common/mod.rs"]
mod common;
mod cuts;
mod names;
mod rights;
mod times;
mod told;

use common::{Lab, Running, succeed};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

const RDWR: i32 = libc::O_RDWR | libc::O_CREAT;
const APPEND: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";
/// Longer than the slack in which a change counts as the database's.
const LATER: Duration = Duration::from_millis(300);

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// The modification time is what it was when the program had written last; records have the clock's
/// next tick at the latest.
#[track_caller]
fn same_time(path: &Path, expected: SystemTime) {
    let found = modified(path);
    let apart = found
        .duration_since(expected)
        .unwrap_or_else(|e| e.duration());
    assert!(
        apart < Duration::from_millis(60),
        "{}: {apart:?} apart",
        path.display()
    );
}

fn set_modified(path: &Path, time: SystemTime) {
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

#[track_caller]
fn why(reports: &[Value]) -> &str {
    assert_eq!(reports[0]["outcome"], "refused", "{reports:?}");
    let files = reports[0]["files"].as_array().unwrap();
    let reasons = files.iter().find_map(|file| file["refused"].as_str());
    reasons.unwrap()
}

/// A run with one file, written to and acknowledged, of which a cut leaves nothing.
fn written(lab: &Lab) -> Running {
    let mut run = lab.run();
    assert_eq!(run.open("a", &lab.data("a.log"), APPEND), 1);
    // The first one is a real one.
    run.calls(["sync a", "write a 1 3000", "sync a"]);
    run
}
