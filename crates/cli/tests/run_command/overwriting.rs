//! A recovery overwrites nothing that is newer than the pool's records: a new file with an old
//! inode, a range that an `ioctl` zeroed, what another process wrote. And a buffer that changes
//! while it is absorbed leaves no damaged record.

use crate::common::{
    Ran, Sandbox,
    databases::{boot_anew, small_pool},
    recovered::{Disk, nothing_is_lost},
};
use std::fs;

/// Absorbs `a.log`; then its supervisor is killed, it is unlinked, and new files are made until one
/// has the inode it had.
const INODE_AGAIN: &str = r#"
import os, signal, time
def write(name, bytes, times):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    for _ in range(times):
        os.write(fd, bytes)
        os.fdatasync(fd)
    inode = os.fstat(fd).st_ino
    os.close(fd)
    return inode
inode = write("a.log", b"a" * 100, 10)
supervisor = os.getppid()
os.kill(supervisor, signal.SIGKILL)
while os.getppid() == supervisor:
    time.sleep(0.01)
os.unlink("a.log")
print(any(write(f"b{n}.log", b"b" * 100, 20) == inode for n in range(50)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"#;

#[test]
fn a_new_file_is_not_taken_for_an_unlinked_one_of_its_inode() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let ran = sandbox.python(pool.path(), INODE_AGAIN);
    if ran.text().trim() != "True" {
        println!("skipped: this file system gave no inode a second time");
        return;
    }
    let report = sandbox.recover_in_another_boot(pool.path());
    for file in report["lanes"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|lane| lane["files"].as_array().unwrap())
    {
        // Its ten writes, and none of another file.
        assert!(file["bytes"].as_u64().unwrap() <= 1000, "{report}");
    }
}

/// Absorbs `a.log`, and zeroes its first page by an `ioctl` that every file system has.
const ZEROED: &str = r#"
import fcntl, os, signal, struct
fd = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
os.write(fd, b"a" * 8192)
os.fdatasync(fd)
FS_IOC_ZERO_RANGE = 0x40305839
fcntl.ioctl(fd, FS_IOC_ZERO_RANGE, struct.pack("=hhxxxxqqiI4i", 0, os.SEEK_SET, 0, 4096, 0, 0, 0, 0, 0, 0))
os.fsync(fd)
assert os.pread(fd, 4096, 0) == bytes(4096)
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"#;

/// Promise (files): A range that an `ioctl` zeroed, punched or exchanged is not written again.
#[test]
fn a_range_that_was_zeroed_by_an_ioctl_is_not_written_again() {
    // A real disk rather than tmpfs, which does not have it.
    let sandbox = Sandbox::on_disk();
    let pool = small_pool();
    let ran = sandbox.python(pool.path(), ZEROED);
    if ran.code.is_some() {
        println!(
            "skipped: this file system cannot zero a range: {}",
            ran.stderr
        );
        return;
    }
    sandbox.recover_in_another_boot(pool.path());
    let expected = [[0; 4096], [b'a'; 4096]].concat();
    assert!(fs::read(sandbox.file("a.log")).unwrap() == expected);
}

/// Absorbs `a.log`, and has a loop device write to it, which is told of it in one of two ways.
const BELOW: &str = r#"
import fcntl, os, signal, struct, sys
fd = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
os.write(fd, b"a" * 65536)
os.fdatasync(fd)
LOOP_CTL_GET_FREE, LOOP_SET_FD, LOOP_CLR_FD, LOOP_CONFIGURE = 0x4C82, 0x4C00, 0x4C01, 0x4C0A
number = fcntl.ioctl(os.open("/dev/loop-control", os.O_RDWR), LOOP_CTL_GET_FREE)
device = os.open(f"/dev/loop{number}", os.O_RDWR)
if WAY == "set":
    fcntl.ioctl(device, LOOP_SET_FD, fd)
else:
    fcntl.ioctl(device, LOOP_CONFIGURE, struct.pack("=I300x", fd))
os.pwrite(device, b"b" * 4096, 4096)
os.fsync(device)
fcntl.ioctl(device, LOOP_CLR_FD)
os.pwrite(fd, b"c", 0)
os.fdatasync(fd)
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"#;

/// Promise (recovery): A recovery does not overwrite the writes of a loop device that the program
/// set up over its log.
#[test]
fn what_a_loop_device_over_a_log_wrote_is_not_written_over() {
    for way in ["set", "configure"] {
        let sandbox = Sandbox::on_disk();
        let pool = small_pool();
        let ran = sandbox.python(pool.path(), &format!("WAY = {way:?}\n{BELOW}"));
        if ran.code.is_some() {
            println!("skipped: no loop device is to be had: {}", ran.stderr);
            return;
        }
        sandbox.recover_in_another_boot(pool.path());
        let found = fs::read(sandbox.file("a.log")).unwrap();
        assert!(found[4096..8192] == [b'b'; 4096], "{way}");
        assert_eq!((found[0], found.len()), (b'c', 65536), "{way}");
    }
}

/// Absorbs `a.log` and passes its descriptor through a socket; who receives it writes over what was
/// written first.
const PASSED_ON: &str = r#"
import os, signal, socket
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, b"a" * 100)
os.fdatasync(fd)
ours, theirs = socket.socketpair()
child = os.fork()
if child == 0:
    _, (passed,), _, _ = socket.recv_fds(theirs, 1, 1)
    os.pwrite(passed, b"b" * 50, 0)
    os.fsync(passed)
    os._exit(0)
socket.send_fds(ours, [b"x"], [fd])
assert os.waitpid(child, 0)[1] == 0
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"#;

