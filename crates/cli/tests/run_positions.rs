//! Programs whose processes share open files: what is logged is where the kernel put it, whichever
//! process moved the position, exchanged the descriptor or changed its flags meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    databases::small_pool,
    recovered::{BEGIN, Disk, nothing_is_lost},
};

/// Promise (files): A write is logged where it went, though other processes share its open file and
/// move the position or have it append.
#[test]
fn a_write_at_a_position_a_spawned_program_moved_is_recovered() {
    // Without the library it has the log made plain before: what is written then is really synced.
    for (disk, without) in [(Disk::Synced, ""), (Disk::All, ", LD_PRELOAD=None")] {
        let recovered = nothing_is_lost(
            disk,
            &format!(
                r#"
fd = opened("a.log")
logged(fd, b"a")
spawned(f"os.lseek({{fd}}, 1000, os.SEEK_SET)"{without})
logged(fd, b"c")
cut()
"#
            ),
        );
        assert_eq!(
            recovered,
            [[b'a'; 100].as_slice(), &[0; 900], &[b'c'; 100]].concat()
        );
    }
}

/// Promise: as `a_write_at_a_position_a_spawned_program_moved_is_recovered`.
#[test]
fn a_spawned_programs_writes_by_the_same_file_are_recovered() {
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

/// Promise: as `a_write_at_a_position_a_spawned_program_moved_is_recovered`.
#[test]
fn a_child_that_reads_misplaces_no_record_of_its_parents_writes() {
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

/// Promise (files): Bytes that a process or thread wrote, and another saw in the file and synced,
/// are durable, though the write has not returned or its process was killed.
#[test]
fn a_killed_processs_write_synced_by_its_reader_survives_a_cut() {
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
fn a_descriptor_set_to_append_changes_no_other_without_kcmp() {
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

/// Promise: as `a_write_at_a_position_a_spawned_program_moved_is_recovered`.
#[test]
fn writes_to_a_file_another_process_sets_to_append_survive() {
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

/// Promise (files): A write is logged for the file that got it, though other threads put another
/// file in its descriptor's place.
#[test]
fn a_write_is_logged_while_another_thread_exchanges_the_file() {
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
fn a_sync_fails_if_a_killed_processs_write_cannot_be_synced() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let script = r#"
fd = opened("a.log")
logged(fd, b"a", 3)
open(os.environ["FOREBAY_TEST_FAULTS"] + "/sync", "w").write("5")
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
        .env("FOREBAY_TEST_FAULTS", sandbox.faults());
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.stdout, b"refused 5\n", "{}", ran.stderr);
}

/// Promise (files): A truncation that returned has happened, also if its record left the lane
/// before the kernel truncated.
#[test]
fn a_truncation_whose_record_left_the_lane_early_is_not_lost() {
    nothing_is_lost(
        Disk::Synced,
        r#"
import mmap
def released():
    """Each call makes one more file plain, so that all that is logged is synced and released."""
    others = [os.open(f"{n}.log", os.O_RDWR | os.O_CREAT, 0o600) for n in range(200)]
    for other in others:
        os.write(other, b"o" * 4096)
    os.write(ready[1], b"r")
    left = iter(others)
    return lambda: mmap.mmap(next(left), 4096)
fd, ready = opened("a.log"), os.pipe()
before("ftruncate", released)
os.read(ready[0], 1)
for _ in range(190):
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

/// Promise: as `a_killed_processs_write_synced_by_its_reader_survives_a_cut`.
#[test]
fn another_threads_unfinished_write_is_recovered_once_synced() {
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
