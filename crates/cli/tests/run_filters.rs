//! Programs that may not make all system calls (seccomp): what Forebay asks the kernel itself, it asks in another way, or lets the program's call fail.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::recovered::{Disk, nothing_is_lost};

/// `EPERM`, or `ENOSYS`, as a kernel that lacks the call.
const ANSWERS: [&str; 2] = ["REFUSED", "0x00050026"];

/// Runs `script` with these calls filtered, once the process is a member.
fn filtered(calls: &[&str], script: &str) {
    for answer in ANSWERS {
        let filters: String = calls
            .iter()
            .map(|call| format!("filtered({call:?}, {answer})\n"))
            .collect();
        nothing_is_lost(
            Disk::All,
            &format!(
                r#"
fd = opened("a.log")
logged(fd, b"a", 5)
{filters}{script}
cut()
"#
            ),
        );
    }
}

#[test]
fn a_log_is_truncated_by_open_where_fstat_is_refused() {
    filtered(
        &["fstat"],
        r#"
again = opened("a.log", os.O_TRUNC)
assert os.lseek(again, 0, os.SEEK_END) == 0
logged(again, b"b")
"#,
    );
}

#[test]
fn a_log_is_truncated_by_open_where_only_statx_is_allowed() {
    filtered(
        &["fstat", "newfstatat"],
        r#"
again = opened("a.log", os.O_TRUNC)
assert os.lseek(again, 0, os.SEEK_END) == 0
logged(again, b"b")
"#,
    );
}

#[test]
fn an_open_fails_and_truncates_nothing_where_no_file_can_be_looked_at() {
    filtered(
        &["fstat", "newfstatat", "statx"],
        r#"
try:
    opened("a.log", os.O_TRUNC)
    raise SystemExit("it was opened")
except OSError as error:
    assert error.errno in (1, 38), error
assert os.lseek(fd, 0, os.SEEK_END) == 500
logged(fd, b"b")
"#,
    );
}

#[test]
fn a_log_that_is_unlinked_where_fstat_is_refused_is_known_to_be_gone() {
    for calls in [&["fstat"][..], &["fstat", "newfstatat"]] {
        // A recovery would refuse if it missed the other log.
        filtered(
            calls,
            r#"
other = opened("other.log")
logged(other, b"o", 5)
os.unlink("other.log")
directory = os.open(".", os.O_RDONLY)
os.fsync(directory)
logged(fd, b"b")
"#,
        );
    }
}

#[test]
fn a_process_that_may_not_ask_who_it_is_goes_on() {
    filtered(
        &["getpid"],
        r#"
again = opened("a.log", os.O_APPEND)
logged(again, b"b")
more = opened("more.log", os.O_TRUNC)
logged(more, b"m", 5)
os.dup2(more, 77)
logged(77, b"m")
os.unlink("more.log")
logged(fd, b"c")
# `cut` asks, too.
os.getpid = lambda: int(os.readlink("/proc/self"))
"#,
    );
}
