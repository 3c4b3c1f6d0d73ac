//! Limits on the size of files (`ulimit -f`) and on memory (`ulimit -v`, `ulimit -l` and
//! `mlockall`) hold for what Forebay makes, writes to and maps, too: nothing ends by it that would
//! not end without Forebay.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox};
use nix::sys::signal::Signal;
use std::{fs, os::unix::fs::PermissionsExt};

/// Appends to a log, each write synced, with the signal as a program of C has it.
const PROGRAM: &str = r#"
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
log = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
for i in range(40):
    if i == 20 and "later" in sys.argv:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    os.write(log, b"%099d\n" % i); os.fsync(log)
if "beyond" in sys.argv:
    os.write(log, b"x" * 8192)
    os.write(log, b"x")
"#;

fn forebay(sandbox: &Sandbox, pool: &str, before: &str, inside: &str, how: &str) -> Ran {
    fs::write(sandbox.file("program.py"), PROGRAM).unwrap();
    let line = format!(
        "{before} exec {} run --explain --absorb '*.log' --absorb-preallocated --pool {pool} -- bash -c '{inside} exec python3 -S program.py {how}'",
        common::FOREBAY
    );
    let mut shell = std::process::Command::new("bash");
    shell
        .args(["-c", &line])
        .current_dir(sandbox.path())
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(shell.output().unwrap())
}

fn lines(sandbox: &Sandbox) -> usize {
    fs::read(sandbox.file("a.log"))
        .unwrap()
        .split(|b| *b == b'\n')
        .count()
        - 1
}

/// A pool on a disk, and one that is written to as memory.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::on_disk();
    sandbox
        .run("pool create disk --disk --size 6MiB --segment-size 1MiB")
        .ok();
    sandbox
        .run("pool create large --disk --size 12MiB --segment-size 1MiB")
        .ok();
    sandbox
        .run("pool create memory --emulated --size 6MiB --segment-size 1MiB")
        .ok();
    sandbox
}

/// Promise (programs): A limit on the size of files below Forebay's need is refused, or has files
/// stay plain.
#[test]
fn a_run_that_cannot_make_its_own_files_is_refused_with_why() {
    let sandbox = sandbox();
    // Also one that has room for the pool, and none for the page that all processes share.
    for (pool, kib) in [
        ("disk", 8),
        ("memory", 8),
        ("large", 10 << 10),
        ("disk", 8 << 10),
    ] {
        let ran = forebay(&sandbox, pool, &format!("ulimit -f {kib};"), "", "");
        ran.fails(1, &["ulimit -f, LimitFSIZE="]);
        assert!(!sandbox.file("a.log").exists());
    }
}

/// Promise (programs): Limits on memory and on the size of files that have room for the pool and a
/// few files' places keep no file from being absorbed.
#[test]
fn a_run_below_small_limits_absorbs_some_files() {
    let sandbox = sandbox();
    // Less than the page takes for all files that a run can have, or than is left for that beside
    // the rest of forebay.
    for limit in ["-f 10240", "-v 614400", "-n 1024"] {
        let ran = forebay(&sandbox, "disk", &format!("ulimit {limit};"), "", "").ok();
        assert!(
            !ran.stderr.contains("stays plain"),
            "{limit}: {}",
            ran.stderr
        );
        let saved = ran.stderr.contains("40 syncs were saved");
        assert!(saved, "{limit}: {}", ran.stderr);
        assert_eq!(lines(&sandbox), 40, "{limit}");
        fs::remove_file(sandbox.file("a.log")).unwrap();
    }
}

/// Locks all that it maps, opens a log, and says how much more is locked then, in KiB.
const LOCKS: &str = r#"
import ctypes, os
CURRENT_AND_FUTURE = 3
def locked():
    said = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(said["VmLck"].split()[0])
if ctypes.CDLL(None).mlockall(CURRENT_AND_FUTURE) != 0:
    print("refused")
    raise SystemExit
before = locked()
log = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
for i in range(40):
    os.write(log, b"%099d\n" % i); os.fsync(log)
print(locked() - before)
"#;

/// Promise (programs): A program that locks its memory has no more of the run's locked than the
/// files take that the run's limits allow.
#[test]
fn program_that_locks_its_memory_absorbs_and_locks_little() {
    let sandbox = sandbox();
    fs::write(sandbox.file("locks.py"), LOCKS).unwrap();
    let line = format!(
        "ulimit -n 1024; exec {} run --explain --absorb '*.log' --pool memory -- python3 -S locks.py",
        common::FOREBAY
    );
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", &line]).current_dir(sandbox.path());
    let ran = Ran::of(
        shell
            .env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .output()
            .unwrap(),
    )
    .ok();
    let said = String::from_utf8(ran.stdout).unwrap();
    if said.trim() == "refused" {
        println!("skipped: memory may not be locked here");
        return;
    }
    assert!(ran.stderr.contains("40 syncs were saved"), "{}", ran.stderr);
    // The pool, the page, and stacks of what works beside.
    let more: u64 = said.trim().parse().unwrap();
    assert!(more < 48 << 10, "{more} KiB");
}

