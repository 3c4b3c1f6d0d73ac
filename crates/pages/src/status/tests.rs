//! A status is whole, whoever writes it and whenever it is read.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::thread;

#[test]
fn a_status_that_two_threads_write_is_whole_whenever_it_is_read_and_none_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.status");
    Status::default().write(&path).unwrap();
    let status = |pages| Status {
        pages,
        flash: "f".repeat(pages as usize % 1000),
        ..Status::default()
    };
    thread::scope(|scope| {
        let writes = [0, 1].map(|first| {
            let pages = (first..2000).step_by(2);
            scope.spawn(|| pages.into_iter().try_for_each(|at| status(at).write(&path)))
        });
        while writes.iter().any(|thread| !thread.is_finished()) {
            Status::read(&path).unwrap();
        }
        for thread in writes {
            thread.join().unwrap().unwrap();
        }
    });
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_link_that_another_user_made_beside_a_status_leads_to_nothing_that_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("f.status"), dir.path().join("other"));
    std::fs::write(&other, "kept").unwrap();
    for link in ["f.status", "f.status.new"] {
        std::os::unix::fs::symlink(&other, dir.path().join(link)).unwrap();
    }
    Status::default().write(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
    assert_eq!(Status::read(&path).unwrap(), Status::default());
}
