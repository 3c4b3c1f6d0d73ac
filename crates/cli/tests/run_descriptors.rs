//! What of a program under `forebay run` is its own, and what is not: its locks, its FIFOs, its numbers; the memory that it unmaps.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox};

/// Python for all of them: a hang ends the program.
const BEGIN: &str = r#"
import ctypes, fcntl, mmap, os, resource, signal, subprocess, sys, threading, time
signal.alarm(300)
def opened(name, flags=0):
    return os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o600)
def logged(fd, times=1):
    for _ in range(times):
        assert os.write(fd, b"x" * 1000) == 1000
        os.fdatasync(fd)
def is_locked(name):
    """Whether another process, without Forebay, is refused a lock."""
    code = f"import fcntl; fcntl.lockf(open('{name}', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run([sys.executable, "-c", code], env=plain, stderr=subprocess.DEVNULL).returncode != 0
"#;

/// Runs a Python program with `*.log` absorbed; its output and what `--explain` says are in the result.
fn python(script: &str) -> Ran {
    let sandbox = Sandbox::new();
    // Small segments, so that the connection is used often.
    sandbox
        .run("pool create p --emulated --size 4MiB --segment-size 64KiB")
        .ok();
    let mut command = sandbox.command("run --explain --absorb *.log --pool p -- python3 -c");
    command
        .arg(format!("{BEGIN}{script}"))
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(command.output().unwrap())
}

/// The row of `--explain` for a file has so many writes.
#[track_caller]
fn absorbed(ran: &Ran, name: &str, writes: &str) {
    let row = ran.stderr.lines().find(|line| line.contains(name));
    let row = row.unwrap_or_else(|| panic!("no {name} in: {}", ran.stderr));
    let found = row.split_whitespace().nth(1);
    assert_eq!(found, Some(writes), "{}", ran.stderr);
}

#[test]
fn a_file_that_stays_plain_keeps_its_locks_when_it_is_opened_with_o_dsync() {
    let ran = python(
        r#"
fd = opened("a.log")
logged(fd)
mmap.mmap(fd, 1000)
fcntl.lockf(fd, fcntl.LOCK_EX)
again = opened("a.log", os.O_DSYNC)
print(is_locked("a.log"), bool(fcntl.fcntl(again, fcntl.F_GETFL) & os.O_DSYNC))
"#,
    )
    .ok();
    assert_eq!(ran.text(), "True True\n", "{}", ran.stderr);
}

#[test]
fn a_file_that_another_process_keeps_plain_keeps_its_locks_too() {
    let ran = python(
        r#"
logged(opened("first.log"))
ready, go_on = os.pipe(), os.pipe()
if os.fork() == 0:
    opened("a.log")
    os.write(ready[1], b"x")
    os.read(go_on[0], 1)
    os._exit(0)
os.read(ready[0], 1)
fd = opened("a.log")
fcntl.lockf(fd, fcntl.LOCK_EX)
again = opened("a.log", os.O_DSYNC)
print(is_locked("a.log"), bool(fcntl.fcntl(again, fcntl.F_GETFL) & os.O_DSYNC))
os.write(again, b"y" * 100)
os.write(go_on[1], b"x")
os.wait()
"#,
    )
    .ok();
    assert_eq!(ran.text(), "True True\n", "{}", ran.stderr);
}

#[test]
fn a_file_that_is_truncated_by_opening_it_for_reading_stays_absorbed_and_keeps_its_locks() {
    let ran = python(
        r#"
fd = opened("a.log")
logged(fd, 3)
fcntl.lockf(fd, fcntl.LOCK_EX)
again = os.open("a.log", os.O_RDONLY | os.O_TRUNC)
os.lseek(fd, 0, os.SEEK_SET)
logged(fd, 4)
print(len(os.read(again, 5000)), is_locked("a.log"))
"#,
    )
    .ok();
    assert_eq!(ran.text(), "4000 True\n", "{}", ran.stderr);
    absorbed(&ran, "a.log", "7");
}

