//! A program keeps the locks that it has on its files, whatever Forebay does with them.

use crate::{absorbed, python};

/// Promise (programs): Forebay never drops the program's locks, holds up its opens while one waits
/// (a FIFO), or keeps a descriptor's number from it.
#[test]
fn a_plain_file_keeps_its_locks_when_it_is_opened_with_o_dsync() {
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

/// Promise: as `a_plain_file_keeps_its_locks_when_it_is_opened_with_o_dsync`.
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
fn a_file_truncated_by_a_reading_open_stays_absorbed_and_locked() {
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

/// Promise: as `a_plain_file_keeps_its_locks_when_it_is_opened_with_o_dsync`.
#[test]
fn locks_on_a_file_outlive_a_sync_without_a_supervisor() {
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
