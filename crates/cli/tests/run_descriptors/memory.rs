//! A program may unmap whatever it finds in its memory: what is Forebay's stays.

use crate::{absorbed, python};

/// Promise (programs): A program that unmaps whatever it finds in its memory loses nothing, and
/// goes on being absorbed.
#[test]
fn a_program_that_unmaps_all_it_finds_goes_on_being_absorbed() {
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
    # The pool, the lane's state, the run's page, the table, what is asked by it, what is counted.
    left = list(found())
    assert len(left) == 6, open("/proc/self/maps").read()
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
