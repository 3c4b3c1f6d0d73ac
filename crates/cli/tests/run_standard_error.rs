//! Forebay's messages go to standard error and to no other file, and a program runs though they
//! cannot be said.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{Ran, Sandbox};
use std::fs;

/// A program whose standard error is given up as `how` says, and which then has something said: its
/// supervisor is killed.
const UNHEARD: &str = r#"
import os, signal, sys, time
log = os.open("a.log", os.O_RDWR | os.O_CREAT, 0o600)
os.write(log, b"A" * 100); os.fsync(log)
exec(sys.argv[1])
supervisor = os.getppid()
os.kill(supervisor, signal.SIGKILL)
while os.getppid() == supervisor:
    time.sleep(0.001)
time.sleep(0.3)
os.write(log, b"B" * 100); os.fsync(log)
os.write(2, b"end")
"#;

/// Runs it: what is in `data` then.
fn data(how: &str) -> String {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let mut command = sandbox.command("run --absorb *.log --pool p -- python3 -S -c");
    command
        .arg(UNHEARD)
        .arg(how)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    command.status().unwrap();
    let read = || fs::read_to_string(sandbox.file("data")).unwrap_or_default();
    for _ in 0..5000 {
        if read().ends_with("end") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    read()
}

/// Promise (programs): Forebay writes its messages to no file that came to have the number of
/// standard error.
#[test]
fn a_file_with_standard_errors_number_gets_no_word_of_forebays() {
    for how in [
        "os.close(2); assert os.open('data', os.O_RDWR | os.O_CREAT, 0o600) == 2",
        "import ctypes; c = ctypes.CDLL(None); c.close(2); assert os.open('data', os.O_RDWR | os.O_CREAT, 0o600) == 2",
        // By the kernel's number, past the C library's function.
        "import ctypes; ctypes.CDLL(None).syscall(3, 2); assert os.open('data', os.O_RDWR | os.O_CREAT, 0o600) == 2",
        "os.closerange(2, 3); d = os.open('data', os.O_RDWR | os.O_CREAT, 0o600); assert d == 2",
    ] {
        assert_eq!(data(how), "end", "{how}");
    }
}

#[test]
fn what_a_program_makes_its_standard_error_is_told() {
    for how in [
        "os.dup2(os.open('data', os.O_RDWR | os.O_CREAT, 0o600), 2)",
        "os.dup2(os.open('data', os.O_RDWR | os.O_CREAT, 0o600), 2, False)",
        "import ctypes; c = ctypes.CDLL(None); c.freopen.argtypes = [ctypes.c_char_p] * 2 + [ctypes.c_void_p]; \
         c.freopen(b'data', b'a', ctypes.c_void_p.in_dll(c, 'stderr').value)",
        // A child's is its own.
        "os.dup2(os.open('data', os.O_RDWR | os.O_CREAT, 0o600), 2); import subprocess; subprocess.run(['true'], stderr=subprocess.DEVNULL)",
    ] {
        let data = data(how);
        assert!(
            data.starts_with("forebay: the supervisor (forebay run) is gone"),
            "{how}: {data}"
        );
    }
}

/// Promise: as `a_file_with_standard_errors_number_gets_no_word_of_forebays`.
#[test]
fn a_program_without_standard_error_has_no_word_in_its_files() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let script = "import os\n\
                  assert os.open('data', os.O_RDWR | os.O_CREAT, 0o600) == 2\n\
                  os.setuid(65534)\n\
                  log = os.open('/proc/self/cwd/a.log', os.O_RDWR | os.O_CREAT, 0o600)\n\
                  os.write(log, b'A'); os.fsync(log)\n";
    sandbox.let_in();
    fs::write(sandbox.file("script.py"), script).unwrap();
    let mut command = sandbox.command("run --absorb *.log --pool p -- sh -c");
    command
        .arg("exec python3 -S script.py 2>&-")
        .env("FOREBAY_RUN_DIR", sandbox.file("run"));
    Ran::of(command.output().unwrap());
    assert_eq!(fs::read(sandbox.file("data")).unwrap(), b"");
}

/// Promise (programs): A program runs, and its status is passed on, although Forebay can say
/// nothing.
#[test]
fn a_programs_status_is_passed_on_though_nothing_can_be_said() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = sandbox.command("run --explain --absorb *.log --pool p -- sh -c");
    command
        .arg("echo A >> a.log; sync a.log; echo done; exit 7")
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .stderr(full());
    let ran = Ran::of(command.output().unwrap());
    assert_eq!((ran.code, ran.text().as_str()), (Some(7), "done\n"));
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), b"A\n");
    // Nor is a failure of another kind.
    let mut command = sandbox.command("run --absorb *.log --pool none -- true");
    let status = command.stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
