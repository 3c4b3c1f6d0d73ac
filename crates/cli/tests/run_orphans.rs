//! Writes under way when the supervisor of `forebay run` dies: the kernel has one and the pool has
//! not, while another process of the run settles the lane and cannot (`programs/held.c`). A
//! recovery after a power cut has nothing to decide.
//!
//! And what a process writes that goes on past a lane which no process settles, because a member
//! lives that makes no call.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    databases::{boot_anew, small_pool},
    disk::Disk,
    have,
};
use forebay_measure::processes::kill_group;
use rustix::process::Pid;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

/// Longer than what a recovery takes for the time of a file's last record.
const LATER: Duration = Duration::from_millis(300);
/// While the other process waits for the write.
const SOON: Duration = Duration::from_millis(20);

/// Promise (processes): A write that the kernel has and the pool lacks when the supervisor dies is
/// logged before the lane is closed.
#[test]
fn whoever_settles_a_lane_waits_for_writes_the_pool_lacks() {
    let sandbox = Sandbox::new();
    common::build("held", sandbox.path());
    let pool = small_pool();
    let mut environment = Vec::new();
    boot_anew(&mut environment, 1);
    let mut forebay = sandbox
        .command("run --absorb *.log --pool")
        .arg(pool.path())
        .arg("--")
        .arg(sandbox.file("held"))
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_TEST_FAULTS", sandbox.faults())
        // However busy the machine is.
        .env("FOREBAY_TEST_WAITS", "change=20000")
        .envs(environment.clone())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut input = forebay.stdin.take().unwrap();
    let mut lines = BufReader::new(forebay.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    assert_eq!([line(), line()], ["began 0", "began 0"]);
    thread::sleep(LATER);
    writeln!(input, "write").unwrap();
    assert!(line().starts_with("held "));
    forebay.kill().unwrap();
    forebay.wait().unwrap();
    // Whatever the lane has stays in it: no file can be synced.
    sandbox.fail("sync");
    writeln!(input, "sync").unwrap();
    thread::sleep(SOON);
    writeln!(input, "go").unwrap();
    let mut said = [line(), line()];
    said.sort();
    assert_eq!(said, ["synced -1", "written 5"]);
    assert!(kill_group(Pid::from_child(&forebay)));
    boot_anew(&mut environment, 2);
    sandbox.recover(pool.path(), &environment);
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), b"newersed");
}

/// A member that has synced what it wrote to `a.log`, and makes no call after its supervisor is
/// dead. What it begins is to execute `newer`, by the descriptor with a number: that overwrites and
/// syncs the same bytes, and ends both.
const SILENT: &str = r#"
import os, signal, sys
fd, member = os.open("a.log", os.O_RDWR), os.getpid()
os.set_inheritable(fd, True)
os.pwrite(fd, b"A" * 100, 0)
os.fdatasync(fd)
def newer(fd):
    return f"import os\nos.pwrite({fd}, b'B' * 100, 0)\nos.fdatasync({fd})\nfor process in {member}, os.getpid(): os.kill(process, 9)"
os.kill(os.getppid(), signal.SIGKILL)
"#;

/// The time that a file has on its disk is that of the last change of its inode that was synced. It
/// says nothing for a while of what is written in place, and synced by `fdatasync`.
fn is_not_written_over(begin: &str) {
    let sandbox = Sandbox::on_disk();
    let Some(mut disk) = Disk::make(sandbox.path(), "ext4") else {
        return;
    };
    let log = disk.at.join("a.log");
    // With its space.
    fs::write(&log, [b'0'; 100]).unwrap();
    disk.sync();
    let pool = small_pool();
    let script = format!("{SILENT}{begin}\nsignal.pause()");
    let ran = sandbox
        .command("run --absorb *.log --absorb-preallocated --pool")
        .arg(pool.path())
        .args(["--", "python3", "-c", &script])
        .current_dir(&disk.at)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), None, "{ran:?}");
    disk.cut();
    disk.mount_again();
    // Refused or not: nothing older comes over it.
    let mut recover = sandbox.command("recover --pool");
    let recovered = recover.arg(pool.path()).output().unwrap();
    let found = fs::read(&log).unwrap();
    assert!(
        found == [b'B'; 100],
        "{:?}: {ran:?}, {recovered:?}",
        String::from_utf8_lossy(&found)
    );
}

/// Promise (processes): A recovery does not overwrite bytes that a forked child, a program without
/// the library, or one with a log as standard input synced past a lane that nobody settled.
#[test]
fn a_forked_childs_syncs_past_an_unsettled_lane_are_kept() {
    is_not_written_over("if os.fork() == 0: exec(newer(fd))");
}

/// Promise: as `a_forked_childs_syncs_past_an_unsettled_lane_are_kept`.
#[test]
fn syncs_without_the_library_past_an_unsettled_lane_are_kept() {
    is_not_written_over(
        "if os.fork() == 0: os.execve(sys.executable, ['python3', '-c', newer(fd)], {})",
    );
}

/// Promise: as `a_forked_childs_syncs_past_an_unsettled_lane_are_kept`.
#[test]
fn syncs_by_standard_input_past_an_unsettled_lane_are_kept() {
    is_not_written_over(
        "os.posix_spawn(sys.executable, ['python3', '-c', newer(0)], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, fd, 0)])",
    );
}

/// Whether a descriptor appends is a matter of the open file, which other processes have too. A
/// process that had it otherwise for a moment would have them write over one another's records, for
/// good if it was killed in that.
#[test]
fn a_log_that_is_written_again_appends_all_the_time() {
    const APPENDING: &str = r#"
import os
fd = os.open("a.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.fsync(fd)
print("open", flush=True)
input()
os.write(fd, b"one")
print("ready", flush=True)
input()
os.write(fd, b"two")
os.fsync(fd)
print("synced", flush=True)
"#;
    if !have("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let mut forebay = sandbox
        .command("run --absorb *.log --pool")
        .arg(pool.path())
        .args([
            "--",
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=fcntl,openat",
            "-o",
        ])
        .arg(sandbox.file("trace"))
        .args(["python3", "-c", APPENDING])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_TEST_FAULTS", sandbox.faults())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(sandbox.file("said")).unwrap())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut input = forebay.stdin.take().unwrap();
    let mut lines = BufReader::new(forebay.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "open");
    // The supervisor's next sync fails: what the lane has of the file is to be written again.
    sandbox.fail("sync");
    writeln!(input).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let begun = Instant::now();
    let said = || fs::read_to_string(sandbox.file("said")).unwrap();
    while !said().contains("a.log") || !said().contains("Input/output error") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", said());
        thread::sleep(LATER);
    }
    forebay.kill().unwrap();
    forebay.wait().unwrap();
    sandbox.mend("sync");
    writeln!(input).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "synced", "{}", said());
    kill_group(Pid::from_child(&forebay));
    let trace = fs::read_to_string(sandbox.file("trace")).unwrap();
    assert!(!trace.contains("F_SETFL, "), "{trace}");
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), b"onetwo");
}
