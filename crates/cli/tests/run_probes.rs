//! Probes: a program asks the kernel in vain, or changes something without changing a byte, and its
//! log stays absorbed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox, databases::small_pool, have};
use std::{fs, path::Path};

/// Runs `python3 -c script` with `*.log` absorbed into `pool`.
fn python(sandbox: &Sandbox, pool: &Path, options: &str, script: &str) -> Ran {
    let mut command = sandbox.command(&format!("run --explain --absorb *.log {options} --pool"));
    let script = format!(
        "import ctypes, errno, mmap, os, signal; c = ctypes.CDLL(None, use_errno=True)\n{script}"
    );
    command.arg(pool).args(["--", "python3", "-c", &script]);
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(command.output().unwrap())
}

const LOG: &str = "fd = os.open('a.log', os.O_RDWR | os.O_CREAT, 0o600); os.fsync(fd); os.write(fd, b'a' * 4096)\n";

/// InnoDB asks so whether its log is on persistent memory.
const MAP_SYNC: &str = "c.mmap.restype = ctypes.c_void_p\n\
     c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]\n\
     SHARED_VALIDATE, SYNC = 3, 0x80000\n\
     got = c.mmap(None, 4096, mmap.PROT_READ | mmap.PROT_WRITE, SHARED_VALIDATE | SYNC, fd, 0)\n\
     assert got == ctypes.c_void_p(-1).value and ctypes.get_errno() == errno.EOPNOTSUPP, (got, ctypes.get_errno())\n";

/// Promise (files): A mapping or a ring that is refused changes nothing.
#[test]
fn a_mapping_that_the_kernel_refuses_retires_nothing() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let script = format!("{LOG}{MAP_SYNC}os.write(fd, b'b' * 100)");
    let ran = python(&sandbox, pool.path(), "", &script).ok();
    let words: Vec<&str> = ran.told("a.log ").split_whitespace().collect();
    assert_eq!(
        (words[1], words.last()),
        ("2", Some(&"absorbed")),
        "{words:?}"
    );
}

#[test]
fn a_mapping_that_the_kernel_makes_retires_the_file_first() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let script = format!("{LOG}m = mmap.mmap(fd, 4096); m[:3] = b'new'; m.flush()");
    let ran = python(&sandbox, pool.path(), "", &script).ok();
    assert!(!ran.told("a.log ").ends_with("absorbed"), "{}", ran.stderr);
    assert!(fs::read(sandbox.file("a.log")).unwrap().starts_with(b"new"));
}

/// A file with room for more than was written is what a log is that will never need a block again.
///
/// Promise (files): A file that `fallocate` made longer is as long after a power cut.
#[test]
fn a_file_made_longer_stays_absorbed_and_as_long_after_a_cut() {
    for longer in [
        "os.posix_fallocate(fd, 0, 1 << 20)",
        "assert c.fallocate(fd, 0, ctypes.c_long(4096), ctypes.c_long((1 << 20) - 4096)) == 0",
    ] {
        let sandbox = Sandbox::new();
        let pool = small_pool();
        let end = "os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)";
        let script = format!("{LOG}{longer}\nos.pwrite(fd, b'b' * 100, 8192)\n{end}");
        python(&sandbox, pool.path(), "", &script);
        let path = sandbox.file("a.log");
        let expected = fs::read(&path).unwrap();
        assert_eq!(expected.len(), 1 << 20, "{longer}");
        // What the disk had when the file was registered.
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, b"").unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
        let mut recover = sandbox.command("recover --pool");
        recover.arg(pool.path());
        recover.env(
            "FOREBAY_TEST_BOOT_ID",
            "00000000-0000-4000-8000-000000000001",
        );
        recover.env("FOREBAY_TEST_POOL_SURVIVED", "1");
        Ran::of(recover.output().unwrap()).ok();
        assert!(fs::read(&path).unwrap() == expected, "{longer}");
    }
}

/// Promise: as `a_mapping_that_the_kernel_refuses_retires_nothing`.
#[test]
fn a_ring_the_profile_refuses_fails_and_retires_nothing() {
    let config = "[profile.ringless]\nabsorb = [\"*.log\"]\nrefuse_io_uring = true\n";
    // io_uring_setup, and Linux AIO's io_setup.
    let script = format!(
        "{LOG}for number, a, b in ((425, 8, ctypes.create_string_buffer(120)), (206, 8, ctypes.create_string_buffer(8))):\n\
         \x20   got = c.syscall(number, a, b)\n\
         \x20   assert got == -1 and ctypes.get_errno() == errno.ENOSYS, (number, got, ctypes.get_errno())\n\
         os.write(fd, b'b' * 100)"
    );
    for (options, is_refused) in [("--config c.toml --profile ringless", true), ("", false)] {
        let sandbox = Sandbox::new();
        let pool = small_pool();
        fs::write(sandbox.file("c.toml"), config).unwrap();
        let ran = python(&sandbox, pool.path(), options, &script);
        let absorbed = ran
            .stderr
            .lines()
            .any(|line| line.contains("a.log ") && line.ends_with("absorbed"));
        assert_eq!(
            ran.code == Some(0) && absorbed,
            is_refused,
            "{}",
            ran.stderr
        );
    }
}

/// Promise: as `pages_are_durable_before_a_checkpoint_not_before_log_records`.
#[test]
fn innodbs_checkpoints_alone_of_its_log_follow_a_real_sync() {
    if !have("strace") {
        return;
    }
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let script = "import os\n\
                  fd = os.open('ib_logfile0', os.O_RDWR | os.O_CREAT)\n\
                  for at in (12288, 4096, 16384, 8192, 20480):\n\
                  \x20   os.pwrite(fd, b'x' * 512, at)\n\
                  \x20   os.fdatasync(fd)";
    let traced = sandbox.file("calls");
    let mut run = sandbox.command("run --profile mariadb --pool");
    run.arg(pool.path())
        .args(["--", "strace", "-f", "-qq", "-o"]);
    run.arg(&traced).args(["-e", "trace=pwrite64,fdatasync"]);
    run.args(["python3", "-c", script]);
    run.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(run.output().unwrap()).ok();
    let calls = fs::read_to_string(&traced).unwrap();
    let calls: Vec<_> = (calls.lines())
        .filter_map(|line| {
            let (_, call) = line.split_once(' ')?;
            let (name, arguments) = call.trim_start().split_once('(')?;
            let offset = arguments.split(')').next()?.rsplit(' ').next()?;
            Some(if name == "fdatasync" { "sync" } else { offset }.to_owned())
        })
        .collect();
    let expected = ["12288", "sync", "4096", "16384", "sync", "8192", "20480"];
    assert_eq!(calls, expected);
}