#[test]
fn recovery_keeps_bytes_written_by_a_descriptor_passed_on() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let ran = sandbox.python(pool.path(), PASSED_ON);
    assert_eq!(ran.code, None, "{}", ran.stderr);
    sandbox.recover_in_another_boot(pool.path());
    let expected = [[b'b'; 50], [b'a'; 50]].concat();
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), expected);
}

/// Writes from memory that a child shares and changes all the while, and dies with its supervisor.
const CHANGING: &str = r#"
import mmap, os, signal
buffer = mmap.mmap(-1, 65536)
writer = os.getpid()
if os.fork() == 0:
    turn = 0
    while os.getppid() == writer:
        turn = (turn + 1) % 251
        buffer[:] = bytes([turn]) * len(buffer)
    os._exit(0)
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
for bytes_ in [512, 65536, 4096] * 40:
    os.pwrite(fd, memoryview(buffer)[:bytes_], 0)
    os.fdatasync(fd)
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"#;

#[test]
fn a_buffer_changed_while_it_is_absorbed_damages_no_pool() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let ran = sandbox.python(pool.path(), CHANGING);
    assert_eq!(ran.code, None, "{}", ran.stderr);
    let report = sandbox.recover_in_another_boot(pool.path());
    assert!(!report["lanes"].as_array().unwrap().is_empty(), "{report}");
}

/// Absorbs `a.log`, of which a thousand bytes are at home before the last hundred are written.
const GROWN: &str = r#"
import json, os, signal, subprocess, time
forebay = os.getppid()
def drained():
    program = os.readlink("/proc/%d/exe" % forebay)
    said = subprocess.run([program, "status", "--json"], stdout=subprocess.PIPE).stdout
    return [run["lane"]["drained"] > 0 for run in json.loads(said) if run.get("pid") == forebay]
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, b"a" * 1000)
os.fdatasync(fd)
until = time.monotonic() + 60
while drained() != [True] and time.monotonic() < until:
    time.sleep(0.05)
os.write(fd, b"z" * 100)
os.fdatasync(fd)
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"#;

/// Promise (recovery): An older copy of a log that is shorter than the log was at the pool's first
/// record gets none of the records.
#[test]
fn an_older_copy_of_a_log_gets_no_record_from_behind_its_end() {
    let sandbox = Sandbox::on_disk();
    let pool = small_pool();
    let ran = sandbox.python(pool.path(), GROWN);
    assert_eq!(ran.code, None, "{}", ran.stderr);
    // As its file system was a while ago, of which there was a snapshot.
    let log = fs::File::options()
        .write(true)
        .open(sandbox.file("a.log"))
        .unwrap();
    log.set_len(400).unwrap();
    log.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(60))
        .unwrap();
    let mut environment = Vec::new();
    boot_anew(&mut environment, 2);
    let recover = |more: &str| {
        let mut command = sandbox.command(&format!("recover {more} --pool"));
        Ran::of(
            command
                .arg(pool.path())
                .envs(environment.clone())
                .output()
                .unwrap(),
        )
    };
    let refused = recover("");
    let said = format!("{}{}", refused.text(), refused.stderr);
    assert!(
        refused.code == Some(1) && said.contains("is an older copy: it had 1000 bytes"),
        "{said}"
    );
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), [b'a'; 400]);
    recover("--force").ok();
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap().len(), 1100);
}

/// A log of 40,000 bytes that are all different from those 3,000 bytes on; its first 3,000 are
/// dropped in place, by a write from a mapping of it.
const COMPACTED: &str = r#"
fd = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
os.write(fd, b"".join(b"%07d\n" % n for n in range(5000))); os.fsync(fd)
reader, flags = (os.open("a.log", os.O_RDONLY), 1) if HOW != "private" else (fd, 2)
mmap = libc.mmap
mmap.restype, mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
at = mmap(None, 40000, 1, flags, reader, 0)
if HOW == "moved":
    libc.mremap.restype, libc.mremap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    room = mmap(None, 1 << 20, 0, 0x22, -1, 0)
    at = libc.mremap(at, 40000, 40000, 3, room)
if HOW == "many":
    others = [mmap(None, 4096, 1, flags, reader, 0) for _ in range(100)]
    at = mmap(None, 40000, 1, flags, reader, 0)
if HOW == "unmapped":
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    for _ in range(100):
        libc.munmap(mmap(None, 40000, 1, flags, reader, 0), 40000)
assert libc.pwrite(fd, at + 3000, 37000, 0) == 37000
os.ftruncate(fd, 37000); os.fsync(fd)
cut()
"#;

/// Promise (files): Bytes that a program writes to a log from a mapping of that log (a compaction
/// in place) are recovered as the kernel had them.
#[test]
fn a_write_to_a_log_from_its_own_mapping_is_recovered_exactly() {
    for how in ["shared", "private", "moved", "many", "unmapped"] {
        let script = format!("HOW = {how:?}\n{COMPACTED}");
        let recovered = nothing_is_lost(Disk::All, &script);
        assert_eq!(recovered.len(), 37_000, "{how}");
        assert_eq!(&recovered[..8], b"0000375\n", "{how}");
    }
}

/// More than is there is written from such a mapping: what is refused, and how much is written, is
/// the kernel's to say.
const BEYOND: &str = r#"
fd = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
os.write(fd, b"a" * 5000); os.fsync(fd)
reader = os.open("a.log", os.O_RDONLY)
mmap = libc.mmap
mmap.restype, mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
at = mmap(None, 65536, 1, 1, reader, 0)
assert libc.pwrite(fd, at, 65536, 5000) > 0
os.fsync(fd)
cut()
"#;

/// Promise: as `a_write_to_a_log_from_its_own_mapping_is_recovered_exactly`.
#[test]
fn a_write_from_behind_a_mapped_logs_end_has_the_kernels_length() {
    nothing_is_lost(Disk::All, BEYOND);
}
