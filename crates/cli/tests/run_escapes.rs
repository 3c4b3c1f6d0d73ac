//! Ways past the library that a program's descriptors take: streams that land on a log, what the C
//! library puts in the place of one, children of every kind. What was acknowledged is recovered,
//! and nothing older or of another file is written over it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    recovered::{Disk, RUN, nothing_is_lost, run_and_recovered, same, without_rights},
};

/// The C library's streams, for Python.
const STREAMS: &str = r#"
for name in "fopen", "fdopen", "popen", "tmpfile":
    getattr(libc, name).restype = ctypes.c_void_p
stdout = ctypes.c_void_p.in_dll(libc, "stdout")
def printed(stream, fd):
    for n in range(100):
        libc.fprintf(stream, b"line %d\n", n)
    assert libc.fflush(stream) == 0
    assert synced_by_the_kernel(fd)
fd = opened("a.log", os.O_APPEND)
logged(fd, b"a")
"#;

#[track_caller]
fn a_stream_is_seen(script: &str) {
    nothing_is_lost(Disk::All, &format!("{STREAMS}{script}\ncut()\n"));
}

/// Promise (files): Text that a stream prints to a log which came to have its descriptor's number
/// is synced when the log is.
#[test]
fn text_printed_to_a_log_that_became_standard_output_is_synced() {
    for way in [
        "os.dup2(fd, 1)",
        "os.close(1); assert os.dup(fd) == 1",
        "os.close(1); assert fcntl.fcntl(fd, fcntl.F_DUPFD, 0) == 1",
        "os.close(fd); os.close(1); os.dup2(os.open('a.log', os.O_WRONLY | os.O_APPEND), 1)",
    ] {
        a_stream_is_seen(&format!("{way}\nprinted(stdout, 1)"));
    }
}

/// Promise: as `text_printed_to_a_log_that_became_standard_output_is_synced`.
#[test]
fn text_printed_to_a_log_in_a_streams_files_place_is_synced() {
    for stream in [
        r#"libc.fopen(b"other.txt", b"w")"#,
        r#"libc.fopen(b"/dev/null", b"r+")"#,
        r#"libc.fdopen(os.open("other.txt", os.O_RDWR | os.O_CREAT), b"w")"#,
        r#"libc.tmpfile()"#,
        r#"libc.popen(b"cat >/dev/null", b"w")"#,
    ] {
        for way in [
            "os.dup2(fd, number)",
            "os.close(number)\nwhile os.dup(fd) != number: pass",
            "os.close(number)\nwhile os.open('a.log', os.O_WRONLY | os.O_APPEND) != number: pass",
        ] {
            a_stream_is_seen(&format!(
                r#"
stream = ctypes.c_void_p({stream})
number = libc.fileno(stream)
{way}
printed(stream, number)
"#
            ));
        }
    }
}

/// Promise: as `text_printed_to_a_log_that_became_standard_output_is_synced`.
#[test]
fn a_backtrace_the_c_library_writes_to_a_log_is_really_synced() {
    a_stream_is_seen(
        r#"
libc.backtrace_symbols_fd((ctypes.c_void_p * 2)(1, 2), 2, fd)
assert synced_by_the_kernel(fd)
"#,
    );
}

#[test]
fn a_log_is_absorbed_by_the_number_of_a_closed_stream() {
    // Were the log given back to the kernel, a cut would find what was synced for it, and nothing
    // logged.
    nothing_is_lost(
        Disk::Synced,
        &format!(
            r#"{STREAMS}
stream = ctypes.c_void_p(libc.fopen(b"other.txt", b"w"))
number = libc.fileno(stream)
libc.fclose(stream)
assert os.dup(fd) == number
logged(number, b"b")
assert open(os.environ["FOREBAY_TEST_SYNCED"] + os.path.realpath("a.log"), "rb").read() == b"a" * 100
cut()
"#
        ),
    );
}

