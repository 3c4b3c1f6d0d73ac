//! `forebay run` as a command: what it refuses, what it passes through, what it leaves behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    FOREBAY, Ran, Sandbox, ZEROS,
    databases::{PATIENCE, small_pool},
};
use forebay_bench::processes::Process;
use rustix::process::Signal;
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

impl Sandbox {
    /// Runs `forebay run` with a pool, these options, and `sh -c script`.
    fn script(&self, options: &str, script: &str) -> Ran {
        self.pool_once();
        let mut command = self.command(&format!("run --pool p {options} -- sh -c"));
        Ran::of(
            command
                .arg(script)
                .env("FOREBAY_RUN_DIR", self.file("run"))
                .output()
                .unwrap(),
        )
    }

    /// Runs `python3 -c script` with `*.log` absorbed into `pool`.
    fn python(&self, pool: &Path, script: &str) -> Ran {
        let mut command = self.command("run --absorb *.log --pool");
        command.arg(pool).args(["--", "python3", "-c", script]);
        Ran::of(command.output().unwrap())
    }

    /// Recovers `pool` as if the machine had been started anew.
    fn recover_in_another_boot(&self, pool: &Path) -> serde_json::Value {
        let mut command = self.command("recover --json --pool");
        command
            .arg(pool)
            .env(
                "FOREBAY_TEST_BOOT_ID",
                "00000000-0000-4000-8000-000000000001",
            )
            .env("FOREBAY_TEST_POOL_SURVIVED", "1");
        Ran::of(command.output().unwrap()).ok().json()
    }

    fn pool_once(&self) {
        if !self.file("p").exists() {
            self.pool();
        }
    }
}

#[test]
fn the_programs_output_input_and_status_are_passed_through() {
    let sandbox = Sandbox::new();
    let ran = sandbox
        .script("--absorb *.log", "echo out; echo err >&2; exit 7")
        .fails(7, &["err", "profile generic", "*.log"]);
    assert_eq!(ran.text(), "out\n");
    sandbox.script("--absorb *.log", "exit 0").ok();
    sandbox
        .script("--absorb *.log", "kill -KILL $$")
        .fails(137, &[]);
    sandbox
        .script("--absorb *.log", "kill -SEGV $$")
        .fails(139, &[]);
    let ran = sandbox.feed("run --pool p --absorb x -- cat", b"through");
    assert_eq!(ran.ok().text(), "through");
}

#[test]
fn a_program_that_cannot_be_run_has_the_status_that_shells_give() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    fs::write(sandbox.file("plain"), "text").unwrap();
    fs::write(sandbox.file("garbage"), "text").unwrap();
    fs::set_permissions(sandbox.file("garbage"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = |program: &str| sandbox.run(&format!("run --pool p --absorb x -- {program}"));
    run("no-such-program").fails(127, &["no-such-program", "PATH"]);
    run("./no-such-program").fails(127, &["there is no such program"]);
    run("./plain").fails(126, &["not executable"]);
    run("./garbage").fails(126, &["neither a program nor a script"]);
    run("/").fails(126, &["is a directory"]);
    sandbox.run("run --pool p").fails(2, &["CMD"]);
}

#[test]
fn a_static_program_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    fs::write(sandbox.file("main.c"), "int main(void) { return 0; }\n").unwrap();
    let built = Command::new("cc")
        .args(["-static", "-o", "static", "main.c"])
        .current_dir(sandbox.path())
        .status();
    assert!(built.unwrap().success());
    sandbox
        .run("run --pool p --absorb x -- ./static")
        .fails(126, &["linked statically", "Run it without forebay"]);
    fs::write(sandbox.file("script"), "#!./static\n").unwrap();
    fs::set_permissions(sandbox.file("script"), fs::Permissions::from_mode(0o755)).unwrap();
    sandbox
        .run("run --pool p --absorb x -- ./script")
        .fails(126, &["linked statically"]);
}

