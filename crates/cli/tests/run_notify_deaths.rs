//! An agent that is killed, a supervisor that is killed, both with the program: the program goes on
//! with real syncs, each call of it happens once, and nothing that was acknowledged is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    databases::{PATIENCE, boot_anew, moment, small_pool},
};
use forebay_bench::{
    data::{Random, fresh_seed},
    processes::Process,
    scratch::ScratchPool,
};
use rustix::process::Signal;
use std::{
    fs::{self, File},
    io::Read,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// `goes-on` of `programs/calls.c` writes so many lines, ends with this status, and says each line
/// when it is synced.
const LINES: usize = 200;
const STATUS: i32 = 42;

struct Running {
    sandbox: Sandbox,
    pool: ScratchPool,
    run: Process,
    agent: i32,
}

/// Starts it, and waits until it writes.
fn start(kind: &str) -> Running {
    start_with(kind, "", 3)
}

/// The same with an agent that dies at a failpoint, once there are so many lines.
fn start_with(kind: &str, failpoint: &str, lines: usize) -> Running {
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/calls.c");
    let mut compiler = Command::new("cc");
    let options = ["-O1", "-static", "-pthread", "-o", "calls", source];
    let built = compiler.args(options).current_dir(sandbox.path());
    assert!(built.status().unwrap().success());
    let mut environment = Vec::new();
    boot_anew(&mut environment, 1);
    let mut command = sandbox.command("run --front-end notify --absorb *.log --pool");
    command
        .arg(pool.path())
        .args(["--", "./calls", "goes-on", kind])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_FAILPOINT", failpoint)
        .envs(environment)
        .stdout(File::create(sandbox.file("said")).unwrap())
        .stderr(File::create(sandbox.file("errors")).unwrap())
        .stdin(Stdio::null());
    let run = Process::spawn(&mut command).unwrap();
    let begun = Instant::now();
    let agent = loop {
        if let [agent, ..] = children(run.handle().pid())[..] {
            break agent;
        }
        assert!(begun.elapsed() < PATIENCE, "no agent");
        thread::sleep(Duration::from_millis(1));
    };
    let running = Running {
        sandbox,
        pool,
        run,
        agent,
    };
    running.outlast_lines(lines);
    running
}

impl Running {
    /// The lines that were said to be synced.
    fn said(&self) -> usize {
        let said = fs::read_to_string(self.sandbox.file("said")).unwrap();
        said.lines().count()
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.sandbox.file("errors")).unwrap()
    }

    fn outlast_lines(&self, lines: usize) {
        let begun = Instant::now();
        while self.said() < lines {
            assert!(
                begun.elapsed() < PATIENCE,
                "{} lines: {}",
                self.said(),
                self.errors()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// All that was said is in the log, in its order and once.
    #[track_caller]
    fn check(&self) {
        let mut log = String::new();
        let mut file = File::open(self.sandbox.file("a.log")).unwrap();
        file.read_to_string(&mut log).unwrap();
        let lines = log.lines().count();
        let wanted: String = (0..lines).map(|line| format!("{line}\n")).collect();
        assert_eq!(log, wanted, "{}", self.errors());
        assert!(lines >= self.said(), "{lines} of {}", self.said());
    }

    /// A recovery in this boot, or another.
    fn recover(&self, boot: usize) {
        let mut environment = Vec::new();
        boot_anew(&mut environment, boot);
        let mut recover = self.sandbox.command("recover --pool");
        recover.arg(self.pool.path()).envs(environment);
        let ran = Ran::of(recover.output().unwrap());
        assert_eq!(ran.code, Some(0), "{}\n{}", ran.stderr, self.errors());
    }
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// Promise (programs): A program whose agent is killed goes on, ends with its own status, and has
/// each of its writes once.
#[test]
fn a_program_goes_on_when_its_agent_is_killed() {
    let mut random = Random::new(fresh_seed());
    for round in 0..8 {
        let kind = if round % 2 == 0 { "plain" } else { "dsync" };
        let mut running = start(kind);
        thread::sleep(moment(&mut random, 150));
        kill(running.agent);
        let status = running.run.wait(PATIENCE).unwrap();
        assert_eq!(status.code(), Some(STATUS), "{}", running.errors());
        assert_eq!(running.said(), LINES);
        running.check();
        running.recover(2);
        running.check();
    }
}

/// Promise: as `a_program_goes_on_when_its_agent_is_killed`.
#[test]
fn each_call_happens_once_wherever_the_agent_dies() {
    let passes = |name: &'static str, first: usize, last: usize| {
        (first..=last).map(move |pass| format!("{name}={pass}:die"))
    };
    // Each kind of call of the program, before its answer is noted and before it is sent; files
    // that are opened and not given; bytes that are written and not logged.
    let failpoints = passes("notify:done", 20, 30)
        .chain(passes("notify:answer", 20, 30))
        .chain(passes("notify:opened", 3, 4))
        .chain(passes("files:unlogged", 5, 7));
    for (failpoint, kind) in failpoints.zip(["plain", "dsync"].into_iter().cycle()) {
        let mut running = start_with(kind, &failpoint, 0);
        let status = running.run.wait(PATIENCE).unwrap();
        assert!(
            running.errors().contains("agent has died"),
            "{failpoint} was not passed"
        );
        assert_eq!(
            status.code(),
            Some(STATUS),
            "{failpoint}: {}",
            running.errors()
        );
        running.check();
        running.recover(2);
        running.check();
    }
}

/// Promise (programs): A program whose supervisor is killed goes on by its agent, with real syncs.
#[test]
fn a_program_goes_on_when_its_supervisor_is_killed() {
    let mut random = Random::new(fresh_seed());
    for boot in [1, 2] {
        let mut running = start("plain");
        thread::sleep(moment(&mut random, 150));
        running.run.child().kill().unwrap();
        running.outlast_lines(LINES);
        running.check();
        running.recover(boot);
        running.check();
    }
}

#[test]
fn nothing_is_lost_when_all_are_killed_at_any_moment() {
    let mut random = Random::new(fresh_seed());
    for round in 0..8 {
        let running = start(if round % 2 == 0 { "plain" } else { "dsync" });
        let program = children(running.agent);
        thread::sleep(moment(&mut random, 150));
        if round % 4 >= 2 {
            kill(running.agent);
            thread::sleep(moment(&mut random, 50));
        }
        let run = running.run.handle().pid();
        for pid in program.into_iter().chain([run, running.agent]) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        thread::sleep(Duration::from_millis(50));
        running.recover(2);
        running.check();
    }
}

fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}
