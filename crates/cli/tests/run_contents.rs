//! Contents that a program leaves to the file system to write: those of a file that takes another's
//! place, without any sync.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Sandbox, disk::Disk};
use std::process::Command;

/// Has a log, unless that comes later, replaces a file some times without a sync, and says of each
/// time whether some of it is not at its place on the disk right after (FIEMAP: to be allocated, or
/// not written).
const PROGRAM: &str = "import fcntl, os, struct, sys
def is_open(path):
    asked = bytearray(struct.pack('=QQIIII', 0, 1 << 62, 0, 0, 200, 0) + bytes(56 * 200))
    with open(path, 'rb') as file:
        fcntl.ioctl(file, 0xC020660B, asked)
    found = struct.unpack_from('=I', asked, 20)[0]
    flags = [struct.unpack_from('=I', asked, 32 + 56 * at + 40)[0] for at in range(found)]
    return not flags or any(flag & 0x804 for flag in flags)
how, when, x = sys.argv[1:]
def begin():
    log = os.open('a.log', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(log, b'x' * 100)
    os.fsync(log)
if when == 'behind a log':
    begin()
with open(x, 'wb') as file:
    file.write(b'old')
for _ in range(6):
    name = 'new' if how == 'rename' else x
    with open(name, 'wb') as file:
        file.write(b'x' * (24 << 20))
    if name == 'new':
        os.rename(name, x)
    print(is_open(x))
begin()
";

/// What it says on ext4, with this in front; none where there is no such file system to be had.
fn said(x: &str, how: &str, when: &str, forebay: Option<&str>) -> Option<Vec<String>> {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let disk = Disk::make(sandbox.path(), "ext4")?;
    let mut command = match forebay {
        Some(options) => {
            let line = format!("run {options} --absorb *.log --pool");
            let mut command = sandbox.command(&line);
            command.arg(sandbox.file("p")).args(["--", "python3"]);
            command
        }
        None => Command::new("python3"),
    };
    let output = command
        .args(["-c", PROGRAM, how, when, x])
        .current_dir(&disk.at);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(str::to_owned).collect())
}

/// Promise (order): What takes a file's place by a rename, or replaces what was cut off, is written
/// before it counts, though the program syncs its log alone.
#[test]
fn what_takes_a_files_place_is_written_before() {
    let front_ends = [
        ("x", "rename", "behind a log", "--front-end preload"),
        ("x", "rename", "before the first", "--front-end preload"),
        ("x", "cut off", "behind a log", "--front-end preload"),
        ("x.log", "cut off", "behind a log", "--front-end preload"),
        ("x", "rename", "behind a log", "--front-end notify"),
        ("x", "rename", "before the first", "--front-end notify"),
        ("x.log", "cut off", "behind a log", "--front-end notify"),
        ("x.log", "cut off", "before the first", "--front-end notify"),
    ];
    for (x, how, when, front_end) in front_ends {
        if let Some(said) = said(x, how, when, Some(front_end)) {
            assert_eq!(said, ["False"; 6], "{x}, {how}, {when}, {front_end}");
        }
    }
}

/// Otherwise the test above shows nothing.
#[test]
fn without_forebay_such_a_file_is_written_later() {
    for how in ["rename", "cut off"] {
        if let Some(said) = said("x", how, "behind a log", None) {
            assert!(said.iter().any(|it| it == "True"), "{how}: {said:?}");
        }
    }
}
