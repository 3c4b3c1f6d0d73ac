//! Writes of libaio and POSIX AIO by a descriptor with `O_DSYNC` are synced, though the kernel does
//! not know of the flag.

use crate::{
    BEGIN,
    common::{self, Ran, Sandbox},
    python,
};

/// Promise (files): Writes of libaio and POSIX AIO by a descriptor with `O_DSYNC` are synced, and
/// no ring can write by one.
#[test]
fn libaio_syncs_writes_by_an_o_dsync_the_kernel_does_not_know() {
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

/// Makes rings, and says whether that fails as it does on a kernel that has none.
const RINGS: &str = r#"
libc = ctypes.CDLL(None, use_errno=True)
ENOSYS, io_uring_setup = 38, 425
def made():
    return libc.syscall(io_uring_setup, 1, ctypes.create_string_buffer(120))
def is_refused():
    return made() == -1 and ctypes.get_errno() == ENOSYS
plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
code = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); libc.syscall(425, 0, 0); print(ctypes.get_errno())"
has_none = subprocess.check_output([sys.executable, "-c", code], env=plain) == b"38\n"
"#;

/// Whether its file is absorbed, or plain by now.
///
/// Promise: as `libaio_syncs_writes_by_an_o_dsync_the_kernel_does_not_know`.
#[test]
fn a_ring_is_refused_beside_an_o_dsync_the_kernel_does_not_know() {
    for plain in ["", "mmap.mmap(fd, 1000)"] {
        let ran = python(&format!(
            r#"{RINGS}
fd = opened("a.log", os.O_DSYNC)
logged(fd)
{plain}
print(is_refused())
os.close(fd)
print(is_refused() == has_none)
"#
        ))
        .ok();
        assert_eq!(ran.text(), "True\nTrue\n", "{plain}: {}", ran.stderr);
    }
}

/// What is known of its number stays, where a thread has descriptors of its own.
#[test]
fn a_ring_is_made_whatever_file_had_another_rings_number() {
    let ran = python(&format!(
        r#"{RINGS}
fd = opened("a.log", os.O_DSYNC)
logged(fd)
CLONE_FILES = 0x400
thread = threading.Thread(target=lambda: libc.unshare(CLONE_FILES))
thread.start()
thread.join()
os.close(fd)
print(has_none or made() == fd, is_refused() == has_none)
"#
    ))
    .ok();
    assert_eq!(ran.text(), "True True\n", "{}", ran.stderr);
}

/// Writes by POSIX AIO, through a descriptor that was absorbed with `O_DSYNC`, and says when the
/// write is known to be complete.
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

/// Promise: as `libaio_syncs_writes_by_an_o_dsync_the_kernel_does_not_know`.
#[test]
fn a_posix_aio_write_by_o_dsync_is_complete_once_it_is_synced() {
    if !common::have("strace") {
        return;
    }
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
    Ran::of(command.output().unwrap()).ok();
    let trace = std::fs::read_to_string(sandbox.file("trace")).unwrap();
    let at = |what: &str| {
        trace
            .find(what)
            .unwrap_or_else(|| panic!("no {what} in {trace}"))
    };
    let (written, complete) = (at("\"by AIO\""), at("\"complete\""));
    assert!(trace[written..complete].contains("sync("), "{trace}");
}
