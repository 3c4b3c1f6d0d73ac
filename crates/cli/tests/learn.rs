//! `forebay learn`: it counts what a program syncs, whatever the program is, and changes nothing of
//! it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{FOREBAY, Sandbox, build, databases::PATIENCE, have, root_can};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Appends and syncs, writes pages here and there, writes with O_DSYNC in a child, syncs a
/// directory, and replaces a small file.
const WRITER: &str = "import os, sys
log = os.open('app.000012.log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for at in range(60):
    os.write(log, b'x' * 100); os.fdatasync(log)
pages = os.open('data.db', os.O_RDWR | os.O_CREAT)
os.ftruncate(pages, 1 << 20)
for at in range(20):
    os.pwrite(pages, b'p' * 4096, at * 7919 % 64 * 4096); os.fsync(pages)
if os.fork() == 0:
    journal = os.open('s.journal', os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
    for at in range(30): os.write(journal, b'j' * 512)
    os._exit(0)
os.wait()
state = os.open('state.new', os.O_WRONLY | os.O_CREAT)
os.write(state, b's'); os.fsync(state); os.rename('state.new', 'state')
os.fsync(os.open('.', os.O_RDONLY))
os.sync()
sys.exit(7)";

fn learn(sandbox: &Sandbox) -> Command {
    let mut command = Command::new(FOREBAY);
    command
        .current_dir(sandbox.path())
        .args(["learn", "--json", "--output", "report"]);
    command
}

fn report(sandbox: &Sandbox) -> Value {
    serde_json::from_slice(&fs::read(sandbox.file("report")).unwrap()).unwrap()
}

/// The row of the files with this pattern.
#[track_caller]
fn row<'a>(report: &'a Value, pattern: &str) -> &'a Value {
    let rows = report["files"].as_array().unwrap();
    let found = rows.iter().find(|row| row["pattern"] == pattern);
    found.unwrap_or_else(|| panic!("no {pattern} in {report:#}"))
}

#[test]
fn every_sync_is_counted_and_its_file_judged() {
    let sandbox = Sandbox::on_disk();
    let mut command = learn(&sandbox);
    let ended = command
        .args(["--beside", ".", "--", "python3", "-c", WRITER])
        .status()
        .unwrap();
    assert_eq!(ended.code(), Some(7), "the program's status");
    let report = report(&sandbox);
    for (pattern, syncs, written, learned) in [
        ("app.[0-9]*.log", 60, "appended", "log"),
        ("s.journal", 30, "appended", "log"),
        ("data.db", 20, "in place", "pages"),
        ("state.new", 1, "appended", "short-lived"),
    ] {
        let row = row(&report, pattern);
        assert_eq!(row["syncs"], syncs, "{row:#}");
        assert_eq!(row["written"], written, "{row:#}");
        assert_eq!(row["under_forebay_run"], learned, "{row:#}");
    }
    assert_eq!(report["syncs"], 60 + 30 + 20 + 1 + 1 + 1, "{report:#}");
    assert_eq!(report["whole_file_system_syncs"], 1, "{report:#}");
    assert_eq!(report["gaining_syncs"], 90, "{report:#}");
    let pools = report["pools"].as_array().unwrap();
    assert_eq!(pools[0]["place"], "in memory");
    for pool in pools {
        let (each, all) = (pool["commit_us"].as_f64(), pool["seconds"].as_f64());
        assert!(each.unwrap() > 0.0, "{report:#}");
        assert!((each.unwrap() * 90e-6 - all.unwrap()).abs() < 1e-9);
    }
    assert_eq!(pools.len(), 2, "{report:#}");
}

#[test]
fn what_was_learned_is_a_profile_for_a_run() {
    let sandbox = Sandbox::on_disk();
    let mut command = learn(&sandbox);
    command.args(["--write", "app.toml", "--", "python3", "-c", WRITER]);
    assert_eq!(command.status().unwrap().code(), Some(7));
    for file in ["app.000012.log", "s.journal"] {
        fs::remove_file(sandbox.file(file)).unwrap();
    }
    fs::write(sandbox.file("writer.py"), WRITER).unwrap();
    let ran = sandbox.run("run --emulated 16MiB --config app.toml --explain -- python3 writer.py");
    let said = ran.fails(7, &["app.000012.log"]).stderr;
    assert!(said.contains("s.journal"), "{said}");
    assert!(!said.contains("data.db"), "{said}");
}

