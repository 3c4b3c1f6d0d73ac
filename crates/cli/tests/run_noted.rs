//! For how long `forebay status` counts a run's flash cache in: while its program runs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{FOREBAY, Ran, Sandbox, databases::boot_anew};
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
    io::Errno,
};
use std::{fs, mem::MaybeUninit, os::fd::OwnedFd, process::Command};

/// The directory of the runs, watched.
struct Runs(OwnedFd);

impl Runs {
    fn watch(sandbox: &Sandbox) -> Self {
        let dir = sandbox.file("run");
        fs::create_dir(&dir).unwrap();
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, dir, WatchFlags::CREATE | WatchFlags::DELETE).unwrap();
        Self(watch)
    }

    /// Files that came into it (true), and that went, until now.
    fn events(&self) -> Vec<(bool, String)> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().unwrap().to_str().unwrap();
                    events.push((event.events().contains(ReadFlags::CREATE), name.to_owned()));
                }
                Err(error) => {
                    assert_eq!(error, Errno::AGAIN);
                    return events;
                }
            }
        }
    }
}

fn is_flash((_, name): &(bool, String)) -> bool {
    name.ends_with(".flash")
}

/// `sh` as a server with a pool and a flash cache.
fn run(sandbox: &Sandbox, script: &str) -> Command {
    let line =
        "run --absorb *.log --pool p --profile mariadb --flash f --flash-size 16MiB -- sh -c";
    let mut command = sandbox.command(line);
    command.arg(script).env("FOREBAY", FOREBAY);
    command.env("FOREBAY_RUN_DIR", sandbox.file("run"));
    command
}

#[test]
fn a_flash_cache_is_noted_only_while_its_program_runs() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let runs = Runs::watch(&sandbox);
    let absorbs = "import os; fd = os.open('a.log', os.O_WRONLY | os.O_CREAT); os.fsync(fd); os.write(fd, b'a'); os.fsync(fd)";
    let ran = run(&sandbox, &format!("ls run && python3 -c \"{absorbs}\"")).output();
    let during = Ran::of(ran.unwrap()).ok().text();
    assert!(during.contains(".flash"), "{during}");
    let events = runs.events();
    let at = |came| {
        let find = |event: &(bool, String)| event.0 == came && is_flash(event);
        events.iter().position(find).unwrap()
    };
    let supervisor = |came| {
        let find = |event: &(bool, String)| event.0 == came && !is_flash(event);
        events.iter().position(find).unwrap()
    };
    // The supervisor is there before the program, and until the files have what it wrote.
    assert!(supervisor(true) < at(true), "{events:?}");
    assert!(at(false) < supervisor(false), "{events:?}");

    // A run that has to recover its pool first, and cannot, after a reboot.
    let killed =
        format!("{absorbs}; import signal; os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)");
    let killed = run(&sandbox, &format!("exec python3 -c \"{killed}\"")).output();
    assert!(!killed.unwrap().status.success());
    fs::remove_file(sandbox.file("a.log")).unwrap();
    runs.events();
    let mut environment = Vec::new();
    boot_anew(&mut environment, 1);
    let refused = run(&sandbox, "true").envs(environment).output();
    Ran::of(refused.unwrap()).fails(1, &["cannot be brought to their files"]);
    let events = runs.events();
    assert!(!events.iter().any(is_flash), "{events:?}");
}

#[test]
fn a_flash_cache_is_found_when_its_runs_note_is_gone() {
    let sandbox = Sandbox::new();
    let line = "run --profile mariadb --flash f --flash-size 16MiB -- sh -c";
    let script = r#"rm -r run && unset FOREBAY_RUN_DIR && { "$FOREBAY" flash status; "$FOREBAY" status; true; }"#;
    let mut command = sandbox.command(line);
    command.arg(script).env("FOREBAY", FOREBAY);
    let ran = command.env("FOREBAY_RUN_DIR", sandbox.file("run")).output();
    let said = Ran::of(ran.unwrap()).ok().text();
    let cache = format!("the flash cache {}", sandbox.file("f").display());
    assert_eq!(said.matches(&cache).count(), 2, "{said}");
}

/// Absorbs a log, lets what started it be killed, and goes on until the status says that the
/// program has ended.
const LEFT: &str = r#"
import os, subprocess, time
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, b"x" * 100)
os.fdatasync(fd)
open("absorbed", "w").close()
limit = time.monotonic() + 60
while time.monotonic() < limit:
    shown = subprocess.run([os.environ["FOREBAY"], "flash", "status"], capture_output=True)
    if b"its program has ended" in shown.stdout:
        os.write(1, b"ended, %d" % shown.returncode)
        break
    time.sleep(0.05)
"#;

#[test]
fn a_run_is_noted_as_ended_while_its_programs_rest_is_awaited() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    fs::create_dir(sandbox.file("run")).unwrap();
    let script =
        r#"python3 -c "$0" & while ! test -e absorbed; do sleep 0.01; done; kill -KILL $$"#;
    let ran = run(&sandbox, script).arg(LEFT).output().unwrap();
    let ran = Ran::of(ran).fails(137, &[]);
    assert_eq!(ran.text(), "ended, 0");
}
