//! Programs that may not make all system calls (seccomp): what Forebay asks the kernel itself, it
//! asks in another way, or lets the program's call fail.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    databases::{boot_anew, small_pool},
    disk::Disk,
    recovered::{self, BEGIN, RUN, nothing_is_lost},
};

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
            recovered::Disk::All,
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

/// Truncates the log by opening it, and writes to it.
const TRUNCATED: &str = r#"
again = opened("a.log", os.O_TRUNC)
assert os.lseek(again, 0, os.SEEK_END) == 0
logged(again, b"b")
"#;

/// Promise (programs): A process that seccomp refuses `fstat`, `newfstatat` or `getpid` truncates
/// and unlinks its logs as without Forebay, or is told that an open failed, and is not aborted.
#[test]
fn a_log_is_truncated_by_open_where_fstat_is_refused() {
    filtered(&["fstat"], TRUNCATED);
}

/// Promise: as `a_log_is_truncated_by_open_where_fstat_is_refused`.
#[test]
fn a_log_is_truncated_by_open_where_only_statx_is_allowed() {
    filtered(&["fstat", "newfstatat"], TRUNCATED);
}

/// Promise: as `a_log_is_truncated_by_open_where_fstat_is_refused`.
#[test]
fn an_open_fails_and_truncates_nothing_where_no_fstat_works() {
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

/// On a file system that is mounted anew: without a record that it is gone, a log that is not found
/// would be missed by the recovery.
///
/// Promise: as `a_log_is_truncated_by_open_where_fstat_is_refused`.
#[test]
fn a_log_unlinked_where_fstat_is_refused_is_known_to_be_gone() {
    for calls in [&["fstat"][..], &["fstat", "newfstatat"]] {
        let sandbox = Sandbox::new();
        let Some(mut disk) = Disk::make(sandbox.path(), "ext4") else {
            return;
        };
        let pool = small_pool();
        let script = format!(
            r#"{BEGIN}
os.chdir({:?})
fd = opened("a.log")
logged(fd, b"a", 5)
for call in {calls:?}:
    filtered(call, REFUSED)
os.unlink("a.log")
os.fsync(os.open(".", os.O_RDONLY))
cut()
"#,
            disk.at
        );
        let mut environment = Vec::new();
        boot_anew(&mut environment, 1);
        let mut run = sandbox.command(RUN);
        run.arg(pool.path())
            .args(["--", "python3", "-c", &script])
            .env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .envs(environment.clone());
        let ran = Ran::of(run.output().unwrap());
        assert_eq!(ran.code, None, "{}", ran.stderr);
        disk.cut();
        disk.mount_again();
        boot_anew(&mut environment, 2);
        let mut recover = sandbox.command("recover --pool");
        recover.arg(pool.path()).envs(environment);
        Ran::of(recover.output().unwrap()).ok();
        assert!(!disk.at.join("a.log").exists());
    }
}

/// Promise: as `a_log_is_truncated_by_open_where_fstat_is_refused`.
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
