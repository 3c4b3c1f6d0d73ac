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
import ctypes, fcntl, os, signal, struct, sys, threading, time
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
def filtered(call, action, flags=0):
    """From now on seccomp does this instead of that system call of this process; what installing the filter returned."""
    machine = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
    number = {"lseek": (8, 62), "dup2": (33, 24), "ftruncate": (77, 46), "kcmp": (312, 272), "seccomp": (317, 277)}
    code = struct.pack("=" + "HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, number[call][machine], 6, 0, 0, action, 6, 0, 0, 0x7FFF0000)
    memory = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("=Hxxxxxx", 4) + struct.pack("P", ctypes.addressof(memory)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    installed = libc.syscall(number["seccomp"][machine], 1, flags, program)
    assert installed >= 0
    return installed
def delayed(call, meanwhile=lambda: None):
    """From now on that system call of this thread takes 0.3 s, in which a child does something."""
    def during():
        threading.Thread(target=meanwhile).start()
        time.sleep(0.3)
    before(call, lambda: during)
def before(call, prepared):
    """From now on a child does something before each of these system calls of this thread: what `prepared` returns, which is called there first."""
    listener, caller = filtered(call, 0x7FC00000, 8), os.getpid()
    if os.fork() == 0:
        libc.prctl(1, signal.SIGKILL)
        work = prepared()
        while True:
            asked = bytearray(80)
            fcntl.ioctl(listener, 0xC0502100, asked)
            number, who = struct.unpack_from("=QI", asked)
            if who == caller:
                work()
            fcntl.ioctl(listener, 0xC0182101, struct.pack("=QqiI", number, 0, 0, 1))
libc = ctypes.CDLL(None)
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
fn writes_of_a_spawned_program_by_the_same_open_file_are_recovered_too() {
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
fn a_child_that_reads_while_its_parent_writes_puts_no_record_in_the_wrong_place() {
    // Between the write and the question where it went.
    let recovered = nothing_is_lost(
        Disk::Synced,
        r#"
fd = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
logged(fd, b"a", 3)
os.lseek(fd, 100, os.SEEK_SET)
delayed("lseek", lambda: os.read(fd, 50))
logged(fd, b"c")
cut()
"#,
    );
    assert_eq!(
        recovered,
        [b'a', b'c', b'a'].map(|byte| [byte; 100]).concat()
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
    filtered("lseek", KILLED)
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
fn a_descriptor_that_begins_to_append_changes_no_other_where_kcmp_is_denied() {
    nothing_is_lost(
        Disk::All,
        r#"
filtered("kcmp", REFUSED)
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
fn writes_to_an_open_file_that_another_process_has_append_are_recovered() {
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
fn what_a_thread_writes_while_another_exchanges_its_descriptor_is_logged() {
    for (from, to) in [
        ("a.log", "b.log"),
        ("b.log", "a.log"),
        ("a.log", "plain"),
        ("plain", "a.log"),
    ] {
        nothing_is_lost(
            Disk::Synced,
            &format!(
                r#"
source, target = opened("{from}", os.O_APPEND), opened("{to}", os.O_APPEND)
logged(source, b"a")
logged(target, b"b")
delayed("dup2")
def write():
    time.sleep(0.1)
    logged(target, b"c")
writer = threading.Thread(target=write)
writer.start()
libc.dup2(source, target)
writer.join()
cut()
"#
            ),
        );
    }
}

#[test]
fn a_sync_fails_that_waited_for_what_a_killed_process_wrote_and_that_cannot_be_synced() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let script = r#"
fd = opened("a.log")
logged(fd, b"a", 3)
open(os.environ["FOREBAY_TEST_SYNC_FAULT"], "w").write("5 18446744073709551615")
if os.fork() == 0:
    again = opened("a.log")
    filtered("lseek", KILLED)
    os.write(again, b"b" * 200)
reader = os.open("a.log", os.O_RDONLY)
while os.pread(reader, 1, 0) != b"b":
    pass
try:
    os.fdatasync(fd)
    print("acknowledged")
except OSError as error:
    print("refused", error.errno)
"#;
    let mut command = sandbox.command("run --absorb *.log --pool");
    command
        .arg(pool.path())
        .args(["--", "python3", "-c", &format!("{BEGIN}{script}")])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_TEST_SYNC_FAULT", sandbox.file("fault"));
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.stdout, b"refused 5\n", "{}", ran.stderr);
}

#[test]
fn a_truncation_is_not_lost_whose_record_was_released_before_the_kernel_truncated() {
    nothing_is_lost(
        Disk::Synced,
        r#"
import mmap
def released():
    """Each call makes one more file plain, so that all that is logged is synced and released."""
    others = [os.open(f"{n}.log", os.O_RDWR | os.O_CREAT, 0o600) for n in range(50)]
    for other in others:
        os.write(other, b"o" * 4096)
    os.write(ready[1], b"r")
    left = iter(others)
    return lambda: mmap.mmap(next(left), 4096)
fd, ready = opened("a.log"), os.pipe()
before("ftruncate", released)
os.read(ready[0], 1)
for _ in range(40):
    logged(fd, b"a", 50)
    begun = time.monotonic()
    os.ftruncate(fd, 0)
    took = time.monotonic() - begun
    os.fsync(fd)
    # One that takes longer is logged again for that.
    if took < 0.008:
        cut()
sys.exit("all truncations took too long to test")
"#,
    );
}

#[test]
fn what_a_thread_saw_of_another_threads_write_and_synced_is_recovered() {
    nothing_is_lost(
        Disk::Synced,
        r#"
fd = opened("a.log", os.O_APPEND)
logged(fd, b"a")
def sees():
    while os.fstat(fd).st_size == 100:
        pass
    os.fsync(fd)
    cut()
threading.Thread(target=sees).start()
# The write is in the file, and is not logged until it is known where it went.
delayed("lseek")
os.write(fd, b"b" * 5000)
time.sleep(60)
"#,
    );
}