#[test]
fn what_openat2_opens_is_absorbed_whether_the_c_library_has_it_or_not() {
    let ran = python(
        r#"
libc = ctypes.CDLL(None, use_errno=True)
def how(flags, *more):
    return (ctypes.c_uint64 * (3 + len(more)))(flags, 0o600 if flags & os.O_CREAT else 0, 0, *more)
def result(opened):
    return ctypes.get_errno() if opened < 0 else opened
new = how(os.O_RDWR | os.O_CREAT | os.O_DSYNC)
fd = libc.openat2(-100, b"a.log", new, ctypes.c_size_t(24))
assert list(new)[0] == os.O_RDWR | os.O_CREAT | os.O_DSYNC
assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DSYNC
logged(fd, 3)
again = libc.syscall(437, -100, b"a.log", how(os.O_RDWR | os.O_TRUNC, 0), ctypes.c_size_t(32))
assert os.fstat(again).st_size == 0
logged(again, 2)
# As the kernel refuses it.
ENOENT, EFAULT, E2BIG, EINVAL = 2, 14, 7, 22
print([result(libc.openat2(-100, b"none.log", how(os.O_RDWR), ctypes.c_size_t(24))),
       result(libc.openat2(-100, b"a.log", None, ctypes.c_size_t(24))),
       result(libc.openat2(-100, b"a.log", how(os.O_RDWR, 1), ctypes.c_size_t(32))),
       result(libc.openat2(-100, b"a.log", how(os.O_RDWR), ctypes.c_size_t(8)))])
"#,
    )
    .ok();
    assert_eq!(ran.text(), "[2, 14, 7, 22]\n", "{}", ran.stderr);
    absorbed(&ran, "a.log", "5");
}