/// Promise (files): Bytes that go to a descriptor's number after the C library gave it another file
/// are not taken for the log's.
#[test]
fn a_daemons_standard_output_is_not_taken_for_the_logs() {
    for daemon in [
        "assert libc.daemon(1, 0) == 0",
        "if os.fork() > 0: os._exit(0)\nassert libc.login_tty(os.openpty()[1]) == 0",
    ] {
        nothing_is_lost(
            Disk::Synced,
            &format!(
                r#"
fd = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
logged(fd, b"a", 3)
supervisor = os.getppid()
os.dup2(fd, 1)
os.dup2(fd, 2)
{daemon}
os.write(1, b"rubbish" * 20)
os.write(2, b"rubbish" * 20)
os.kill(supervisor, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"#
            ),
        );
    }
}

/// Runs `programs/children.c`: what a recovery finds in `a.log`.
fn after_children(disk: Disk, kind: &str) -> Vec<u8> {
    let sandbox = Sandbox::new();
    common::build("children", sandbox.path());
    let run = without_rights(&sandbox.command(RUN));
    same(run_and_recovered(
        disk,
        &sandbox,
        run,
        &["./children", kind],
    ))
}

/// Promise (files): Older records of a parent do not overwrite the writes and truncations of its
/// child of `vfork`, also by descriptors that the child opens or duplicates.
#[test]
fn truncations_writes_and_syncs_by_a_vfork_child_are_not_undone() {
    assert_eq!(after_children(Disk::All, "vfork"), b"new");
}

/// Promise (files): A file behind an inherited descriptor is plain before the descriptor is passed
/// on or a ring can write to it, though its program never wrote to it.
#[test]
fn writes_by_an_inherited_descriptor_passed_on_are_not_undone() {
    // It passes the descriptor to itself: the library does not know the one that it gets.
    nothing_is_lost(
        Disk::All,
        r#"
fd = opened("a.log")
logged(fd, b"a", 5)
spawned(f"""
import array, socket
one, other = socket.socketpair()
socket.send_fds(one, [b"x"], [{fd}])
passed = socket.recv_fds(other, 1, 1)[1][0]
assert os.pwrite(passed, b"n" * 50, 0) == 50
os.fsync(passed)
""")
logged(fd, b"a", 5)
cut()
"#,
    );
}

/// Promise: as `writes_by_an_inherited_descriptor_passed_on_are_not_undone`.
#[test]
fn an_io_uring_makes_the_programs_inherited_files_plain() {
    nothing_is_lost(
        Disk::All,
        r#"
fd = opened("a.log")
logged(fd, b"a", 5)
spawned("import ctypes; ctypes.CDLL(None).syscall(425, 1, ctypes.create_string_buffer(120))")
logged(fd, b"a", 5)
assert synced_by_the_kernel(fd)
cut()
"#,
    );
}

/// A thread that closes its descriptors, which are not the other threads'.
const OWN_DESCRIPTORS: &str = r#"
CLONE_FILES, UNSHARE, CLOEXEC, LAST = 0x400, 2, 4, 0xffffffff
fd = opened("a.log")
logged(fd, b"a", 5)
def unshared(way):
    thread = threading.Thread(target=way)
    thread.start()
    thread.join()
"#;

/// Promise (files): A thread that closes descriptors of its own has the process forget none of the
/// other threads'.
#[test]
fn writes_after_a_thread_closed_its_descriptors_are_not_undone() {
    for way in [
        "libc.close_range(3, LAST, UNSHARE)",
        "libc.close_range(3, LAST, UNSHARE | CLOEXEC), os.close(fd)",
        "libc.unshare(CLONE_FILES), os.close(fd)",
        "libc.syscall(272 if os.uname().machine == 'x86_64' else 97, CLONE_FILES), os.close(fd)",
    ] {
        nothing_is_lost(
            Disk::All,
            &format!(
                r#"{OWN_DESCRIPTORS}
unshared(lambda: ({way}))
assert os.pwrite(fd, b"n" * 100, 0) == 100
os.fsync(fd)
cut()
"#
            ),
        );
    }
}

#[test]
fn duplicates_keep_o_dsync_after_a_thread_unshares_descriptors() {
    nothing_is_lost(
        Disk::All,
        &format!(
            r#"{OWN_DESCRIPTORS}
import fcntl
each = opened("each.log", os.O_DSYNC)
os.write(each, b"a" * 100)
unshared(lambda: libc.unshare(CLONE_FILES))
for other in [os.dup(each), os.dup2(each, 77), fcntl.fcntl(each, fcntl.F_DUPFD, 80)]:
    assert fcntl.fcntl(other, fcntl.F_GETFL) & os.O_DSYNC, other
    os.write(other, b"n" * 100)
cut()
"#
        ),
    );
}

/// 77 is that of a file, opened with `O_DSYNC`, among the descriptors of a thread that is gone.
const NUMBER_OF_A_FILE: &str = r#"
each = opened("each.log", os.O_DSYNC)
os.write(each, b"a" * 100)
unshared(lambda: (libc.unshare(CLONE_FILES), os.dup2(each, 77)))
"#;

/// The kernel takes no flags with a write to it.
#[test]
fn a_diskless_file_is_writable_by_another_threads_logs_number() {
    nothing_is_lost(
        Disk::All,
        &format!(
            r#"{OWN_DESCRIPTORS}{NUMBER_OF_A_FILE}
os.dup2(os.open("/proc/self/comm", os.O_WRONLY), 77)
assert os.write(77, b"renamed") == 7
assert open("/proc/self/comm").read() == "renamed\n"
cut()
"#
        ),
    );
}

#[test]
fn a_read_of_a_pipe_by_another_threads_logs_number_is_cancelled() {
    nothing_is_lost(
        Disk::All,
        &format!(
            r#"{OWN_DESCRIPTORS}{NUMBER_OF_A_FILE}
os.dup2(os.pipe()[0], 77)
reading = threading.Thread(target=lambda: libc.read(77, ctypes.create_string_buffer(1), 1), daemon=True)
reading.start()
time.sleep(0.1)
libc.pthread_cancel(ctypes.c_ulong(reading.ident))
until = time.monotonic() + 20
while os.path.exists(f"/proc/self/task/{{reading.native_id}}"):
    assert time.monotonic() < until, "it still waits"
    time.sleep(0.01)
cut()
"#
        ),
    );
}

#[test]
fn a_single_thread_that_unshares_descriptors_keeps_its_logs() {
    nothing_is_lost(
        Disk::Synced,
        &format!(
            r#"{OWN_DESCRIPTORS}
if os.fork() == 0:
    libc.close_range(3, LAST, UNSHARE)
    os._exit(0)
assert os.wait()[1] == 0
other = opened("other.log")
libc.close_range(other, LAST, UNSHARE)
# Behind the name of the other one.
os.fsync(fd)
filtered("fsync", REFUSED)
os.pwrite(fd, b"n" * 100, 0)
os.fsync(fd)
cut()
"#
        ),
    );
}

/// Promise (processes): A child is a member of its own however it was forked: by a system call that
/// no library sees, or by a signal handler above a write.
/// Promise (processes): A child of any fork neither crashes nor holds up the run.
#[test]
fn a_child_forked_by_a_system_call_syncs_as_any_other() {
    for fork in [
        // By its number, or where no library sees it.
        "libc.syscall(SYS_clone, signal.SIGCHLD, 0, 0, 0, 0)",
        "libc.syscall(57) if is_x86 else libc._Fork()",
        "ctypes.CFUNCTYPE(ctypes.c_int)(code)() if is_x86 else libc._Fork()",
    ] {
        let recovered = nothing_is_lost(
            Disk::Synced,
            &format!(
                r#"
import mmap
is_x86 = os.uname().machine == "x86_64"
SYS_clone = 56 if is_x86 else 220
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\xb8\x39\0\0\0\x0f\x05\xc3")
code = ctypes.addressof(ctypes.c_char.from_buffer(page))
fd = opened("a.log")
logged(fd, b"a")
if (child := {fork}) == 0:
    logged(fd, b"b")
    logged(opened("b.log"), b"b")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
logged(fd, b"c")
filtered("fsync", REFUSED)
os.fsync(fd)
cut()
"#
            ),
        );
        assert_eq!(
            recovered,
            [b'a', b'b', b'c'].map(|byte| [byte; 100]).concat()
        );
    }
}

/// Promise: as `a_child_forked_by_a_system_call_syncs_as_any_other`.
#[test]
fn a_handlers_child_above_a_write_holds_up_and_undoes_nothing() {
    let found = after_children(Disk::All, "handler");
    let count = |byte| found.iter().filter(|found| **found == byte).count();
    assert_eq!(b"abcd".map(count), [100; 4]);
}

/// Promise (processes): A signal handler that jumps out of a write, in a process of one thread,
/// holds up others only until the next call, and the write's bytes are synced.
#[test]
fn a_jump_out_of_a_write_holds_up_no_process_and_loses_nothing() {
    let found = after_children(Disk::Synced, "jump");
    let count = |byte| found.iter().filter(|found| **found == byte).count();
    assert_eq!(b"abcd".map(count), [100, 500, 10_000, 10_100]);
}

/// A log, and a child that shares its descriptors, and puts another file in its place.
const SHARED_DESCRIPTORS: &str = r#"
CLONE_FILES = 0x400
fd = opened("a.log")
logged(fd, b"a", 5)
def replaced(*_):
    os.close(fd)
    assert os.open("other", os.O_RDWR | os.O_CREAT, 0o600) == fd
    os._exit(0)
def by_number():
    child = libc.syscall(56 if os.uname().machine == "x86_64" else 220, CLONE_FILES | signal.SIGCHLD, 0, 0, 0, 0)
    return child or replaced()
def by_function():
    libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    stack = ctypes.create_string_buffer(1 << 20)
    work = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(replaced)
    return libc.clone(ctypes.cast(work, ctypes.c_void_p), ctypes.addressof(stack) + (1 << 20) - 64, CLONE_FILES | signal.SIGCHLD, None)
def waited(child):
    assert os.waitpid(child, 0)[1] == 0
"#;

/// Promise (processes): A parent absorbs nothing any more once a child shares its descriptors and
/// not its memory (`clone` with `CLONE_FILES`).
/// Promise (processes): Bytes that go to a file which a child put in a log's place, in the
/// descriptors it shares, are not taken for the log's.
#[test]
fn writes_to_a_childs_file_in_a_logs_place_are_not_the_logs() {
    for way in ["by_number()", "by_function()"] {
        nothing_is_lost(
            Disk::All,
            &format!(
                r#"{SHARED_DESCRIPTORS}
waited({way})
assert os.pwrite(fd, b"n" * 100, 0) == 100
assert synced_by_the_kernel(fd)
cut()
"#
            ),
        );
    }
}
