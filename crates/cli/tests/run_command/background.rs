//! A program that puts itself into the background is absorbed there, waited for, and gets the
//! signals.

use crate::common::{Ran, Sandbox};
use rustix::process::Signal;
use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

/// Goes into the background as daemons do, writes a log there, and ends with status 5, or when it
/// is told to with 6. A handler could be too early for the sleep that it is to interrupt.
const DAEMON: &str = r#"
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
def background():
    if os.fork():
        os._exit(0)
background()
os.setsid()
background()
time.sleep(0.5)
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
for _ in range(9):
    os.write(fd, b"x" * 100)
    os.fdatasync(fd)
print("written", flush=True)
if len(sys.argv) > 1 and signal.sigtimedwait([signal.SIGTERM], 30):
    sys.exit(6)
sys.exit(5)
"#;

/// Promise: as `a_redis_that_goes_into_the_background_is_absorbed_there`.
#[test]
fn a_program_in_the_background_is_absorbed_and_waited_for() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let mut command = sandbox.command("run --explain --absorb *.log --pool p -- python3 -c");
    let ran = Ran::of(command.arg(DAEMON).output().unwrap());
    let writes = ran.told("a.log").split_whitespace().nth(1);
    assert_eq!(writes, Some("9"), "{}", ran.stderr);
    ran.fails(5, &["went into the background", "stays until that ends"]);
}

#[test]
fn signals_go_to_what_is_left_in_the_background() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let mut command = sandbox.command("run --absorb *.log --pool p -- python3 -c");
    let mut child = command
        .args([DAEMON, "stay"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "written\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

/// Absorbs a log, and goes on until it is told to end.
const LEFT: &str = r#"
import os, signal, time
def told(*_):
    open("told", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, told)
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, b"x" * 100)
os.fdatasync(fd)
open("absorbed", "w").close()
time.sleep(120)
"#;

#[test]
fn a_failed_programs_children_are_named_and_get_the_signals() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let script =
        r#"python3 -c "$0" & while ! test -e absorbed; do sleep 0.01; done; kill -KILL $$"#;
    let mut command = sandbox.command("run --absorb *.log --pool p -- sh -c");
    let mut run = sandbox.start(command.args([script, LEFT]), "said");
    sandbox.hear(
        &mut run,
        "said",
        "sh has ended, and these go on under forebay: python3",
    );
    assert!(!sandbox.file("told").exists());
    run.handle().signal(Signal::TERM);
    sandbox.ends(run, "said", 137);
    assert!(sandbox.file("told").exists());
}
