//! Programs of several processes, users and runs: who writes to an absorbed file, and who has the
//! pool.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, databases::small_pool};
use std::{fs, os::unix::fs::chown, path::Path, process::Command};

const OTHER_BOOT: &str = "00000000-0000-4000-8000-000000000001";
const NOBODY: u32 = 65534;

/// Runs `python3 -c script` with `*.log` absorbed into `pool`.
fn python(sandbox: &Sandbox, pool: &Path, options: &str, script: &str) -> Ran {
    let mut command = sandbox.command(&format!("run --absorb *.log {options} --pool"));
    command.arg(pool).args(["--", "python3", "-c", script]);
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(command.output().unwrap())
}

/// Recovers by force, in another boot: the newer bytes that another process wrote to `a.log`, in
/// this way, are there still.
#[track_caller]
fn newer_bytes_stay(sandbox: &Sandbox, pool: &Path, way: &str) {
    let mut recover = sandbox.command("recover --json --force --pool");
    recover.arg(pool).env("FOREBAY_TEST_BOOT_ID", OTHER_BOOT);
    Ran::of(recover.output().unwrap()).ok();
    let expected = [[b'b'; 50], [b'a'; 50]].concat();
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), expected, "{way}");
}

/// One process absorbs `a.log`; another writes newer bytes over what was logged, in the way that it
/// is told, and syncs them really. Then all are killed.
const NEWER: &str = r#"
import os, signal, subprocess, sys
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, b"a" * 100)
os.fdatasync(fd)
os.link("a.log", "other-name")
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], pass_fds=[fd], env={**os.environ, "FD": str(fd)})
while child.poll() is None:
    os.fdatasync(fd)
assert child.returncode == 0
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"#;

const WAYS: [(&str, &str); 7] = [
    (
        "open",
        "fd = os.open('other-name', os.O_WRONLY); os.pwrite(fd, b'b' * 50, 0); os.fsync(fd)",
    ),
    (
        "a stream",
        "c.fopen.restype = ctypes.c_void_p; f = c.fopen(b'other-name', b'r+'); assert f\n\
         f = ctypes.c_void_p(f); assert c.fwrite(b'b' * 50, 1, 50, f) == 50; c.fflush(f); os.fsync(c.fileno(f))",
    ),
    (
        "a stream that is opened again",
        "c.fopen.restype = c.freopen.restype = ctypes.c_void_p; f = c.fopen(b'other-name', b'r'); assert f\n\
         f = ctypes.c_void_p(c.freopen(b'other-name', b'r+', ctypes.c_void_p(f)))\n\
         assert c.fwrite(b'b' * 50, 1, 50, f) == 50; c.fflush(f); os.fsync(c.fileno(f))",
    ),
    (
        "openat2",
        "how = (ctypes.c_uint64 * 3)(os.O_WRONLY, 0, 0)\n\
         fd = c.syscall(437, -100, b'other-name', how, 24); assert fd >= 0\n\
         os.pwrite(fd, b'b' * 50, 0); os.fsync(fd)",
    ),
    (
        "a descriptor that was inherited",
        "fd = int(os.environ['FD']); os.pwrite(fd, b'b' * 50, 0); os.fsync(fd)",
    ),
    (
        "a mapping",
        "import mmap; fd = os.open('other-name', os.O_RDWR); m = mmap.mmap(fd, 100)\n\
         m[0:50] = b'b' * 50; m.flush(); os.fsync(fd)",
    ),
    (
        "truncation",
        "os.truncate('other-name', 0); fd = os.open('other-name', os.O_WRONLY)\n\
         os.write(fd, b'b' * 50 + b'a' * 50); os.fsync(fd)",
    ),
];