#[test]
fn threads_signals_and_an_exec_by_a_thread_go_on() {
    let sandbox = Sandbox::on_disk();
    build("learned", sandbox.path());
    let program = sandbox.file("learned");
    let mut command = learn(&sandbox);
    let ran = command.arg("--").arg(&program).arg("log").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert_eq!(said, "signals came\nexecuted\n");
    assert_eq!(ran.status.code(), Some(6));
    let report = report(&sandbox);
    let threads = row(&report, "log.[0-9]*");
    assert_eq!(
        (&threads["files"], &threads["syncs"]),
        (&4.into(), &100.into()),
        "{report:#}"
    );
    assert_eq!(row(&report, "log")["syncs"], 25, "{report:#}");
}

#[test]
fn a_static_program_is_seen_too() {
    if !have("busybox") {
        return;
    }
    let sandbox = Sandbox::on_disk();
    let mut command = learn(&sandbox);
    let script =
        "for at in 1 2 3 4 5 6 7 8 9 10; do echo $at >> a.log; busybox sync -d a.log; done";
    let ended = command
        .args(["--", "busybox", "sh", "-c", script])
        .status()
        .unwrap();
    assert!(ended.success());
    let report = report(&sandbox);
    assert_eq!(row(&report, "a.log")["syncs"], 10, "{report:#}");
}