#[test]
fn locks_on_a_file_outlive_its_sync_by_a_program_whose_supervisor_is_gone() {
    let ran = python(
        r#"
fd = opened("a.log")
logged(fd)
os.close(fd)
reader = os.open("a.log", os.O_RDONLY)
fcntl.lockf(reader, fcntl.LOCK_SH)
other = opened("b.log")
supervisor = os.getppid()
os.kill(supervisor, signal.SIGKILL)
while os.getppid() == supervisor:
    time.sleep(0.01)
# So much that the segment with the first write is drained, by the program's own descriptor.
logged(other, 300)
again = [link for link in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{link}") and os.path.samefile(f"/proc/self/fd/{link}", "a.log")]
print(is_locked("a.log"), len(again), flush=True)
"#,
    );
    assert_eq!(ran.text(), "True 1\n", "{}", ran.stderr);
}

#[test]
fn an_open_that_waits_for_the_other_end_of_a_fifo_holds_up_no_other() {
    let ran = python(
        r#"
os.mkfifo("fifo.log")
logged(opened("a.log"))
writer = threading.Thread(target=lambda: os.write(os.open("fifo.log", os.O_WRONLY), b"through"))
writer.start()
time.sleep(0.3)
logged(opened("b.log"))
os.rename("a.log", "c.log")
print(os.read(os.open("fifo.log", os.O_RDONLY), 100))
writer.join()
"#,
    )
    .ok();
    assert_eq!(ran.text(), "b'through'\n", "{}", ran.stderr);
    absorbed(&ran, "b.log", "1");
}

#[test]
fn the_clients_descriptors_make_way_for_the_programs() {
    let ran = python(
        r#"
fd = opened("a.log")
logged(fd)
libc = ctypes.CDLL(None, use_errno=True)
to = os.open("plain", os.O_RDWR | os.O_CREAT, 0o600)
for number in range(398, 410):
    assert os.dup2(to, number) == number
    assert libc.dup3(to, number, 0) == number
    os.write(number, b"0123456789")
assert os.stat("plain").st_size == 120
for number in range(398, 410):
    os.close(number)
assert [fcntl.fcntl(to, fcntl.F_DUPFD, 400) for _ in range(12)] == list(range(400, 412))
# Through the turns of a lane, and a new file.
logged(fd, 300)
logged(opened("b.log"), 7)
assert os.stat("plain").st_size == 120
libc.close_range(400, 0xffffffff, 0)
libc.close_range(to, 0xffffffff, 4)
logged(opened("c.log"), 3)
"#,
    )
    .ok();
    absorbed(&ran, "a.log", "301");
    absorbed(&ran, "b.log", "7");
    absorbed(&ran, "c.log", "3");
}

#[test]
fn a_low_limit_of_descriptors_and_a_spawned_childs_numbers_change_nothing() {
    let ran = python(
        r#"
fd = opened("a.log")
logged(fd)
actions = [(os.POSIX_SPAWN_DUP2, 1, number) for number in range(399, 404)]
code = 'import os; os.write(401, b"spawned")'
child = os.posix_spawn(sys.executable, ["python3", "-c", code], os.environ, file_actions=actions)
assert os.waitpid(child, 0)[1] == 0
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
try:
    os.dup2(fd, 401)
except OSError as error:
    print(error.errno)
logged(fd, 300)
logged(opened("b.log"), 7)
resource.setrlimit(resource.RLIMIT_NOFILE, (402, hard))
for number in 400, 401:
    os.dup2(0, number)
logged(fd, 300)
"#,
    )
    .ok();
    assert_eq!(ran.text(), "spawned9\n", "{}", ran.stderr);
    absorbed(&ran, "a.log", "601");
    absorbed(&ran, "b.log", "7");
}

#[test]
fn descriptors_move_while_other_threads_use_them() {
    let ran = python(
        r#"
plain = os.open("plain", os.O_RDWR | os.O_CREAT, 0o600)
def log(name):
    for n in range(20):
        fd = opened(f"{name}{n}.log")
        logged(fd, 30)
        os.close(fd)
threads = [threading.Thread(target=log, args=(name,)) for name in "abc"]
for thread in threads:
    thread.start()
while any(thread.is_alive() for thread in threads):
    for number in range(400, 420):
        os.dup2(plain, number)
    for number in range(400, 420):
        os.close(number)
assert os.stat("plain").st_size == 0
"#,
    )
    .ok();
    // Sixty files: not all have a row.
    absorbed(&ran, "a0.log", "30");
}

#[test]
fn a_thread_that_joins_the_run_brings_nothing_where_another_puts_a_descriptor() {
    let ran = python(
        r#"
plain = os.open("plain", os.O_RDWR | os.O_CREAT, 0o600)
def log():
    fd = opened("a.log")
    logged(fd)
    os.close(fd)
def child():
    thread = threading.Thread(target=log)
    thread.start()
    while thread.is_alive():
        for number in range(400, 420):
            os.dup2(plain, number)
        for number in range(400, 420):
            os.close(number)
# Each child joins anew.
for n in range(100):
    id = os.fork()
    if id == 0:
        try:
            child()
            os._exit(0)
        except OSError as error:
            print(n, error, flush=True)
        os._exit(1)
    assert os.waitpid(id, 0)[1] == 0
assert os.stat("plain").st_size == 0
"#,
    )
    .ok();
    absorbed(&ran, "a.log", "100");
}

#[test]
fn libaio_syncs_what_is_written_by_a_descriptor_whose_o_dsync_the_kernel_does_not_know() {
    let ran = python(
        r#"
import platform, struct
setup, submit = {"x86_64": (206, 209), "aarch64": (0, 2)}[platform.machine()]
fd = opened("a.log", os.O_DSYNC)
logged(fd)
# From now on it is plain, and the kernel has never seen the flag.
mmap.mmap(fd, 1000)
libc = ctypes.CDLL(None, use_errno=True)
context = ctypes.c_ulong(0)
assert libc.syscall(setup, 1, ctypes.byref(context)) == 0
text = ctypes.create_string_buffer(b"by libaio")
PWRITE = 1
block = ctypes.create_string_buffer(struct.pack("=QIIHhIQQqQII", 0, 0, 0, PWRITE, 0, fd, ctypes.addressof(text), 9, 0, 0, 0, 0), 64)
blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
assert libc.syscall(submit, context, 1, blocks) == 1
print(os.pread(fd, 9, 0), struct.unpack("=I", block.raw[12:16])[0])
"#,
    )
    .ok();
    const RWF_DSYNC: u32 = 2;
    assert_eq!(
        ran.text(),
        format!("b'by libaio' {RWF_DSYNC}\n"),
        "{}",
        ran.stderr
    );
}

/// Writes by POSIX AIO, through a descriptor that was absorbed with `O_DSYNC`, and says when the write is known to be complete.
const POSIX_AIO: &str = r#"
import struct
fd = opened("a.log", os.O_DSYNC)
logged(fd)
mmap.mmap(fd, 1000)
libc = ctypes.CDLL(None, use_errno=True)
text = ctypes.create_string_buffer(b"by AIO")
SIGEV_NONE = 1
block = ctypes.create_string_buffer(struct.pack("=iiiiQQ12xi80xq", fd, 0, 0, 0, ctypes.addressof(text), 6, SIGEV_NONE, 0), 256)
assert libc.aio_write(block) == 0
while libc.aio_error(block) == 115:
    time.sleep(0.01)
os.write(1, b"complete")
assert libc.aio_return(block) == 6
"#;

#[test]
fn a_write_by_posix_aio_is_complete_when_it_is_synced_if_the_descriptor_says_so() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let mut command = std::process::Command::new("strace");
    command
        .args([
            "-f",
            "-qq",
            "-s",
            "20",
            "-e",
            "trace=pwrite64,fsync,fdatasync,write",
            "-o",
            "trace",
        ])
        .args([
            common::FOREBAY,
            "run",
            "--absorb",
            "*.log",
            "--pool",
            "p",
            "--",
            "python3",
            "-c",
        ])
        .arg(format!("{BEGIN}{POSIX_AIO}"))
        .current_dir(sandbox.path())
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let Ok(output) = command.output() else {
        assert!(std::env::var_os("CI").is_none(), "strace is not installed");
        println!("skipped: strace is not installed");
        return;
    };
    Ran::of(output).ok();
    let trace = std::fs::read_to_string(sandbox.file("trace")).unwrap();
    let at = |what: &str| {
        trace
            .find(what)
            .unwrap_or_else(|| panic!("no {what} in {trace}"))
    };
    let (written, complete) = (at("\"by AIO\""), at("\"complete\""));
    assert!(trace[written..complete].contains("sync("), "{trace}");
}

