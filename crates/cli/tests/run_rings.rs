//! Rings (`io_uring`) that are made past the functions that are hooked, and descriptors that come
//! in other ways than by a name: nothing that the pool has is brought over what was written by
//! them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox, build, is_there,
    recovered::{self, Disk, nothing_is_lost},
};
use std::{path::Path, process::Command};

/// Builds `programs/ring.c`; false if there is no liburing to link it to.
fn ring(into: &Path, library: &str) -> bool {
    let source = format!("{}/tests/programs/ring.c", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    let built = compiler
        .args(["-o", "ring", &source, library])
        .current_dir(into);
    let is_built = built.output().unwrap().status.success();
    is_there(is_built, "liburing")
}

/// Each change by a ring, whichever way liburing is in the program.
fn changes(library: &str) {
    for change in ["write", "synced", "append", "replace", "remove", "cut"] {
        let sandbox = Sandbox::new();
        if !ring(sandbox.path(), library) {
            return;
        }
        // A ring is refused while such a descriptor is open.
        if change == "synced" && library == "-luring" {
            continue;
        }
        let command = sandbox.command(recovered::RUN);
        let words = ["./ring", change];
        println!("{change} {library}");
        recovered::same(recovered::run_and_recovered(
            Disk::All,
            &sandbox,
            command,
            &words,
        ));
    }
}

/// Promise (files): Older records do not overwrite changes by a ring that no library function
/// makes, nor writes by a descriptor that came from a handle or another process.
#[test]
fn what_a_ring_of_the_program_itself_writes_is_not_overwritten() {
    changes("-l:liburing.a");
}

/// Promise: as `what_a_ring_of_the_program_itself_writes_is_not_overwritten`.
#[test]
fn what_a_ring_of_the_library_writes_is_not_overwritten() {
    changes("-luring");
}

/// `-ENOSYS`.
const REFUSED: i64 = -38;

/// What a program's own system calls return, and what was said.
fn own_calls(words: &str) -> (Vec<i64>, String) {
    let sandbox = Sandbox::new();
    build("own_call", sandbox.path());
    let line = format!("run --emulated 16MiB --absorb *.log --explain -- ./own_call {words}");
    let mut command = sandbox.command(&line);
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    let ran = Ran::of(command.output().unwrap()).ok();
    let numbers = ran.text();
    let numbers = numbers.split_whitespace().map(|n| n.parse().unwrap());
    (numbers.collect(), ran.stderr)
}

/// Promise (files): A ring that is made past the hooks is refused to a member that may have a
/// descriptor for a log.
#[test]
fn a_ring_that_is_not_announced_is_refused_to_a_member() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: without rights no filter is installed");
        return;
    }
    let (made, said) = own_calls("");
    assert_eq!(made[1], REFUSED, "{said}");
    assert!(made[2] > 0, "{made:?}: {said}");
    assert!(said.contains("the process uses io_uring"), "{said}");
}

#[test]
fn a_process_that_has_a_ring_open_stays_plain() {
    let (made, said) = own_calls("before");
    assert!(made.iter().all(|made| *made > 0), "{made:?}: {said}");
    assert!(
        said.contains("an io_uring is open in the process"),
        "{said}"
    );
    assert!(said.contains("no file was absorbed"), "{said}");
}

/// A handle of a log, for Python.
const HANDLE: &str = r#"
fd = opened("a.log")
logged(fd, b"a", 5)
handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0), 136)
assert libc.name_to_handle_at(-100, b"a.log", handle, ctypes.byref(ctypes.c_int()), 0) == 0
here = os.open(".", os.O_RDONLY)
by_number = {"x86_64": 304, "aarch64": 265}[os.uname().machine]
"#;

/// Promise: as `what_a_ring_of_the_program_itself_writes_is_not_overwritten`.
#[test]
fn a_log_that_is_opened_by_its_handle_is_plain() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: handles are root's");
        return;
    }
    for call in ["libc.open_by_handle_at(", "libc.syscall(by_number, "] {
        for (flags, check) in [("0", 500), ("os.O_TRUNC", 0)] {
            let left = nothing_is_lost(
                Disk::All,
                &format!(
                    r#"{HANDLE}
again = {call}here, handle, os.O_WRONLY | {flags})
assert os.lseek(fd, 0, os.SEEK_END) == {check}
os.pwrite(again, b"b" * 100, 0)
os.fsync(again)
cut()
"#
                ),
            );
            assert!(left.starts_with(&[b'b'; 100]));
        }
    }
}

/// Promise: as `what_a_ring_of_the_program_itself_writes_is_not_overwritten`.
#[test]
fn a_log_whose_descriptor_is_taken_from_a_process_is_plain() {
    for call in ["libc.pidfd_getfd(", "libc.syscall(438, "] {
        let left = nothing_is_lost(
            Disk::All,
            &format!(
                r#"
fd = opened("a.log")
logged(fd, b"a", 5)
pidfd = libc.syscall(434, os.getpid(), 0)
taken = {call}pidfd, fd, 0)
assert taken > 0
os.pwrite(taken, b"b" * 100, 0)
os.fsync(taken)
cut()
"#
            ),
        );
        assert!(left.starts_with(&[b'b'; 100]));
    }
}
