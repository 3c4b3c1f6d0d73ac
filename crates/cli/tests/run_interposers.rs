//! Libraries that are put before the C library's functions as Forebay's is, before it and behind
//! it: allocators, a faked clock or user, and one that makes every call by its number. What the
//! program does is what it does without Forebay, and its logs are absorbed.
//!
//! Promise (programs): A program is absorbed as ever below valgrind and another interposing library
//! (an allocator, a faked clock or user), before or behind ours, preloaded or linked.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, build, build_library, have, is_there, recovered};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Libraries by their file names.
const LIBRARIES: [&str; 5] = [
    "libtcmalloc_minimal.so.4",
    "libjemalloc.so.2",
    "libmimalloc.so.2",
    "faketime/libfaketime.so.1",
    "libeatmydata.so",
];

/// Calls that are followed, of logs and of other files.
const CALLS: &str = r#"
import mmap
fd = os.open("a.log", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
logged(fd, b"a", 5)
os.lseek(fd, 0, 0)
assert os.read(fd, 5) == b"aaaaa"
os.pwritev(fd, [b"two", b"parts"], 40)
again = os.dup(fd)
os.pwrite(again, b"again", 3)
os.close(again)
os.dup2(fd, 77)
assert fcntl.fcntl(fd, fcntl.F_DUPFD, 90) >= 90
fcntl.fcntl(77, fcntl.F_SETFL, fcntl.fcntl(77, fcntl.F_GETFL))
os.write(77, b"by 77")
os.truncate("a.log", 450)
os.ftruncate(fd, 440)
os.posix_fallocate(fd, 440, 10)
os.utime(fd, None)
os.utime("a.log", None)
assert os.stat("a.log").st_size == 450
named = opened("named.log", os.O_EXCL)
logged(named, b"n")
os.rename("named.log", "renamed.log")
os.link("renamed.log", "linked.log")
os.unlink("linked.log")
logged(named, b"n")
os.close(opened("gone.log", os.O_EXCL))
os.unlink("gone.log")
memory = mmap.mmap(-1, 1 << 20)
memory.resize(1 << 21)
memory.close()
plain = os.open("plain", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
os.write(plain, b"plain")
copied = libc.copy_file_range(plain, ctypes.byref(ctypes.c_long(0)), plain, ctypes.byref(ctypes.c_long(5)), 5, 0)
assert copied == 5
with mmap.mmap(plain, 5) as memory:
    memory[:5] = b"PLAIN"
os.rename("plain", "plain2")
os.unlink("plain2")
appended = os.open("a.log", os.O_WRONLY | os.O_APPEND)
os.set_inheritable(appended, True)
logged(appended, b"b", 3)
if os.fork() == 0:
    logged(appended, b"c")
    os._exit(0)
assert os.wait()[1] == 0
assert os.spawnlp(os.P_WAIT, "true", "true") == 0
logged(fd, b"d")
assert os.stat("a.log").st_size == 850
for log in (fd, named):
    assert synced_by_the_kernel(log) is None, "a log is not absorbed"
"#;

#[derive(Clone, Copy, Debug)]
enum Order {
    Before,
    Behind,
}

/// Runs the calls below a library: nothing of the log is lost.
fn runs_with(library: &Path, order: Order) {
    let sandbox = Sandbox::new();
    let library = library.display();
    let libraries = match order {
        Order::Before => format!("{library}:$LD_PRELOAD"),
        Order::Behind => format!("$LD_PRELOAD:{library}"),
    };
    let script = format!("{}{CALLS}cut()", recovered::BEGIN);
    let words = [
        "sh",
        "-c",
        &format!("LD_PRELOAD={libraries} exec python3 -c \"$0\""),
        &script,
    ];
    let mut command = sandbox.command(recovered::RUN);
    // Or it leaves memory that processes share, since they are killed.
    command.env("FAKETIME_DISABLE_SHM", "1");
    let left = recovered::run_and_recovered(recovered::Disk::Synced, &sandbox, command, &words);
    println!("{library} {order:?}");
    recovered::same(left);
}

fn both_orders(library: &Path) {
    for order in [Order::Before, Order::Behind] {
        runs_with(library, order);
    }
}

/// Where a library is installed.
fn installed(name: &str) -> Option<PathBuf> {
    let dir = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let found = Some(Path::new(&dir).join(name)).filter(|path| path.exists());
    is_there(found.is_some(), name);
    found
}

#[test]
fn calls_by_number_of_a_library_end_at_the_kernel() {
    let sandbox = Sandbox::new();
    build_library("interposer", sandbox.path());
    both_orders(&sandbox.file("interposer.so"));
}

#[test]
fn allocators_and_fakes_before_and_behind_change_nothing() {
    for library in LIBRARIES.into_iter().filter_map(installed) {
        both_orders(&library);
    }
}

#[test]
fn a_program_that_is_linked_to_an_interposer_runs() {
    let built = Sandbox::new();
    build_library("interposer", built.path());
    build("linked", built.path());
    let mut libraries = vec![built.file("interposer.so")];
    libraries.extend(installed(LIBRARIES[0]));
    for library in libraries {
        let linked = built.file("with_library");
        let mut compiler = Command::new("cc");
        let source = format!("{}/tests/programs/linked.c", env!("CARGO_MANIFEST_DIR"));
        let compiled = compiler
            .args(["-Wl,--no-as-needed", "-o"])
            .args([&linked, Path::new(&source), &library])
            .status();
        assert!(compiled.unwrap().success());
        let sandbox = Sandbox::new();
        let words = [linked.to_str().unwrap()];
        let command = sandbox.command(recovered::RUN);
        let left = recovered::run_and_recovered(recovered::Disk::Synced, &sandbox, command, &words);
        assert_eq!(recovered::same(left).len(), 4096 * 3, "{library:?}");
    }
}

#[test]
fn a_run_below_fakeroot_and_fakeroot_below_a_run_absorb_logs() {
    if !have("fakeroot") {
        return;
    }
    for words in [
        "fakeroot PROGRAM run --emulated 16MiB --absorb *.log -- python3 -c",
        "PROGRAM run --emulated 16MiB --absorb *.log -- fakeroot python3 -c",
    ] {
        let sandbox = Sandbox::new();
        let words = words.replace("PROGRAM", common::FOREBAY);
        let words: Vec<&str> = words.split(' ').collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .arg(format!("{}{CALLS}os._exit(0)", recovered::BEGIN))
            .env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .current_dir(sandbox.path());
        Ran::of(command.output().unwrap()).ok();
    }
}

#[test]
fn a_log_is_written_below_valgrind() {
    if !have("valgrind") {
        return;
    }
    let sandbox = Sandbox::new();
    build("linked", sandbox.path());
    let words = ["valgrind", "--error-exitcode=9", "-q", "./linked"];
    let command = sandbox.command(recovered::RUN);
    let left = recovered::run_and_recovered(recovered::Disk::Synced, &sandbox, command, &words);
    assert_eq!(recovered::same(left).len(), 4096 * 3);
}