/// Promise: as `newer_bytes_synced_by_another_name_survive_a_power_cut`.
#[test]
fn another_processs_newer_bytes_are_kept_however_it_opened_them() {
    for (way, script) in WAYS {
        let sandbox = Sandbox::new();
        let pool = small_pool();
        let script = format!("import ctypes, os; c = ctypes.CDLL(None)\n{script}");
        let mut command = sandbox.command("run --absorb *.log --pool");
        command
            .arg(pool.path())
            .args(["--", "python3", "-c", NEWER, &script]);
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, None, "{way}: {}", ran.stderr);
        newer_bytes_stay(&sandbox, pool.path(), way);
    }
}

/// Becomes another user with an absorbed file open, or has a child do so: prints whether it has the
/// pool, or the memory that the run's processes share, each time.
const BECOMES_NOBODY: &str = r#"
import os, sys
pool = os.stat(sys.argv[1])
def has_pool():
    inode = " %d " % pool.st_ino
    if any(inode in line and sys.argv[1] in line or "memfd:forebay" in line for line in open("/proc/self/maps")):
        return True
    for fd in range(1024):
        try:
            if os.path.samestat(os.fstat(fd), pool):
                return True
        except OSError:
            pass
    return False
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, b"a" * 100)
os.fdatasync(fd)
os.setuid(os.getuid())
print(has_pool(), flush=True)
CHANGE
print(has_pool(), flush=True)
os.write(fd, b"b" * 100)
os.fsync(fd)
os.close(fd)
"#;

/// Promise (rights): A forked child of a member has neither the pool nor anything that the run's
/// processes share.
/// Promise (rights): A process that becomes another user drains and lets go of the pool and the
/// run's shared memory before, or stays who it is if it cannot drain.
#[test]
fn a_process_that_becomes_another_user_has_the_pool_no_longer() {
    if !common::root_can("become another user") {
        return;
    }
    for change in [
        "os.setuid(65534)",
        "os.seteuid(65534)",
        "os.setreuid(-1, 65534)",
        "os.setresuid(65534, 65534, 0)",
        "import ctypes; ctypes.CDLL(None).syscall(105, 65534)",
        "os.fork() and (os.wait(), os._exit(0)); os.setuid(65534)",
    ] {
        if change.contains("syscall") && !cfg!(target_arch = "x86_64") {
            continue;
        }
        let sandbox = Sandbox::new();
        let pool = small_pool();
        let script = BECOMES_NOBODY.replace("CHANGE", change);
        let mut command = sandbox.command("run --absorb *.log --explain --pool");
        command
            .arg(pool.path())
            .args(["--", "python3", "-c", &script])
            .arg(pool.path());
        let ran = Ran::of(command.output().unwrap()).ok();
        assert_eq!(ran.text(), "True\nFalse\n", "{change}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("absorbed, then plain"),
            "{change}: {}",
            ran.stderr
        );
        assert_eq!(fs::read(sandbox.file("a.log")).unwrap().len(), 200);
    }
}

/// Promise (rights): A process whose user is not the pool's owner does not get the pool: its files
/// stay plain, and the supervisor names the remedy.
#[test]
fn a_pool_of_another_user_is_not_given_to_a_process() {
    if !common::root_can("give a file away") {
        return;
    }
    let sandbox = Sandbox::new();
    let pool = small_pool();
    chown(pool.path(), Some(NOBODY), None).unwrap();
    let script = "import os; fd = os.open('a.log', os.O_WRONLY | os.O_CREAT); os.write(fd, b'a'); os.fsync(fd)";
    let ran = python(&sandbox, pool.path(), "--explain", script).ok();
    for words in [
        "stays plain",
        "user 0",
        "user 65534",
        "runuser",
        "no file was absorbed\n",
    ] {
        assert!(ran.stderr.contains(words), "{words:?}: {}", ran.stderr);
    }
}