#[test]
fn the_profile_comes_from_the_programs_name_and_is_said() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    symlink("/bin/true", sandbox.file("redis-server")).unwrap();
    let ran = sandbox.run("run --pool p -- ./redis-server").ok();
    assert!(
        ran.stderr.contains("profile redis, absorbing *.aof"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("process crash only"), "{}", ran.stderr);
    sandbox
        .run("run --pool p -- true")
        .fails(2, &["no profile is for the program \"true\"", "--absorb"]);
    sandbox
        .run("run --pool p --profile oracle -- true")
        .fails(2, &["no profile \"oracle\"", "redis, valkey, rocksdb"]);
    sandbox.run("run --pool p --profile sqlite -- true").ok();
}

/// Goes into the background as daemons do, writes a log there, and ends with status 5, or when it is told to with 6.
const DAEMON: &str = r#"
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(6))
def background():
    if os.fork():
        os._exit(0)
background()
os.setsid()
background()
time.sleep(0.5)
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
for _ in range(9):
    os.write(fd, b"x" * 100)
    os.fdatasync(fd)
print("written", flush=True)
if len(sys.argv) > 1:
    time.sleep(30)
sys.exit(5)
"#;

#[test]
fn a_program_that_goes_into_the_background_is_absorbed_there_and_waited_for() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let mut command = sandbox.command("run --explain --absorb *.log --pool p -- python3 -c");
    let ran = Ran::of(command.arg(DAEMON).output().unwrap());
    let row = ran.stderr.lines().find(|line| line.contains("a.log"));
    let writes = row.and_then(|row| row.split_whitespace().nth(1));
    assert_eq!(writes, Some("9"), "{}", ran.stderr);
    ran.fails(5, &["went into the background", "stays until that ends"]);
}

