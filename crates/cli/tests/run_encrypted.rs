//! A log in an encrypted directory (fscrypt), whose key is not there at the recovery.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Sandbox,
    disk::{Disk, run},
};
use std::fs;

const UNLOCK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/unlock.py");
const OTHER_BOOT: &str = "00000000-0000-0000-0000-00000000b007";

/// Appends to a log, each write synced, and ends with all that came with it.
const PROGRAM: &str = r#"
import os, signal
log = os.open("mounted/locked/a.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for i in range(100):
    os.write(log, b"%099d\n" % i); os.fdatasync(log)
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"#;

/// Promise (recovery): A recovery without an encrypted directory's key refuses, names the remedy,
/// and loses nothing.
#[test]
fn recovery_without_the_key_names_the_remedy_and_loses_nothing() {
    let sandbox = Sandbox::new();
    let Some(mut disk) = Disk::make(sandbox.path(), "ext4-encrypt") else {
        return;
    };
    let directory = disk.at.join("locked");
    let unlock = || run("python3", &[UNLOCK, directory.to_str().unwrap()]);
    fs::create_dir(&directory).unwrap();
    if let Err(why) = unlock() {
        println!("skipped: {why}");
        return;
    }
    sandbox
        .run("pool create p --emulated --size 6MiB --segment-size 1MiB")
        .ok();
    let mut command = sandbox.command("run --pool p --absorb *.log -- python3 -c");
    let ended = command
        .arg(PROGRAM)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    assert!(!ended.status().unwrap().success());
    disk.cut();
    disk.mount_again();
    let recover = || {
        let mut command = sandbox.command("recover --pool p");
        command.env("FOREBAY_TEST_BOOT_ID", OTHER_BOOT);
        command.env("FOREBAY_TEST_POOL_SURVIVED", "1");
        common::Ran::of(command.output().unwrap())
    };
    let said = recover().fails(1, &[]).text();
    for words in [
        "encrypted directory whose key is not there",
        "fscrypt unlock",
    ] {
        assert!(said.contains(words), "{said}");
    }
    unlock().unwrap();
    recover().ok();
    let found = fs::read_to_string(directory.join("a.log")).unwrap();
    assert!(
        found
            .lines()
            .map(|line| line.parse::<u64>().unwrap())
            .eq(0..100)
    );
}
