//! Programs that inherit a descriptor of a log and write past the library: they are executed
//! without it, or it cannot be loaded into them. What they have written and synced is not written
//! over by a recovery, however they were executed.
//!
//! Promise (processes): A recovery undoes nothing that a program without the library writes and
//! syncs by an inherited descriptor, however it was executed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    recovered::{BEGIN, Disk, RUN, nothing_is_lost, run_and_recovered, same, without_rights},
};
use std::process::Command;

/// A log that the child inherits, and what the child does to it.
const CHILD: &str = r#"
import subprocess
fd = opened("a.log")
logged(fd, b"a", 5)
code = f"import os; assert os.pwrite({fd}, b'n' * 50, 0) == 50; os.fsync({fd})"
python = [sys.executable, "-S", "-c", code]
def waited(child):
    assert os.waitpid(child, 0)[1] == 0
def forked(execute):
    child = os.fork()
    if child == 0:
        execute()
        os._exit(1)
    waited(child)
"#;

/// After the child the log goes on, so that records of it are there whatever the child did.
#[track_caller]
fn is_not_undone(how: &str) {
    let recovered = nothing_is_lost(
        Disk::All,
        &format!("{CHILD}\n{how}\nlogged(fd, b'z', 5)\ncut()\n"),
    );
    assert!(
        recovered.starts_with(&[b'n'; 50]),
        "{how}: the child wrote nothing"
    );
}

#[test]
fn writes_of_a_program_without_our_environment_are_not_undone() {
    for how in [
        "forked(lambda: os.execve(sys.executable, python, {}))",
        "subprocess.run(python, env={}, pass_fds=[fd], check=True)",
        "waited(os.posix_spawn(sys.executable, python, {}))",
        "waited(os.posix_spawnp('python3', ['python3'] + python[1:], {'PATH': os.environ['PATH']}))",
        "forked(lambda: os.execve(os.open(sys.executable, os.O_RDONLY), python, {}))",
        // Only the library, or only what it is told.
        "waited(os.posix_spawn(sys.executable, python, {'LD_PRELOAD': os.environ['LD_PRELOAD']}))",
        "spawned(code, LD_PRELOAD=0)",
        "spawned(code, FOREBAY_SOCKET=0)",
        // The library is not where it is said to be.
        "waited(os.posix_spawn(sys.executable, python, dict(os.environ, LD_PRELOAD='/nowhere/libforebay.so')))",
    ] {
        is_not_undone(how);
    }
}

#[test]
fn writes_of_a_program_executed_by_descriptor_are_not_undone() {
    for (function, program) in [
        ("pidfd_spawn", "sys.executable.encode()"),
        ("pidfd_spawnp", "b'python3'"),
    ] {
        let sandbox = Sandbox::new();
        common::build_library("pidfd_spawn", sandbox.path());
        let script = format!(
            r#"{BEGIN}{CHILD}
child = ctypes.c_int()
words = (ctypes.c_char_p * 5)(*[word.encode() for word in python], None)
assert libc.{function}(ctypes.byref(child), {program}, None, None, words, (ctypes.c_char_p * 1)(None)) == 0
waited(child.value)
logged(fd, b"z", 5)
cut()
"#
        );
        let mut run = sandbox.command(RUN);
        run.env("LD_PRELOAD", sandbox.file("pidfd_spawn.so"));
        let program = ["python3", "-c", &script];
        let recovered = same(run_and_recovered(Disk::All, &sandbox, run, &program));
        assert!(recovered.starts_with(&[b'n'; 50]), "{function}");
    }
}

#[test]
fn writes_of_a_program_executed_by_execl_are_not_undone() {
    for how in [
        "libc.execle(path, *words, None, (ctypes.c_char_p * 1)(None))",
        "del os.environ['LD_PRELOAD']; libc.execl(path, *words, None)",
        "del os.environ['LD_PRELOAD']; libc.execlp(b'python3', *words, None)",
    ] {
        is_not_undone(&format!(
            "path, words = sys.executable.encode(), [word.encode() for word in python + ['more'] * 9]\nforked(lambda: exec({how:?}))"
        ));
    }
    // With the library each of them is followed, with all of its arguments.
    is_not_undone(
        "path, words = sys.executable.encode(), [word.encode() for word in python + ['more'] * 9]\n\
         forked(lambda: libc.execl(path, *words, None))",
    );
}