#[test]
fn signals_go_to_what_is_left_in_the_background() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let mut command = sandbox.command("run --absorb *.log --pool p -- python3 -c");
    let mut child = command
        .args([DAEMON, "stay"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "written\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[test]
fn a_configuration_file_is_read_and_checked() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    fs::write(
        sandbox.file("good.toml"),
        "[profile.mine]\nprograms = [\"true\"]\nabsorb = [\"*.wal\"]\n",
    )
    .unwrap();
    let ran = sandbox.run("run --pool p --config good.toml -- true").ok();
    assert!(
        ran.stderr.contains("profile mine, absorbing *.wal"),
        "{}",
        ran.stderr
    );
    fs::write(
        sandbox.file("bad.toml"),
        "[profile.mine]\nabsorb = [\"*.wal\"]\nbuffer = 3\n",
    )
    .unwrap();
    sandbox
        .run("run --pool p --config bad.toml -- true")
        .fails(2, &["bad.toml, line 3", "buffer"]);
    sandbox
        .run("run --pool p --config none.toml -- true")
        .fails(1, &["none.toml"]);
}

#[test]
fn without_a_pool_or_with_one_that_is_none_it_says_what_to_do() {
    let sandbox = Sandbox::new();
    sandbox
        .run("run --absorb x -- true")
        .fails(2, &["--pool", "--emulated 64MiB"]);
    sandbox
        .run("run --pool p --emulated 1MiB --absorb x -- true")
        .fails(2, &["cannot be used with"]);
    sandbox
        .run("run --pool nowhere --absorb x -- true")
        .fails(1, &["there is no pool nowhere", "forebay pool create"]);
    fs::write(sandbox.file("foreign"), vec![7; 1 << 20]).unwrap();
    sandbox
        .run("run --pool foreign --absorb x -- true")
        .fails(1, &["not a Forebay pool"]);
    assert_eq!(fs::read(sandbox.file("foreign")).unwrap(), vec![7; 1 << 20]);
    let mut command = sandbox.command("run --absorb x --pool p -- true");
    sandbox.pool();
    Ran::of(
        command
            .env("FOREBAY_LIBRARY", "/nowhere.so")
            .output()
            .unwrap(),
    )
    .fails(1, &["/nowhere.so"]);
}

#[test]
fn signals_are_passed_on_and_the_program_decides() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let script = r#"
        trap 'echo usr1' USR1; trap 'echo hup' HUP; trap 'echo term; exit 3' TERM
        echo ready
        while :; do sleep 0.02; done
    "#;
    // A shell cannot trap what it was started with ignored, and under nohup that is SIGHUP.
    let mut process = Process::spawn(
        Command::new("env")
            .args(["--default-signal=USR1,HUP,TERM", FOREBAY])
            .args([
                "run", "--pool", "p", "--absorb", "x", "--", "sh", "-c", script,
            ])
            .current_dir(sandbox.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    )
    .unwrap();
    let mut said = BufReader::new(process.child().stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert_eq!(said.next().unwrap(), "ready");
    for (signal, answer) in [
        (Signal::USR1, "usr1"),
        (Signal::HUP, "hup"),
        (Signal::TERM, "term"),
    ] {
        process.handle().signal(signal);
        assert_eq!(said.next().unwrap(), answer);
    }
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(3));
}

#[test]
fn the_program_starts_with_the_signals_of_its_caller() {
    let sandbox = Sandbox::new();
    let blocked = |ran: Ran| {
        let text = ran.ok().text();
        let line = text
            .lines()
            .find(|line| line.starts_with("SigBlk"))
            .unwrap()
            .to_owned();
        let ignored = text
            .lines()
            .find(|line| line.starts_with("SigIgn"))
            .unwrap()
            .to_owned();
        (line, ignored)
    };
    let plain = Ran::of(
        Command::new("cat")
            .arg("/proc/self/status")
            .output()
            .unwrap(),
    );
    sandbox.pool();
    let under = sandbox.run("run --pool p --absorb x -- cat /proc/self/status");
    assert_eq!(blocked(under), blocked(plain));
}

#[test]
fn an_emulated_pool_is_kept_from_run_to_run() {
    // Named after the user: not touched if somebody uses it.
    let path = format!(
        "/dev/shm/forebay-{}.pool",
        rustix::process::getuid().as_raw()
    );
    if Path::new(&path).exists() {
        println!("skipped: {path} is there already");
        return;
    }
    let sandbox = Sandbox::new();
    let run = || sandbox.run("run --emulated 2MiB --absorb x -- true").ok();
    assert!(run().stderr.contains(&path));
    run();
    sandbox
        .run("run --emulated 4MiB --absorb x -- true")
        .fails(1, &["2 MiB, not 4 MiB", "forebay recover"]);
    fs::remove_file(path).unwrap();
}

#[test]
fn absorbed_writes_are_counted_and_the_files_are_as_they_would_be() {
    let sandbox = Sandbox::new();
    let script = format!(
        "{ZEROS} a.log 100 50; \
         dd if=/dev/zero of=b.txt bs=100 count=3 conv=fsync 2>/dev/null; wc -c < a.log"
    );
    let ran = sandbox.script("--absorb *.log --explain", &script).ok();
    assert_eq!(ran.text().trim(), "5000");
    let line = ran
        .stderr
        .lines()
        .find(|line| line.contains("a.log"))
        .unwrap_or_else(|| panic!("{}", ran.stderr));
    assert!(line.contains("50") && line.contains("4.9 KiB"), "{line}");
    assert!(!ran.stderr.contains("b.txt"), "{}", ran.stderr);
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), vec![0; 5000]);
}

#[test]
fn what_an_earlier_run_left_is_recovered_first() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let write = "echo acknowledged > a.log; sync a.log; kill -KILL $PPID; kill -KILL $$";
    let run = |script: &str| {
        let mut command = sandbox.command("run --absorb *.log --pool");
        Ran::of(
            command
                .arg(pool.path())
                .args(["--", "sh", "-c", script])
                .output()
                .unwrap(),
        )
    };
    let _ = run(write);
    let ran = run("cat a.log").ok();
    assert_eq!(ran.text(), "acknowledged\n");
    run("true").ok();
}

#[test]
fn nothing_to_recover_is_no_error_and_no_pool_is_one() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let report = sandbox.run("recover --pool p --json").ok().json();
    assert_eq!(report["done"], true);
    assert!(
        sandbox
            .run("recover --pool p")
            .ok()
            .text()
            .contains("nothing to recover")
    );
    sandbox.run("recover --pool nowhere").fails(1, &["nowhere"]);
    sandbox
        .run("recover --pool p --force --discard")
        .fails(2, &["cannot be used with"]);
    let mut status = sandbox.command("status --json");
    let none = Ran::of(
        status
            .env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .output()
            .unwrap(),
    )
    .ok();
    assert_eq!(none.json(), serde_json::json!([]));
}