/// Two runs, each with a process that writes to the same file: the second asks the first to let go.
#[test]
fn of_two_runs_with_a_shared_pool_the_second_says_who_is_there() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let forebay = common::FOREBAY;
    let path = pool.path().display();
    let script = format!(
        "import os, subprocess\n\
         fd = os.open('a.log', os.O_WRONLY | os.O_CREAT); os.write(fd, b'a' * 100); os.fsync(fd)\n\
         inner = ['{forebay}', 'run', '--explain', '--absorb', '*.log', '--pool', '{path}', '--', 'sh', '-c', 'echo b >> a.log']\n\
         child = subprocess.Popen(inner)\n\
         while child.poll() is None: os.fsync(fd)\n\
         assert child.returncode == 0"
    );
    let ran = python(&sandbox, pool.path(), "--explain", &script).ok();
    assert!(
        ran.stderr
            .contains("the pool is shared with python3 (forebay"),
        "{}",
        ran.stderr
    );
    // The second run asks for it; or the first saw already that it was opened.
    let reasons = ["of another forebay run", "which is not of this run"];
    assert!(
        reasons.iter().any(|reason| ran.stderr.contains(reason)),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("absorbed, then plain"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_stays_plain_and_which_program_absorbed_is_told() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    // A process that sets up a ring before it opens its log.
    let ring = "import ctypes, os; p = ctypes.create_string_buffer(256); ctypes.CDLL(None).syscall(425, 4, p)\n\
                fd = os.open('a.log', os.O_WRONLY | os.O_CREAT); os.write(fd, b'a'); os.fsync(fd)";
    let ran = python(&sandbox, pool.path(), "--explain", ring).ok();
    assert!(ran.stderr.contains("a.log stays plain"), "{}", ran.stderr);
    assert!(ran.stderr.contains("io_uring"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("none that matches"), "{}", ran.stderr);

    let script = "import os\n\
                  fd = os.open('b\\n.log', os.O_WRONLY | os.O_CREAT); os.write(fd, b'a'); os.fsync(fd)\n\
                  fd = os.open('c.log', os.O_WRONLY | os.O_CREAT)\n\
                  f = open('d.log', 'w'); os.open('d.log', os.O_WRONLY)";
    fs::write(sandbox.file("script.py"), script).unwrap();
    let mut command = sandbox.command("run --absorb *.log --explain --pool");
    command
        .arg(pool.path())
        .args(["--", "sh", "-c", "python3 script.py; true"]);
    let ran = Ran::of(command.output().unwrap()).ok();
    let written_by = ran.told("written by");
    assert!(written_by.contains("python3"), "{}", ran.stderr);
    assert!(ran.stderr.contains("b\\n.log"), "{}", ran.stderr);
    let told = ran.told("/c.log");
    assert!(told.ends_with("not written to"), "{}", ran.stderr);
}

/// Runs `forebay`, whose arguments it is given, and holds up the thread that registers `a.log`,
/// until the file `opened` is there. The kernel has answered that no other process has `a.log` open
/// then, and its first sync is to come: the thread looks into the directory of other runs' tables.
const HELD_UP: &str = r#"
import ctypes, fcntl, os, signal, socket, struct, sys, threading, time
signal.alarm(60)
ours, theirs = socket.socketpair()
if os.fork() == 0:
    libc = ctypes.CDLL(None)
    code = struct.pack("=" + "HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 262, 6, 0, 0, 0x7FC00000, 6, 0, 0, 0x7FFF0000)
    memory = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("=Hxxxxxx", 4) + struct.pack("P", ctypes.addressof(memory)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    listener = libc.syscall(317, 1, 8, program)
    socket.send_fds(theirs, [b"l"], [listener])
    os.close(listener)
    os.execv(sys.argv[1], sys.argv[1:])
theirs.close()
listener = socket.recv_fds(ours, 1, 1)[1][0]
def go_on(number):
    try:
        fcntl.ioctl(listener, 0xC0182101, struct.pack("=QqiI", number, 0, 0, 1))
    except OSError:
        pass
def when_opened(number):
    open("held", "w").close()
    while not os.path.exists("opened"):
        time.sleep(0.001)
    go_on(number)
while True:
    asked = bytearray(80)
    try:
        fcntl.ioctl(listener, 0xC0502100, asked)
        number, who, path = struct.unpack_from("=QI", asked) + struct.unpack_from("=Q", asked, 40)
        with open(f"/proc/{who}/mem", "rb") as memory:
            memory.seek(path)
            is_it = memory.read(9) == b"/dev/shm\0"
    except OSError:
        # The one that asked, or all, are gone.
        if os.waitpid(-1, os.WNOHANG)[0]:
            break
        continue
    if is_it and os.path.exists("registering") and not os.path.exists("held"):
        threading.Thread(target=when_opened, args=(number,)).start()
    else:
        go_on(number)
"#;

/// Registers `a.log` and logs bytes, while another process of the run opens it past the lane, and
/// then writes and syncs newer bytes.
const REGISTERS: &str = r#"
import ctypes, os, signal, time
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.001)
open("a.txt", "w").close()
os.rename("a.txt", "a.log")
supervisor = os.getppid()
if os.fork() == 0:
    wait_for("held")
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fopen(b"a.log", b"r+"))
    open("opened", "w").close()
    wait_for("written")
    assert libc.fwrite(b"b" * 50, 1, 50, stream) == 50 and libc.fflush(stream) == 0
    os.fsync(libc.fileno(stream))
    os.kill(supervisor, signal.SIGKILL)
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
open("registering", "w").close()
fd = os.open("a.log", os.O_WRONLY)
os.write(fd, b"a" * 100)
os.fdatasync(fd)
open("written", "w").close()
time.sleep(60)
"#;

/// Promise: as `a_file_open_elsewhere_at_its_registration_stays_plain`.
#[test]
fn a_file_opened_during_its_registration_is_not_absorbed() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: numbers of system calls are those of x86-64");
        return;
    }
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let mut command = Command::new("python3");
    command
        .current_dir(sandbox.path())
        .args(["-c", HELD_UP, common::FOREBAY])
        .args(["run", "--absorb", "*.log", "--pool"])
        .arg(pool.path())
        .args(["--", "python3", "-c", REGISTERS])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(command.output().unwrap());
    assert!(sandbox.file("written").exists(), "{}", ran.stderr);
    newer_bytes_stay(&sandbox, pool.path(), "while it is being registered");
}