/// Promise: as `a_run_that_cannot_make_its_own_files_is_refused_with_why`.
#[test]
fn a_limit_below_the_pools_size_keeps_files_plain_and_is_told() {
    let sandbox = sandbox();
    let ran = forebay(&sandbox, "disk", "", "ulimit -f 8;", "").ok();
    assert!(ran.stderr.contains("ulimit -f"), "{}", ran.stderr);
    assert_eq!(lines(&sandbox), 40);
    fs::remove_file(sandbox.file("a.log")).unwrap();
    let ran = forebay(&sandbox, "disk", "", "", "later").ok();
    assert!(ran.stderr.contains("ulimit -f"), "{}", ran.stderr);
    assert_eq!(lines(&sandbox), 40);
}

/// Promise (programs): A limit on the size of files ends a program only if it would without
/// Forebay.
#[test]
fn a_program_beyond_its_limit_ends_as_it_does_without_forebay() {
    let sandbox = sandbox();
    for pool in ["disk", "memory"] {
        let ran = forebay(&sandbox, pool, "", "ulimit -f 8;", "beyond");
        assert_eq!(
            ran.code,
            Some(128 + Signal::SIGXFSZ as i32),
            "{}",
            ran.stderr
        );
        assert_eq!(fs::metadata(sandbox.file("a.log")).unwrap().len(), 8192);
        fs::remove_file(sandbox.file("a.log")).unwrap();
    }
}

/// Opens a log under a limit that leaves no room for the pool: what is mapped then that was not
/// before?
const NO_ROOM: &str = r#"
import ctypes, os, resource, sys
def mapped():
    return [line.split()[5] for line in open("/proc/self/maps") if len(line.split()) > 5]
def limit():
    if "address" in sys.argv:
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), used + (1 << 20)))
    else:
        # What is mapped from now on is locked.
        FUTURE = 2
        c = ctypes.CDLL(None, use_errno=True)
        assert c.mlockall(FUTURE) == 0, os.strerror(ctypes.get_errno())
        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, hard))
        os.setresuid(65534, 65534, 65534)
mapped()
limit()
before = mapped()
log = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
for i in range(40):
    os.write(log, b"%099d\n" % i); os.fsync(log)
# Of libraries only the code that was looked for may be there.
more = [path for path in mapped() if path not in before and ".so" not in path]
assert not more, more
"#;

/// Promise (programs): A program whose limits leave no room for the pool goes on with plain files
/// and nothing of the pool in its memory, and is told.
#[test]
fn program_without_room_for_the_pool_goes_on_with_plain_files() {
    let sandbox = sandbox();
    sandbox.let_in();
    fs::create_dir(sandbox.file("open")).unwrap();
    fs::set_permissions(sandbox.file("open"), fs::Permissions::from_mode(0o777)).unwrap();
    for (pool, what) in ["disk", "memory"]
        .iter()
        .flat_map(|pool| ["address", "locked"].map(|what| (*pool, what)))
    {
        let line = format!("run --explain --absorb *.log --pool ../{pool} -- python3 -S -c");
        let mut command = sandbox.command(&line);
        command.arg(NO_ROOM).arg(what);
        command.current_dir(sandbox.file("open"));
        command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        let ran = Ran::of(command.output().unwrap()).ok();
        assert!(
            ran.stderr.contains("stays plain"),
            "{pool} {what}: {}",
            ran.stderr
        );
        let written = fs::read(sandbox.file("open/a.log")).unwrap();
        assert_eq!(written.len(), 4000, "{pool} {what}");
        fs::remove_file(sandbox.file("open/a.log")).unwrap();
    }
}

#[test]
fn why_a_process_stays_plain_is_said_with_the_remedy() {
    let sandbox = sandbox();
    let is_root = rustix::process::geteuid().is_root();
    const OPEN: &str = "import os, resource\n\
         free = os.dup(0); os.close(free); used = int(open('/proc/self/statm').read().split()[0]) * 4096\n\
         LIMIT\n\
         os.open('a.log', os.O_WRONLY | os.O_CREAT, 0o600)";
    let files = "resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, free + 1))";
    let memory = "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), used + (1 << 20)))";
    let other_memory =
        r#"unshare --mount --net sh -c 'mount -t tmpfs none /dev/shm && exec "$@"' sh"#;
    for (before, limit, needs_root, remedy) in [
        ("", files, false, "ulimit -n"),
        ("", memory, false, "ulimit -v"),
        ("unshare --net", "", true, "another network namespace"),
        (other_memory, "", true, "its own /dev/shm"),
    ] {
        if needs_root && !is_root {
            println!("skipped: only root makes namespaces");
            continue;
        }
        let mut command = sandbox.command("run --absorb *.log --pool disk -- sh -c");
        command.arg(format!("exec {before} \"$@\""));
        command.args(["sh", "python3", "-S", "-c", &OPEN.replace("LIMIT", limit)]);
        command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        let ran = Ran::of(command.output().unwrap()).ok();
        for words in ["stays plain", remedy] {
            assert!(ran.stderr.contains(words), "{remedy}: {}", ran.stderr);
        }
    }
}
