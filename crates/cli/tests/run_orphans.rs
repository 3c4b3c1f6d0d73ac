//! What is under way when the supervisor of `forebay run` dies: a write that the kernel has and the pool has not, while another process of the run settles the lane and
//! cannot (`programs/held.c`). A recovery after a power cut has nothing to decide.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    databases::{boot_anew, small_pool},
};
use forebay_measure::processes::kill_group;
use rustix::process::Pid;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::Stdio,
    thread,
    time::Duration,
};

/// Longer than what a recovery takes for the time of a file's last record.
const LATER: Duration = Duration::from_millis(300);
/// While the other process waits for the write.
const SOON: Duration = Duration::from_millis(20);

#[test]
fn a_write_that_the_pool_has_not_yet_when_the_supervisor_dies_is_waited_for_by_who_settles_the_lane()
 {
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
        .env("FOREBAY_TEST_SYNC_FAULT", sandbox.file("fault"))
        // However busy the machine is.
        .env("FOREBAY_TEST_CHANGE_WAIT_MS", "20000")
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
    fs::write(sandbox.file("fault"), format!("5 {}", u64::MAX)).unwrap();
    writeln!(input, "sync").unwrap();
    thread::sleep(SOON);
    writeln!(input, "go").unwrap();
    let mut said = [line(), line()];
    said.sort();
    assert_eq!(said, ["synced -1", "written 5"]);
    assert!(kill_group(Pid::from_child(&forebay)));
    boot_anew(&mut environment, 2);
    let recovered = sandbox
        .command("recover --pool")
        .arg(pool.path())
        .envs(environment)
        .output()
        .unwrap();
    assert!(recovered.status.success(), "{recovered:?}");
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), b"newersed");
}