/// Absorbs `a.log`; then its supervisor is killed, it is unlinked, and new files are made until one has the inode it had.
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
fn a_new_file_is_not_taken_for_an_unlinked_one_whose_inode_it_has() {
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

/// Absorbs `a.log` and passes its descriptor through a socket; who receives it writes over what was written first.
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
fn what_another_process_wrote_by_a_descriptor_passed_to_it_is_not_overwritten_by_recovery() {
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
fn a_program_that_changes_its_buffer_while_it_is_absorbed_leaves_no_damaged_pool() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let ran = sandbox.python(pool.path(), CHANGING);
    assert_eq!(ran.code, None, "{}", ran.stderr);
    let report = sandbox.recover_in_another_boot(pool.path());
    assert!(!report["lanes"].as_array().unwrap().is_empty(), "{report}");
}

#[test]
fn a_program_with_file_capabilities_is_refused_unless_they_give_it_nothing() {
    const NOBODY: u32 = 65534;
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can give a program capabilities");
        return;
    }
    let sandbox = Sandbox::new();
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = sandbox.file("program");
    common::copy("/bin/true", &program);
    // Revision 2, in effect; permitted: CAP_NET_BIND_SERVICE.
    let capabilities: Vec<u8> = [0x0200_0001_u32, 1 << 10, 0, 0, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(&program, "security.capability", &capabilities, flags)
    {
        println!("skipped: this file system keeps no capabilities ({error})");
        return;
    }
    // The program under test may lie where nobody else can go.
    let forebay = sandbox.file("forebay");
    common::copy(FOREBAY, &forebay);
    let mut command = Command::new(&forebay);
    command
        .args(["run", "--pool", "p", "--absorb", "x", "--"])
        .arg(&program)
        .current_dir(sandbox.path())
        .uid(NOBODY)
        .gid(NOBODY);
    Ran::of(command.output().unwrap()).fails(126, &["has file capabilities", "run a copy"]);
    sandbox.pool();
    sandbox.run("run --pool p --absorb x -- ./program").ok();
}

#[test]
fn a_stop_stops_both_and_a_continue_continues_both() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let script = "echo ready; while :; do sleep 0.02; done";
    let mut process = Process::spawn(
        Command::new(FOREBAY)
            .args([
                "run", "--pool", "p", "--absorb", "x", "--", "sh", "-c", script,
            ])
            // A job of ours: the kernel stops nobody in a process group that has no parent.
            .process_group(0)
            .current_dir(sandbox.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    )
    .unwrap();
    let mut said = BufReader::new(process.child().stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    let program = process.first_child(PATIENCE).unwrap();
    let pids = [process.handle().pid(), program.pid()];
    let are_stopped = |wanted: bool| {
        let stat = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let is = |pid| stat(pid).rsplit_once(") ").unwrap().1.starts_with('T');
        let until = Instant::now() + PATIENCE;
        while pids.iter().any(|pid| is(*pid) != wanted) {
            assert!(Instant::now() < until, "{:?}", pids.map(stat));
            thread::sleep(Duration::from_millis(5));
        }
    };
    process.handle().signal(Signal::TSTP);
    are_stopped(true);
    process.handle().signal(Signal::CONT);
    are_stopped(false);
    process.handle().signal(Signal::TERM);
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(143));
}

#[test]
fn a_pool_without_room_for_one_process_is_refused() {
    let sandbox = Sandbox::new();
    sandbox
        .run("pool create p --emulated --size 9MiB --segment-size 4MiB")
        .ok();
    sandbox
        .run("run --pool p --absorb x --buffers 3 -- true")
        .fails(1, &["2 free segments of 4 MiB", "needs 3", "--buffers"]);
    sandbox.run("run --pool p --absorb x -- true").ok();
}

/// What is left in the pool after `script` wrote to `a.log` and all of its run was killed, with its data cut off as by a power cut.
fn left_by(sandbox: &Sandbox, pool: &Path, script: &str) {
    // The program kills its supervisor and itself.
    let script = format!(
        "import ctypes, os, signal, time\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         is_x86 = os.uname().machine == 'x86_64'\n\
         SYS_utimensat, SYS_linkat = (280, 265) if is_x86 else (88, 37)\n\
         fd = os.open('a.log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n\
         os.write(fd, b'acknowledged')\nos.fsync(fd)\n\
         time.sleep(0.3)\n\
         {script}\n\
         os.kill(os.getppid(), signal.SIGKILL)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    );
    sandbox.python(pool, &script);
    // The supervisor's death is what was waited for; the program's follows it.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let status = sandbox
            .run(&format!("pool status {} --json", pool.display()))
            .ok();
        if !status.text().contains("\"in_use\": true") {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    for name in ["a.log", "b.log", "d/a.log"] {
        let path = sandbox.file(name);
        if let Ok(file) = fs::File::options().write(true).open(path) {
            let times = file.metadata().unwrap().modified().unwrap();
            file.set_len(0).unwrap();
            file.set_modified(times).unwrap();
        }
    }
}

#[test]
fn calls_that_move_a_files_time_or_names_are_followed_into_the_pool() {
    for (script, name) in [
        // A buffer that is not there.
        (
            "assert libc.write(fd, ctypes.c_void_p(1), 100) == -1",
            "a.log",
        ),
        // FALLOC_FL_KEEP_SIZE
        (
            "assert libc.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(1 << 16)) == 0",
            "a.log",
        ),
        ("os.utime(fd, (2e9, 2e9))", "a.log"),
        ("os.utime('a.log', (2e9, 2e9))", "a.log"),
        (
            "os.utime('a.log', (2e9, 2e9), follow_symlinks=False)",
            "a.log",
        ),
        // By their numbers, too.
        (
            "libc.syscall(SYS_utimensat, fd, None, (ctypes.c_int64 * 4)(*[2000000000, 0] * 2), 0)",
            "a.log",
        ),
        (
            "libc.syscall(SYS_utimensat, -100, b'a.log', (ctypes.c_int64 * 4)(*[2000000000, 0] * 2), 0)",
            "a.log",
        ),
        (
            "libc.syscall(SYS_linkat, -100, b'a.log', -100, b'b.log', 0); os.unlink('a.log')",
            "b.log",
        ),
        (
            "libc.syscall(86, b'a.log', b'b.log') if is_x86 else os.link('a.log', 'b.log'); os.unlink('a.log')",
            "b.log",
        ),
        ("os.link('a.log', 'b.log'); os.unlink('a.log')", "b.log"),
        ("os.mkdir('d'); os.rename('a.log', 'd/a.log')", "d/a.log"),
    ] {
        let sandbox = Sandbox::new();
        let pool = small_pool();
        left_by(&sandbox, pool.path(), script);
        assert_eq!(fs::read(sandbox.file(name)).unwrap(), b"", "{script}");
        let report = sandbox.recover_in_another_boot(pool.path());
        assert_eq!(
            report["lanes"][0]["outcome"], "replayed",
            "{script}: {report}"
        );
        assert_eq!(
            fs::read(sandbox.file(name)).unwrap(),
            b"acknowledged",
            "{script}"
        );
    }
}

#[test]
fn an_emulated_pool_of_another_boot_keeps_a_run_from_starting_and_says_what_to_do() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    left_by(&sandbox, pool.path(), "");
    let run = || {
        let mut command = sandbox.command("run --absorb *.log --pool");
        command.arg(pool.path()).args(["--", "true"]);
        command.env(
            "FOREBAY_TEST_BOOT_ID",
            "00000000-0000-4000-8000-000000000001",
        );
        Ran::of(command.output().unwrap())
    };
    run().fails(
        1,
        &["emulated", "forebay recover --pool", "--discard", "--force"],
    );
    assert_eq!(fs::read(sandbox.file("a.log")).unwrap(), b"");
    sandbox
        .run(&format!(
            "recover --pool {} --discard",
            pool.path().display()
        ))
        .ok();
    run().ok();
}
