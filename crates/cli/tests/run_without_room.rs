//! Runs that can absorb nothing: no lane is free, the pool filled up before the first process said
//! hello, or the file system has no identity for a file. The program goes on with plain syncs, is
//! told why, and loses nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    FOREBAY, Ran, Sandbox,
    databases::boot_anew,
    disk::{Mounted, run},
    recovered::BEGIN,
};
use std::fs;

/// Writes to a log, and says whether its syncs are the kernel's.
const WRITES: &str = r#"
fd = opened(sys.argv[1])
logged(fd, b"a", 50)
print("the kernel's" if synced_by_the_kernel(fd) else "the pool's", flush=True)
"#;

/// Takes a lane by writing to `outer.log`, when the run inside it has started, or before that;
/// waits for it.
const OUTER: &str = r#"
import os, subprocess, sys, time
forebay, pool, when, script = sys.argv[1:]
def take():
    fd = os.open("outer.log", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(fd, b"a" * 100)
    os.fsync(fd)
    return fd
if when == "before":
    fd = take()
inner = subprocess.Popen([forebay, "run", "--explain", "--absorb", "*.log", "--pool", pool, "--", "sh", "-c",
    "touch started; while ! test -e taken; do sleep 0.01; done; exec python3 -c \"$SCRIPT\" inner.log"], env={**os.environ, "SCRIPT": script})
while not os.path.exists("started"):
    time.sleep(0.01)
    assert inner.poll() is None
if when == "after":
    fd = take()
open("taken", "w").close()
sys.exit(inner.wait())
"#;

/// A run inside another one, of the same pool, which leaves it without these words' cause.
fn inside_another(pool: &str, segments: u16, when: &str, words: &[&str]) {
    let sandbox = Sandbox::new();
    sandbox
        .run(&format!("pool create p --emulated {pool}"))
        .ok();
    let line = format!("run --absorb *.log --segments {segments} --pool p -- python3 -c");
    let mut command = sandbox.command(&line);
    command
        .args([OUTER, FOREBAY, "p", when, &format!("{BEGIN}{WRITES}")])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(command.output().unwrap()).ok();
    assert_eq!(ran.text(), "the kernel's\n", "{}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
    }
    assert_eq!(fs::read(sandbox.file("inner.log")).unwrap(), [b'a'; 5000]);
    sandbox.run("doctor .").ok();
}

/// Promise (programs): A program goes on with plain syncs, and is told, where no lane is free, the
/// pool fills up before the first hello, or a file has no identity.
#[test]
fn a_run_without_a_free_lane_says_so_and_syncs_plainly() {
    let pool = "--size 9MiB --segment-size 1MiB --lanes 1";
    inside_another(pool, 2, "before", &["inner.log stays plain", "lane"]);
}

/// Promise: as `a_run_without_a_free_lane_says_so_and_syncs_plainly`.
#[test]
fn a_pool_full_before_the_first_hello_leaves_plain_syncs() {
    let pool = "--size 6MiB --segment-size 1MiB --lanes 4";
    inside_another(pool, 4, "after", &["inner.log stays plain", "segments"]);
}

/// A file system of this kind in the sandbox; none where it cannot be mounted.
fn mounted(sandbox: &Sandbox, kind: &str) -> Option<Mounted> {
    let at = sandbox.file("mounted");
    fs::create_dir_all(&at).unwrap();
    let options = match kind {
        "overlay" => {
            let parts = ["lower", "upper", "work"].map(|name| {
                let dir = sandbox.file(name);
                fs::create_dir_all(&dir).unwrap();
                format!("{name}dir={}", dir.display())
            });
            parts.join(",")
        }
        _ => "defaults".to_owned(),
    };
    let words = ["-t", kind, "-o", &options, "none", at.to_str().unwrap()];
    match run("mount", &words) {
        Ok(_) => Some(Mounted::already(&at)),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// Promise: as `a_run_without_a_free_lane_says_so_and_syncs_plainly`.
#[test]
fn logs_on_a_file_system_without_identities_stay_plain() {
    let sandbox = Sandbox::new();
    let Some(_mounted) = mounted(&sandbox, "ramfs") else {
        return;
    };
    sandbox.pool();
    let mut command = sandbox.command("run --absorb *.log --explain --pool p -- python3 -c");
    command.args([&format!("{BEGIN}{WRITES}"), "mounted/a.log"]);
    let ran = Ran::of(command.output().unwrap()).ok();
    assert_eq!(ran.text(), "the kernel's\n", "{}", ran.stderr);
    let said = "its file system does not identify it";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let written = fs::read(sandbox.file("mounted/a.log")).unwrap();
    assert_eq!(written, [b'a'; 5000]);
}

#[test]
fn what_an_overlay_absorbed_is_there_after_it_was_mounted_anew() {
    let sandbox = Sandbox::on_disk();
    let Some(before) = mounted(&sandbox, "overlay") else {
        return;
    };
    sandbox.pool();
    let mut environment = Vec::new();
    boot_anew(&mut environment, 1);
    let script =
        format!("{BEGIN}fd = opened('mounted/a.log')\nos.fsync(fd)\nlogged(fd, b'a', 50)\ncut()");
    let mut command = sandbox.command("run --absorb *.log --pool p -- python3 -c");
    let run = command.arg(script).envs(environment.clone());
    let ran = Ran::of(run.output().unwrap());
    assert_eq!(ran.code, None, "{}", ran.stderr);
    drop(before);
    // As a disk that was never written to would have it.
    let file = fs::File::options()
        .write(true)
        .open(sandbox.file("upper/a.log"));
    file.unwrap().set_len(0).unwrap();
    let _after = mounted(&sandbox, "overlay").unwrap();
    boot_anew(&mut environment, 2);
    let mut recover = sandbox.command("recover --force --json --pool p");
    let report = Ran::of(recover.envs(environment).output().unwrap())
        .ok()
        .json();
    assert_eq!(report["done"], true, "{report}");
    let found = fs::read(sandbox.file("mounted/a.log")).unwrap();
    assert_eq!(found, [b'a'; 5000], "{report}");
}