/// Goes on without its supervisor, and prints for each process how long its opens of the file for
/// writing took.
const ALONE: &str = r#"
import os, signal, subprocess, sys, time
signal.alarm(100)
def opens(who):
    took = []
    for _ in range(3):
        begun = time.monotonic()
        os.close(os.open("a.log", os.O_WRONLY))
        took.append("%.1f" % (time.monotonic() - begun))
    print(who, *took, flush=True)
if len(sys.argv) > 1:
    opens("executed")
    os._exit(0)
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, b"a" * 100)
os.fsync(fd)
supervisor = os.getppid()
os.kill(supervisor, signal.SIGKILL)
while os.getppid() == supervisor:
    time.sleep(0.001)
opens("member")
if os.fork() == 0:
    opens("child")
    os._exit(0)
os.wait()
subprocess.run([sys.executable, "-c", os.environ["SCRIPT"], "executed"], check=True)
"#;

/// Promise: as `file_in_its_first_sync_is_joined_where_no_descriptor_is_left`.
#[test]
fn a_process_without_a_supervisor_waits_at_most_once_to_open() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let mut command = sandbox.command("run --absorb *.log --pool");
    command
        .arg(pool.path())
        .args(["--", "python3", "-c", ALONE])
        .env("SCRIPT", ALONE)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(command.output().unwrap());
    let said = ran.text();
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 3, "{said}{}", ran.stderr);
    for line in lines {
        let took = line[1..].iter().map(|took| took.parse::<f64>().unwrap());
        // Who was a member, or is its child, knows that nothing in the lane is needed any more; any
        // other waits for the longest silence.
        let waits = took.filter(|took| *took > 3.0).count();
        assert!(waits <= usize::from(line[0] == "executed"), "{said}");
    }
}