#[test]
fn a_program_that_unmaps_whatever_it_finds_goes_on_and_its_writes_are_absorbed() {
    let ran = python(
        r#"
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
MAP_FAILED, SYS_munmap = ctypes.c_void_p(-1).value, 11 if os.uname().machine == "x86_64" else 215
def found():
    """What is mapped and is neither a library's nor memory of the program alone."""
    for line in open("/proc/self/maps"):
        range, access, _, _, inode, *name = line.split()
        if inode != "0" and access[3] == "s":
            first, end = (int(address, 16) for address in range.split("-"))
            yield ctypes.c_void_p(first), ctypes.c_size_t(end - first)
def attack():
    own, bytes = libc.mmap(None, ctypes.c_size_t(1 << 20), 3, 0x21, -1, ctypes.c_long(0)), ctypes.c_size_t(1 << 20)
    assert libc.munmap(ctypes.c_void_p(own), bytes) == 0
    assert hex(own)[2:] not in open("/proc/self/maps").read()
    for first, bytes in list(found()):
        libc.munmap(first, bytes)
    # The pool, the lane's state, the run's page, the table.
    left = list(found())
    assert len(left) == 4, open("/proc/self/maps").read()
    for first, bytes in left:
        assert libc.mprotect(first, bytes, 0) == 0
        assert libc.mmap(first, bytes, 0, 0x32, -1, ctypes.c_long(0)) == MAP_FAILED
        assert ctypes.get_errno() == 14
        assert libc.mremap(first, bytes, ctypes.c_size_t(4096), 0, None) == MAP_FAILED
        assert libc.syscall(SYS_munmap, first, bytes) == 0
    assert [first.value for first, _ in found()] == [first.value for first, _ in left]
fd = opened("a.log")
logged(fd)
attack()
logged(fd, 300)
if (child := os.fork()) == 0:
    logged(fd, 300)
    attack()
    logged(fd, 300)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
logged(opened("b.log"), 7)
"#,
    )
    .ok();
    absorbed(&ran, "a.log", "901");
    absorbed(&ran, "b.log", "7");
    let told = ran.stderr.matches("Forebay's: that part stays").count();
    assert_eq!(told, 1, "{}", ran.stderr);
}
