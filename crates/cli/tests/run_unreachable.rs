//! Processes that cannot connect to the supervisor any more: what they write is as durable as
//! without Forebay, at once, and nothing older is written over it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::recovered::{Disk, nothing_is_lost};

/// A child that has done `drops` writes by what it inherited and by what it opens; then its parent
/// writes.
fn unreachable(drops: &str, opens: bool) {
    let opens = match opens {
        true => "again = opened('a.log', os.O_APPEND)\n    logged(again, b'd')",
        false => "pass",
    };
    let script = format!(
        r#"
import resource
fd = opened("a.log", os.O_APPEND)
logged(fd, b"a", 5)
begun = time.time()
child = os.fork()
if child == 0:
    {drops}
    logged(fd, b"b")
    logged(fd, b"c")
    {opens}
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert time.time() - begun < 20, "it waited for what cannot be reached"
logged(fd, b"e")
cut()
"#
    );
    // The kernel has what is synced past the supervisor, and only that knows of it.
    let written = nothing_is_lost(Disk::All, &script);
    assert!(written.ends_with(&[b'e'; 100]));
}

#[test]
fn process_in_another_network_writes_its_log() {
    unreachable("assert libc.unshare(0x40000000) == 0", true);
}

#[test]
fn process_whose_filter_refuses_sockets_writes_its_log() {
    for call in ["socket", "connect"] {
        for answer in ["REFUSED", "0x00050026"] {
            unreachable(&format!("filtered({call:?}, {answer})"), true);
        }
    }
}

#[test]
fn process_without_descriptors_writes_its_log() {
    let drops = "resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1, fd + 1))";
    unreachable(drops, false);
}

#[test]
fn process_in_landlock_writes_its_log() {
    // Abstract sockets of other domains are out of its reach; before Linux 6.12 there is no such
    // right.
    let drops = "rules = libc.syscall(444, struct.pack('QQQ', 0, 0, 1), 24, 0)\n    \
                 assert libc.prctl(38, 1, 0, 0, 0) == 0\n    \
                 assert rules < 0 or libc.syscall(446, rules, 0) == 0";
    unreachable(drops, true);
}

#[test]
fn process_of_another_user_in_another_network_writes_its_log() {
    if !common::root_can("become another user") {
        return;
    }
    unreachable(
        "assert libc.unshare(0x40000000) == 0\n    os.setuid(65534)",
        false,
    );
}

#[test]
fn program_that_does_not_find_the_table_writes_its_log() {
    // As `bwrap --unshare-net --dev /dev` does.
    let drops = "assert libc.unshare(0x40020000) == 0\n    \
                 assert libc.mount(b'none', b'/', None, 0x44000, None) == 0\n    \
                 assert libc.mount(b'none', b'/dev/shm', b'tmpfs', 0, None) == 0\n    \
                 code = f\"import os; os.write({fd}, b'x' * 100); os.fdatasync({fd}); os.write({fd}, b'y' * 100); os.fdatasync({fd})\"\n    \
                 os.execv(sys.executable, ['python3', '-c', code])";
    if !common::root_can("mount") {
        return;
    }
    unreachable(drops, false);
}
