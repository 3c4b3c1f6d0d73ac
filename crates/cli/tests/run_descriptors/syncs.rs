//! Syncs that are the kernel's alone: what they made durable, a recovery does not write over,
//! though the pool's disk has not heard of it yet.
//!
//! Promise (files): Bytes that `sync`, `syncfs`, `msync`, libaio or an `fsync` by a read-only
//! descriptor made durable are not overwritten: a pool on a disk is committed before.

use crate::common::recovered::{Disk, nothing_is_lost};

/// What of a log is written over, and said to be durable by `call`.
fn written_over_and(call: &str) {
    nothing_is_lost(
        Disk::All,
        &format!(
            r#"
import mmap, platform
fd = opened("a.log")
os.pwrite(fd, b"a" * 300, 0)
os.fdatasync(fd)
reader = os.open("a.log", os.O_RDONLY)
libc.mmap.restype = ctypes.c_void_p
mapped = ctypes.c_void_p(libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, reader, ctypes.c_long(0)))
libc.syscall.restype = ctypes.c_long
number = {{"x86_64": (162, 306), "aarch64": (81, 267)}}[platform.machine()]
os.pwrite(fd, b"b" * 200, 0)
{call}
cut()
"#
        ),
    );
}

#[test]
fn what_sync_and_syncfs_made_durable_is_not_written_over() {
    for call in [
        "os.sync()",
        "assert libc.syscall(number[0]) == 0",
        "assert libc.syncfs(reader) == 0",
        "assert libc.syscall(number[1], reader) == 0",
    ] {
        written_over_and(call);
    }
}

#[test]
fn bytes_synced_by_a_read_only_descriptor_are_not_overwritten() {
    for call in ["os.fsync(reader)", "os.fdatasync(reader)"] {
        written_over_and(call);
    }
}

#[test]
fn bytes_synced_by_a_read_only_mapping_are_not_overwritten() {
    const MS_SYNC: u32 = 4;
    written_over_and(&format!(
        "assert libc.msync(mapped, ctypes.c_size_t(4096), {MS_SYNC}) == 0"
    ));
}

#[test]
fn what_was_synced_by_libaio_is_not_written_over() {
    for operation in ["FSYNC", "FDSYNC"] {
        written_over_and(&format!(
            r#"
FSYNC, FDSYNC = 2, 3
setup, submit, events = {{"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}}[platform.machine()]
context = ctypes.c_ulong(0)
assert libc.syscall(setup, 1, ctypes.byref(context)) == 0
block = ctypes.create_string_buffer(struct.pack("=QIIHhIQQqQII", 0, 0, 0, {operation}, 0, fd, 0, 0, 0, 0, 0, 0), 64)
blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
assert libc.syscall(submit, context, 1, blocks) == 1
assert libc.syscall(events, context, ctypes.c_long(1), ctypes.c_long(1), ctypes.create_string_buffer(64), None) == 1
"#
        ));
    }
}