#[test]
fn what_a_shell_without_our_environment_writes_is_not_undone() {
    let without = r#"
del os.environ["LD_PRELOAD"]
shell = f"head -c 50 /dev/zero | tr '\\0' n >&{fd}".encode()
libc.popen.restype = ctypes.c_void_p
os.lseek(fd, 0, 0)
"#;
    for how in [
        "assert libc.system(shell) == 0",
        "assert libc.pclose(ctypes.c_void_p(libc.popen(shell, b'r'))) == 0",
    ] {
        let how = format!("{how}\nos.lseek(fd, 0, 2)");
        is_not_undone(&format!("{without}{how}"));
    }
}

#[test]
fn writes_to_a_log_that_became_standard_output_are_not_undone() {
    let renamed =
        "code = code.replace(str(fd), '1'); python[-1] = code; os.set_inheritable(fd, False)\n";
    for how in [
        "waited(os.posix_spawn(sys.executable, python, {}, file_actions=[(os.POSIX_SPAWN_DUP2, fd, 1)]))",
        "subprocess.run(python, env={}, stdout=fd, check=True)",
    ] {
        is_not_undone(&format!("{renamed}{how}"));
    }
}

/// Builds `programs/past.c` so that no library comes before it.
fn build_static(sandbox: &Sandbox) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/past.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "-o", "past", source]);
    let built = compiler.current_dir(sandbox.path()).status().unwrap();
    assert!(built.success());
}

#[test]
fn what_a_static_program_writes_is_not_undone() {
    let sandbox = Sandbox::new();
    build_static(&sandbox);
    let script = format!(
        "{BEGIN}{CHILD}\nwaited(os.posix_spawn('./past', ['past', str(fd)], os.environ))\nlogged(fd, b'z', 5)\ncut()\n"
    );
    let run = || sandbox.command(RUN);
    let disk = Disk::All;
    let recovered = same(run_and_recovered(
        disk,
        &sandbox,
        run(),
        &["python3", "-c", &script],
    ));
    assert!(recovered.starts_with(&[b'n'; 50]));
    // A shell truncates the log, and gives it to the program: by an open that nothing outside has
    // to see.
    let line = "./past 3 3>a.log && kill -9 $PPID $$";
    let run = without_rights(&sandbox.command(RUN));
    let recovered = same(run_and_recovered(disk, &sandbox, run, &["sh", "-c", line]));
    assert_eq!(recovered, [b'n'; 50]);
}

#[test]
fn writes_of_a_program_executed_without_proc_are_not_undone() {
    if !common::root_can("change its root") {
        return;
    }
    let sandbox = Sandbox::new();
    build_static(&sandbox);
    let script = format!(
        "{BEGIN}{CHILD}\n\
         def jailed():\n    os.chroot('.'); os.execve('/past', ['past', str(fd)], {{}})\n\
         forked(jailed)\nlogged(fd, b'z', 5)\ncut()\n"
    );
    let run = sandbox.command(RUN);
    let program = ["python3", "-c", &script];
    let recovered = same(run_and_recovered(Disk::All, &sandbox, run, &program));
    assert!(recovered.starts_with(&[b'n'; 50]));
}

/// Promise: as `writes_of_a_program_whose_mounts_lack_the_library_stay`.
#[test]
fn writes_of_a_program_in_secure_execution_mode_are_not_undone() {
    if !common::root_can("be of a group that it was not of") {
        return;
    }
    // The group alone moves no file's owner, and this process stays a member.
    for how in ["os.setegid(12345)", "libc.setresgid(-1, 12345, -1)"] {
        is_not_undone(&format!(
            "def other():\n    {how}; os.execv(sys.executable, python)\nforked(other)"
        ));
    }
}

/// Promise (processes): A recovery undoes nothing that a program writes and syncs although the
/// dynamic linker could not load the library into it.
#[test]
fn writes_of_a_program_whose_mounts_lack_the_library_stay() {
    if !common::root_can("mount") {
        return;
    }
    is_not_undone(
        "library = os.path.dirname(os.environ['LD_PRELOAD'].split(':')[0]).encode()\n\
         def elsewhere():\n    assert libc.unshare(0x20000) == 0 and libc.mount(b'none', b'/', None, 0x44000, None) == 0\n    \
         assert libc.mount(b'none', library, b'tmpfs', 0, None) == 0; os.execv(sys.executable, python)\n\
         forked(elsewhere)",
    );
}
