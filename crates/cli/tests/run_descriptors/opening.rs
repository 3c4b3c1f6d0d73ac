//! Opening a file: by `openat2` as by any other call, and one that waits holds up no other.

use crate::{absorbed, python};

#[test]
fn openat2_is_absorbed_whether_or_not_the_c_library_has_it() {
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

/// Promise: as `a_plain_file_keeps_its_locks_when_it_is_opened_with_o_dsync`.
#[test]
fn an_open_that_waits_for_a_fifos_other_end_holds_up_no_other() {
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
