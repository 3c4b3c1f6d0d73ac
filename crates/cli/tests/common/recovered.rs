//! Programs that write to `a.log` under `forebay run` until the power is cut, and what a recovery
//! makes of it.

use super::{
    Ran, Sandbox,
    cut::put_back,
    databases::{boot_anew, small_pool},
};
use std::{fs, process::Command};

/// Python for all of them: a hang ends the program, and `cut` the run, as a power cut does.
pub const BEGIN: &str = r#"
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
    number = {"lseek": (8, 62), "fsync": (74, 82), "dup2": (33, 24), "ftruncate": (77, 46), "kcmp": (312, 272), "seccomp": (317, 277), "fstat": (5, 80), "newfstatat": (262, 79), "getpid": (39, 172), "statx": (332, 291), "socket": (41, 198), "connect": (42, 203)}
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
def synced_by_the_kernel(fd):
    """From now on every real fsync is refused, and one of this descriptor is."""
    filtered("fsync", REFUSED)
    try:
        os.fsync(fd)
    except PermissionError:
        return True
libc = ctypes.CDLL(None)
KILLED, REFUSED = 0x80000000, 0x00050001
def cut():
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
"#;

/// What the disk has of the files when the machine starts again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// What was synced for the run.
    Synced,
    /// All that the kernel had.
    All,
}

/// `forebay run`, up to the pool.
pub const RUN: &str = "run --absorb *.log --pool";

/// Runs a program in Python until it calls `cut`: `a.log` as the kernel had it, and as a recovery
/// in another boot makes it.
pub fn cut_and_recovered(disk: Disk, script: &str) -> (Vec<u8>, Vec<u8>) {
    let sandbox = Sandbox::new();
    let program = ["python3", "-c", &format!("{BEGIN}{script}")];
    run_and_recovered(disk, &sandbox, sandbox.command(RUN), &program)
}

/// The same of any program, which ends with its supervisor.
pub fn run_and_recovered(
    disk: Disk,
    sandbox: &Sandbox,
    mut command: Command,
    program: &[&str],
) -> (Vec<u8>, Vec<u8>) {
    let (pool, synced) = (small_pool(), sandbox.file("synced"));
    let mut environment = Vec::new();
    boot_anew(&mut environment, 1);
    command
        .arg(pool.path())
        .arg("--")
        .args(program)
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

/// A command whose process may hold up no other that opens a file: an ordinary user's, but for
/// that.
pub fn without_rights(command: &Command) -> Command {
    let mut ordinary = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        ordinary.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
    }
    ordinary
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(command.get_current_dir().unwrap());
    ordinary
}

/// What the kernel had is there.
#[track_caller]
pub fn nothing_is_lost(disk: Disk, script: &str) -> Vec<u8> {
    same(cut_and_recovered(disk, script))
}

/// The file as it was and as it is after a recovery are the same.
#[track_caller]
pub fn same((kernel, recovered): (Vec<u8>, Vec<u8>)) -> Vec<u8> {
    let differs = kernel.iter().zip(&recovered).position(|(a, b)| a != b);
    assert!(
        kernel == recovered,
        "{} bytes, {} recovered, different at {differs:?}",
        kernel.len(),
        recovered.len()
    );
    recovered
}
