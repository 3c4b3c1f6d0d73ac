//! The supervisor has files of a file system open no longer than a moment after the program closed
//! them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    disk::{Disk, run as mount},
};
use std::fs;

/// Two logs on a file system, and one beside it that is written all the time, or not; then the file
/// system is unmounted, again and again.
const PROGRAM: &str = r#"
import os, subprocess, sys, time
mounted, how = sys.argv[1:]
other = os.open("other.log", os.O_RDWR | os.O_CREAT, 0o600)
logs = [os.open(f"{mounted}/{name}.log", os.O_RDWR | os.O_CREAT, 0o600) for name in "xy"]
for log in logs:
    os.write(log, b"A" * 100); os.fsync(log)
os.close(logs[0])
os.close(logs[1])
begun = time.time()
while subprocess.run(["umount", mounted], capture_output=True).returncode != 0:
    assert time.time() - begun < 20
    if how == "busy":
        os.write(other, b"x" * 10); os.fsync(other)
    time.sleep(0.05)
print("%.1f" % (time.time() - begun))
"#;
/// Two logs in one directory, of which one is closed for a while and the other written all the
/// time: how often the supervisor has the first one open then.
const CLOSED: &str = r#"
import os, time
x, y = [os.open(f"{name}.log", os.O_RDWR | os.O_CREAT, 0o600) for name in "xy"]
os.write(x, b"A"); os.fsync(x); os.close(x)
begun = time.time()
while time.time() - begun < 2:
    os.write(y, b"B"); os.fsync(y); time.sleep(0.05)
held = f"/proc/{os.getppid()}/fd"
def link(fd):
    try: return os.readlink(f"{held}/{fd}")
    except OSError: return ""
print(sum(link(fd).endswith("/x.log") for fd in os.listdir(held)))
"#;

fn run(sandbox: &Sandbox, script: &str, words: &[&str]) -> Ran {
    let mut command = sandbox
        .command("run --absorb *.log --absorb-preallocated --explain --pool p -- python3 -c");
    command
        .arg(script)
        .args(words)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(command.output().unwrap()).ok()
}

/// Promise (programs): A file system is free to be unmounted a second after the program closed its
/// last log there, whatever else it writes.
#[test]
fn a_file_system_of_closed_logs_is_free_soon_beside_busy_logs() {
    for how in ["idle", "busy"] {
        let sandbox = Sandbox::on_disk();
        let Some(disk) = Disk::make(sandbox.path(), "ext4") else {
            return;
        };
        sandbox.pool();
        let ran = run(&sandbox, PROGRAM, &[disk.at.to_str().unwrap(), how]);
        let seconds: f64 = ran.text().trim().parse().unwrap();
        println!("{how}: {seconds} s");
        assert!(seconds < 10.0, "{how}: {seconds} s");
        assert!(ran.stderr.contains("x.log"), "{}", ran.stderr);
        let (image, at) = (sandbox.file("image"), disk.at.to_str().unwrap());
        mount("mount", &["-o", "loop,ro", image.to_str().unwrap(), at]).unwrap();
        for name in ["x.log", "y.log"] {
            assert_eq!(fs::read(disk.at.join(name)).unwrap(), [b'A'; 100]);
        }
    }
}

#[test]
fn a_closed_log_stays_absorbed_beside_an_open_one_on_its_disk() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let ran = run(&sandbox, CLOSED, &[]);
    assert_eq!(ran.text().trim(), "1", "{}", ran.stderr);
}