/// A program that appends for ever, and says each number that is durable.
fn endless(sandbox: &Sandbox) -> (Child, impl FnMut() -> u64) {
    let script = "import os
log = os.open('endless.log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
at = 0
while True:
    at += 1
    os.write(log, b'%d\\n' % at); os.fdatasync(log); print(at, flush=True)";
    let mut command = Command::new("python3");
    command.args(["-c", script]).current_dir(sandbox.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, move || {
        lines.next().unwrap().unwrap().parse().unwrap()
    })
}

#[test]
fn a_running_program_is_looked_at_and_goes_on() {
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if matches!(yama.trim(), "1" | "2" | "3") && !root_can("look at a process that is no child") {
        return;
    }
    let sandbox = Sandbox::on_disk();
    let (mut child, mut next) = endless(&sandbox);
    let before = next();
    let mut command = learn(&sandbox);
    let looked = command.args(["--seconds", "1", "--pid", &child.id().to_string()]);
    let mut looked = looked.spawn().unwrap();
    let mut last = before;
    let begun = Instant::now();
    while looked.try_wait().unwrap().is_none() {
        last = next();
        assert!(begun.elapsed() < PATIENCE);
    }
    // The pipe may have had these; not a thousand more.
    for _ in 0..1000 {
        last = next();
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(looked.wait().unwrap().success());
    assert!(status.contains("TracerPid:\t0\n"), "{status}");
    let report = report(&sandbox);
    let syncs = row(&report, "endless.log")["syncs"].as_u64().unwrap();
    assert!(syncs > 0 && syncs < last, "{syncs} of {last}");
}

#[test]
fn busy_threads_hold_no_interrupt_up() {
    let sandbox = Sandbox::on_disk();
    // Without waits between its calls, whose each one stops it.
    let script = "import os, threading
def spin():
    while True: os.stat('.')
for at in range(6): threading.Thread(target=spin).start()
log = os.open('a.log', os.O_WRONLY | os.O_CREAT)
print(1, flush=True)
while True: os.pwrite(log, b'x', 0); os.fdatasync(log)";
    let mut busy = Command::new("python3");
    busy.args(["-c", script]).current_dir(sandbox.path());
    let mut busy = busy.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(busy.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "1");
    let mut command = learn(&sandbox);
    let looked = command.args(["--seconds", "1", "--pid", &busy.id().to_string()]);
    let begun = Instant::now();
    let looked = looked.status().unwrap();
    let took = begun.elapsed();
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert!(looked.success() || !rustix::process::geteuid().is_root());
    assert!(took < PATIENCE, "{took:?}");
}

#[test]
fn a_daemon_is_followed_until_an_interrupt() {
    let sandbox = Sandbox::on_disk();
    let script = "import os, time
if os.fork(): os._exit(0)
os.setsid()
log = os.open('d.log', os.O_WRONLY | os.O_CREAT)
for at in range(9): os.write(log, b'x'); os.fsync(log)
open('ready', 'w').close()
time.sleep(1000)";
    let mut learned = learn(&sandbox);
    let mut learned = learned
        .args(["--", "python3", "-c", script])
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !sandbox.file("ready").exists() {
        assert!(begun.elapsed() < PATIENCE, "no daemon");
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(100));
    let interrupted = Command::new("kill")
        .args(["-INT", &learned.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    assert!(
        learned.wait().unwrap().success(),
        "the first process's status"
    );
    assert_eq!(row(&report(&sandbox), "d.log")["syncs"], 9);
}

#[test]
fn a_pattern_that_names_pages_is_not_suggested() {
    let sandbox = Sandbox::on_disk();
    let script = "import os
log = os.open('17', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for at in range(9): os.write(log, b'x'); os.fsync(log)
pages = os.open('18', os.O_RDWR | os.O_CREAT)
os.ftruncate(pages, 1 << 20)
for at in range(20): os.pwrite(pages, b'p' * 4096, at * 7919 % 64 * 4096)";
    let mut command = learn(&sandbox);
    let ended = command
        .args(["--write", "p.toml", "--", "python3", "-c", script])
        .status();
    assert!(ended.unwrap().success());
    let report = report(&sandbox);
    let uses: Vec<&Value> = report["files"].as_array().unwrap().iter().collect();
    assert!(
        uses.iter()
            .any(|row| row["under_forebay_run"] == "ambiguous"),
        "{report:#}"
    );
    assert_eq!(report["gaining_syncs"], 0);
    assert!(!sandbox.file("p.toml").exists(), "a profile of nothing");
}

#[test]
fn a_stopped_program_stays_stopped_until_continued() {
    let sandbox = Sandbox::on_disk();
    let script = "import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
log = os.open('a.log', os.O_WRONLY | os.O_CREAT)
os.write(log, b'x'); os.fsync(log)";
    let mut learned = learn(&sandbox);
    let mut learned = learned
        .args(["--", "python3", "-c", script])
        .spawn()
        .unwrap();
    let program = child_of(learned.id());
    // A tracee that is stopped looks like one that its tracer holds for a moment.
    let begun = Instant::now();
    let mut stopped = 0;
    while stopped < 50 {
        let is_stopped = matches!(state(program), Some('T' | 't'));
        stopped = if is_stopped { stopped + 1 } else { 0 };
        assert!(begun.elapsed() < PATIENCE, "it never stopped");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!sandbox.file("a.log").exists());
    let go_on = Command::new("kill")
        .args(["-CONT", &program.to_string()])
        .status();
    assert!(go_on.unwrap().success());
    assert!(learned.wait().unwrap().success());
    assert_eq!(row(&report(&sandbox), "a.log")["syncs"], 1);
}

#[test]
fn a_killed_learner_takes_its_program_along() {
    // Below the filter, without a tracer, its fsync would fail: rather none than that.
    let sandbox = Sandbox::on_disk();
    let mut learned = learn(&sandbox);
    let mut learned = learned.args(["--", "sleep", "1000"]).spawn().unwrap();
    let program = child_of(learned.id());
    learned.kill().unwrap();
    assert_eq!(learned.wait().unwrap().signal(), Some(9));
    let begun = Instant::now();
    while Path::new(&format!("/proc/{program}")).exists() && state(program) != Some('Z') {
        assert!(begun.elapsed() < PATIENCE, "{program} still runs");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_cannot_be_looked_at_is_said_and_leaves_no_file() {
    let sandbox = Sandbox::new();
    let none = sandbox.run("learn --write p.toml -- nonesuch");
    none.fails(127, &["nonesuch", "No such file"]);
    assert!(!sandbox.file("p.toml").exists());
    let none = sandbox.run("learn --pid 2147483646");
    none.fails(1, &["there is no process 2147483646"]);
    fs::write(sandbox.file("there"), "kept").unwrap();
    let none = sandbox.run("learn --write there -- true");
    none.fails(2, &["there exists"]);
    assert_eq!(fs::read_to_string(sandbox.file("there")).unwrap(), "kept");
    let none = sandbox.run("learn");
    none.fails(2, &["CMD"]);
}

/// The first child of a process, once it has one.
fn child_of(parent: u32) -> u32 {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let begun = Instant::now();
    loop {
        let children = fs::read_to_string(&path).unwrap_or_default();
        let program = children.split_whitespace().find(|child| {
            // Not the child that only tries the filter.
            let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            name != "forebay\n" && !name.is_empty()
        });
        if let Some(program) = program {
            return program.parse().unwrap();
        }
        assert!(begun.elapsed() < PATIENCE, "{parent} has no child");
        thread::sleep(Duration::from_millis(5));
    }
}

fn state(process: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
