//! Programs whose processes share open files: what is logged is where the kernel put it, whoever moved the position, exchanged the descriptor or changed its flags
//! meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    cut::put_back,
    databases::{boot_anew, small_pool},
};
use std::fs;

/// Python for all of them: a hang ends the program, and `cut` the run, as a power cut does.
const BEGIN: &str = r#"
import ctypes, fcntl, os, random, signal, struct, sys, threading
signal.alarm(120)
def opened(name, flags=0):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    os.set_inheritable(fd, True)
    return fd
def logged(fd, byte, times=1):
    for _ in range(times):
        os.write(fd, byte * 100)
    os.fdatasync(fd)
def spawned(code, **without):
    """Executes Python by `posix_spawn`, which calls no handler of `fork`; without the variables that are named."""
    environment = {name: value for name, value in os.environ.items() if name not in without}
    child = os.posix_spawn(sys.executable, ["python3", "-c", "import os;" + code], environment)
    assert os.waitpid(child, 0)[1] == 0
def fails(call, action):
    """From now on this system call of this process is not made: seccomp's action instead."""
    number = {"x86_64": {"lseek": 8, "kcmp": 312}, "aarch64": {"lseek": 62, "kcmp": 272}}[os.uname().machine][call]
    code = struct.pack("=" + "HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, number, 6, 0, 0, action, 6, 0, 0, 0x7FFF0000)
    memory = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("=Hxxxxxx", 4) + struct.pack("P", ctypes.addressof(memory)))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
KILLED, REFUSED = 0x80000000, 0x00050001
def cut():
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
"#;

/// What the disk has of the files when the machine starts again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    /// What was synced for the run.
    Synced,
    /// All that the kernel had.
    All,
}

/// Runs a program until it calls `cut`: `a.log` as the kernel had it, and as a recovery in another boot makes it.
fn cut_and_recovered(disk: Disk, script: &str) -> (Vec<u8>, Vec<u8>) {
    let sandbox = Sandbox::new();
    let (pool, synced) = (small_pool(), sandbox.file("synced"));
    let mut environment = Vec::new();
    boot_anew(&mut environment, 1);
    let mut command = sandbox.command("run --absorb *.log --pool");
    command
        .arg(pool.path())
        .args(["--", "python3", "-c", &format!("{BEGIN}{script}")])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_TEST_SYNCED", &synced)
        .envs(environment.clone());
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, None, "{}", ran.stderr);
    let kernel = fs::read(sandbox.file("a.log")).unwrap();
    if disk == Disk::Synced {
        put_back(&synced);
    }
    boot_anew(&mut environment, 2);
    let mut recover = sandbox.command("recover --pool");
    recover.arg(pool.path()).envs(environment);
    Ran::of(recover.output().unwrap()).ok();
    (kernel, fs::read(sandbox.file("a.log")).unwrap())
}

/// What the kernel had is there.
#[track_caller]
fn nothing_is_lost(disk: Disk, script: &str) -> Vec<u8> {
    let (kernel, recovered) = cut_and_recovered(disk, script);
    let differs = kernel.iter().zip(&recovered).position(|(a, b)| a != b);
    assert!(
        kernel == recovered,
        "{} bytes, {} recovered, different at {differs:?}",
        kernel.len(),
        recovered.len()
    );
    recovered
}

#[test]
fn a_write_after_a_spawned_program_moved_the_position_is_recovered_where_it_went() {
    let recovered = nothing_is_lost(
        Disk::Synced,
        r#"
fd = opened("a.log")
logged(fd, b"a")
spawned(f"os.lseek({fd}, 1000, os.SEEK_SET)", LD_PRELOAD=None)
logged(fd, b"c")
cut()
"#,
    );
    assert_eq!(
        recovered,
        [[b'a'; 100].as_slice(), &[0; 900], &[b'c'; 100]].concat()
    );
}

#[test]
fn writes_of_a_spawned_program_by_the_same_open_file_are_recovered_beside_the_spawners() {
    let recovered = nothing_is_lost(
        Disk::Synced,
        r#"
fd = opened("a.log")
logged(fd, b"a")
for byte in b"b", b"d":
    spawned(f"os.write({fd}, {byte} * 100); os.fdatasync({fd})")
    logged(fd, b"c")
cut()
"#,
    );
    let expected = [b'a', b'b', b'c', b'd', b'c'].map(|byte| [byte; 100]);
    assert_eq!(recovered, expected.concat());
}

#[test]
fn a_position_that_a_forked_child_moves_all_the_time_puts_no_record_in_the_wrong_place() {
    nothing_is_lost(
        Disk::Synced,
        r#"
fd = opened("a.log")
logged(fd, b"a", 300)
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        os.lseek(fd, random.randrange(30_000), os.SEEK_SET)
    os._exit(0)
for n in range(20_000):
    os.write(fd, b"%07d " % n)
os.fdatasync(fd)
cut()
"#,
    );
}

#[test]
fn what_a_killed_process_wrote_and_another_read_and_synced_survives_a_power_cut() {
    // It dies between its write and the question where that went: it is not logged.
    let recovered = nothing_is_lost(
        Disk::Synced,
        r#"
fd = opened("a.log")
logged(fd, b"a", 3)
if os.fork() == 0:
    again = opened("a.log")
    fails("lseek", KILLED)
    os.write(again, b"b" * 200)
assert os.WIFSIGNALED(os.wait()[1])
assert open("a.log", "rb").read() == b"b" * 200 + b"a" * 100
os.fdatasync(fd)
cut()
"#,
    );
    assert_eq!(recovered, [[b'b'; 100], [b'b'; 100], [b'a'; 100]].concat());
}

#[test]
fn a_descriptor_that_begins_to_append_changes_no_other_where_nobody_may_compare_them() {
    nothing_is_lost(
        Disk::All,
        r#"
fails("kcmp", REFUSED)
fd, other = opened("a.log"), opened("a.log")
logged(fd, b"a", 5)
fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
os.pwrite(other, b"b" * 100, 100)
os.pwrite(fd, b"c" * 100, 0)
os.fdatasync(fd)
cut()
"#,
    );
}

#[test]
fn writes_to_an_open_file_that_another_process_has_append_are_recovered_where_they_went() {
    nothing_is_lost(
        Disk::All,
        r#"
fd = opened("a.log")
logged(fd, b"a", 5)
spawned(f"import fcntl; fcntl.fcntl({fd}, fcntl.F_SETFL, os.O_APPEND)")
os.pwrite(fd, b"b" * 100, 100)
os.fdatasync(fd)
cut()
"#,
    );
}

#[test]
fn what_threads_write_while_another_exchanges_their_descriptor_is_logged_of_the_file_it_went_to() {
    nothing_is_lost(
        Disk::Synced,
        r#"
libc = ctypes.CDLL(None)
fd, others = opened("a.log", os.O_APPEND), [opened(name, os.O_APPEND) for name in ("b.log", "a.log")]
is_done = False
def write():
    n = 0
    while not is_done:
        n += 1
        os.write(fd, b"%07d " % n)
writers = [threading.Thread(target=write) for _ in range(2)]
for writer in writers:
    writer.start()
for n in range(30_000):
    libc.dup2(others[n % 2], fd)
is_done = True
for writer in writers:
    writer.join()
for each in others:
    os.fdatasync(each)
cut()
"#,
    );
}
