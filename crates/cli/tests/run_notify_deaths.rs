//! An agent that is killed, a supervisor that is killed, both with the program: the program goes on
//! with real syncs, each call of it happens once, and nothing that was acknowledged is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox, children,
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

/// Nothing is synced behind: whatever is not settled is not on the disk.
const UNDRAINED: &str = "files:drain-sync=1";

/// What went otherwise than was promised.
type Broken = String;

/// How the program is started.
#[derive(Clone, Copy)]
struct Start<'a> {
    /// `plain` or `dsync`
    kind: &'a str,
    /// Where the agent dies, and after so many lines the test goes on.
    failpoint: &'a str,
    lines: usize,
    /// A rule that is broken, by which a test shows that it can fail.
    fault: &'a str,
    /// A shell starts it, which has the library, and the agent is its own.
    in_shell: bool,
}

impl<'a> Start<'a> {
    fn of(kind: &'a str, fault: &'a str) -> Self {
        Self {
            kind,
            failpoint: "",
            lines: 3,
            fault,
            in_shell: false,
        }
    }

    /// The same of a program that a shell starts.
    fn below_shell(kind: &'a str, fault: &'a str) -> Self {
        Self {
            in_shell: true,
            ..Self::of(kind, fault)
        }
    }
}

struct Running {
    sandbox: Sandbox,
    pool: ScratchPool,
    run: Process,
    agent: i32,
    /// As soon as it is known.
    program: Option<i32>,
}

/// Starts it, and waits until it writes.
fn start(how: Start<'_>) -> Result<Running, Broken> {
    let (sandbox, pool) = (Sandbox::new(), small_pool());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/calls.c");
    let mut compiler = Command::new("cc");
    let options = ["-O1", "-static", "-pthread", "-o", "calls", source];
    let built = compiler.args(options).current_dir(sandbox.path());
    assert!(built.status().unwrap().success());
    let mut environment = Vec::new();
    boot_anew(&mut environment, 1);
    let mut command = sandbox.command(match how.in_shell {
        true => "run --absorb *.log --pool",
        false => "run --front-end notify --absorb *.log --pool",
    });
    let script = format!("./calls goes-on {}; exit $?", how.kind);
    let program = match how.in_shell {
        true => ["sh", "-c", &script],
        false => ["./calls", "goes-on", how.kind],
    };
    command
        .arg(pool.path())
        .arg("--")
        .args(program)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_FAILPOINT", how.failpoint)
        .env("FOREBAY_BROKEN", how.fault)
        .env("FOREBAY_TEST_SYNCED", sandbox.file("synced"))
        .envs(environment)
        .stdout(File::create(sandbox.file("said")).unwrap())
        .stderr(File::create(sandbox.file("errors")).unwrap())
        .stdin(Stdio::null());
    let run = Process::spawn(&mut command).unwrap();
    let begun = Instant::now();
    let agent = loop {
        let below = children(run.handle().pid());
        let found = below.into_iter().find(|pid| is_agent(*pid));
        if let Some(agent) = found {
            break agent;
        }
        assert!(begun.elapsed() < PATIENCE, "no agent");
        thread::sleep(Duration::from_millis(1));
    };
    let mut running = Running {
        sandbox,
        pool,
        run,
        agent,
        program: None,
    };
    running.outlast_lines(how.lines)?;
    running.program = match how.in_shell {
        true => {
            let shells = children(running.run.handle().pid()).into_iter();
            shells.flat_map(children).find(|pid| !is_agent(*pid))
        }
        false => children(agent).first().copied(),
    };
    Ok(running)
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

    /// Says what was found, with what the run said.
    fn broken(&self, what: impl std::fmt::Display) -> Broken {
        format!("{what}: {}", self.errors())
    }

    fn outlast_lines(&mut self, lines: usize) -> Result<(), Broken> {
        let begun = Instant::now();
        while self.said() < lines {
            let is_over = self.program.is_some_and(|pid| !is_running(pid));
            if is_over && self.said() < lines || begun.elapsed() > PATIENCE {
                return Err(self.broken(format_args!("{} lines", self.said())));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The program goes on by so many lines at least, and what it had been told before is on the
    /// disk then.
    fn goes_on_synced(&mut self, told: usize) -> Result<(), Broken> {
        self.outlast_lines((told + 3).min(LINES))?;
        let log = self.sandbox.file("a.log");
        let copy = self
            .sandbox
            .file("synced")
            .join(log.strip_prefix("/").unwrap());
        let synced = fs::read_to_string(copy).unwrap_or_default();
        match synced.lines().count() >= told {
            true => Ok(()),
            false => Err(self.broken(format_args!("of {told} lines are on the disk: {synced:?}"))),
        }
    }

    /// The program ends with its own status.
    fn outlast_program(&mut self) -> Result<(), Broken> {
        let status = self.run.wait(PATIENCE).unwrap();
        match status.code() {
            Some(STATUS) => Ok(()),
            _ => Err(self.broken(status)),
        }
    }

    /// All that was said is in the log, in its order and once.
    fn check(&self) -> Result<(), Broken> {
        let mut log = String::new();
        let mut file = File::open(self.sandbox.file("a.log")).unwrap();
        file.read_to_string(&mut log).unwrap();
        let lines = log.lines().count();
        let wanted: String = (0..lines).map(|line| format!("{line}\n")).collect();
        if log != wanted {
            return Err(self.broken(format_args!("the log is {log:?}")));
        }
        match lines >= self.said() {
            true => Ok(()),
            false => Err(self.broken(format_args!("{lines} lines of {}", self.said()))),
        }
    }

    /// The same before and after a recovery in this boot, or another.
    fn check_recovered(&self, boot: usize) -> Result<(), Broken> {
        self.check()?;
        let mut environment = Vec::new();
        boot_anew(&mut environment, boot);
        let mut recover = self.sandbox.command("recover --pool");
        recover.arg(self.pool.path()).envs(environment);
        let ran = Ran::of(recover.output().unwrap());
        if ran.code != Some(0) {
            return Err(self.broken(format_args!("the recovery: {}", ran.stderr)));
        }
        self.check()
    }
}

fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

/// The agent is killed at some moment.
fn agent_is_killed(how: Start<'_>, random: &mut Random) -> Result<(), Broken> {
    let mut running = start(how)?;
    thread::sleep(moment(random, 150));
    let told = running.said();
    kill(running.agent);
    running.goes_on_synced(told)?;
    running.outlast_program()?;
    assert_eq!(running.said(), LINES);
    running.check_recovered(2)
}

/// The agent dies at a failpoint.
fn agent_dies(how: Start<'_>) -> Result<(), Broken> {
    let mut running = start(how)?;
    let ended = running.outlast_program();
    let is_dead = running.errors().contains("agent has died");
    assert!(is_dead, "{} was not passed", how.failpoint);
    ended?;
    running.check_recovered(2)
}

/// The supervisor is killed at some moment; a recovery takes place in this boot or another.
fn supervisor_is_killed(how: Start<'_>, boot: usize, random: &mut Random) -> Result<(), Broken> {
    let mut running = start(how)?;
    thread::sleep(moment(random, 150));
    let told = running.said();
    running.run.child().kill().unwrap();
    running.goes_on_synced(told)?;
    running.outlast_lines(LINES)?;
    running.check_recovered(boot)
}

/// All are killed at some moment: perhaps the agent before.
fn all_are_killed(how: Start<'_>, agent_first: bool, random: &mut Random) -> Result<(), Broken> {
    let running = start(how)?;
    thread::sleep(moment(random, 150));
    if agent_first {
        kill(running.agent);
        thread::sleep(moment(random, 50));
    }
    let run = running.run.handle().pid();
    for pid in running.program.into_iter().chain([run, running.agent]) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    thread::sleep(Duration::from_millis(50));
    running.check_recovered(2)
}

#[track_caller]
fn holds(outcome: Result<(), Broken>) {
    if let Err(what) = outcome {
        panic!("{what}");
    }
}

/// Moments of an agent's death. The answer of each kind of call is not noted, or not sent; a file
/// is opened and not given; bytes are written and not logged.
fn moments_of_death() -> impl Iterator<Item = (String, &'static str)> {
    let passes = |name: &'static str, first: usize, last: usize| {
        (first..=last).map(move |pass| format!("{name}={pass}:die"))
    };
    let failpoints = passes("notify:done", 20, 30)
        .chain(passes("notify:answer", 20, 30))
        .chain(passes("notify:opened", 3, 4))
        .chain(passes("files:unlogged", 5, 7));
    let failpoints = failpoints.zip(["plain", "dsync"].into_iter().cycle());
    // A link, by either.
    failpoints
        .chain(passes("notify:done", 23, 23).zip(["plain"]))
        .chain(passes("notify:done", 28, 28).zip(["dsync"]))
}

/// Promise (programs): A program whose agent is killed goes on, ends with its own status, and has
/// each of its writes once.
#[test]
fn a_program_goes_on_when_its_agent_is_killed() {
    let mut random = Random::new(fresh_seed());
    for round in 0..8 {
        let kind = if round % 2 == 0 { "plain" } else { "dsync" };
        holds(agent_is_killed(Start::of(kind, ""), &mut random));
    }
}

/// Promise: as `a_program_goes_on_when_its_agent_is_killed`.
#[test]
fn each_call_happens_once_wherever_the_agent_dies() {
    for (failpoint, kind) in moments_of_death() {
        holds(agent_dies(Start {
            failpoint: &failpoint,
            lines: 0,
            ..Start::of(kind, "")
        }));
    }
}

/// Promise (programs): A program whose supervisor is killed goes on by its agent, with real syncs.
#[test]
fn a_program_goes_on_when_its_supervisor_is_killed() {
    let mut random = Random::new(fresh_seed());
    for boot in [1, 2] {
        holds(supervisor_is_killed(
            Start::of("plain", ""),
            boot,
            &mut random,
        ));
    }
}

#[test]
fn nothing_is_lost_when_all_are_killed_at_any_moment() {
    let mut random = Random::new(fresh_seed());
    for round in 0..8 {
        let kind = if round % 2 == 0 { "plain" } else { "dsync" };
        let how = Start::of(kind, "");
        holds(all_are_killed(how, round % 4 >= 2, &mut random));
    }
}

/// Promise (programs): A program that a shell started goes on when its agent is killed, or the
/// supervisor, and nothing that it was told is lost when all are.
#[test]
fn a_shells_program_goes_on_whoever_is_killed() {
    let mut random = Random::new(fresh_seed());
    for kind in ["plain", "dsync"] {
        let how = Start::below_shell(kind, "");
        holds(agent_is_killed(how, &mut random));
        holds(supervisor_is_killed(how, 1, &mut random));
        holds(supervisor_is_killed(how, 2, &mut random));
        holds(all_are_killed(how, false, &mut random));
        holds(all_are_killed(how, true, &mut random));
    }
}

/// Promise: as `a_shells_program_goes_on_whoever_is_killed`.
#[test]
fn a_shells_program_calls_once_wherever_its_agent_dies() {
    for (failpoint, kind) in moments_of_death().step_by(3) {
        holds(agent_dies(Start {
            failpoint: &failpoint,
            lines: 0,
            ..Start::below_shell(kind, "")
        }));
    }
}

#[test]
fn a_childs_agent_or_guardian_that_settles_nothing_is_found_out() {
    let mut random = Random::new(fresh_seed());
    let how = |fault| Start {
        failpoint: UNDRAINED,
        ..Start::below_shell("plain", fault)
    };
    is_found_out(4, |_| {
        agent_is_killed(how("guardian-no-settle"), &mut random)
    });
    is_found_out(4, |round| {
        supervisor_is_killed(how("orphan-no-settle"), 1 + round % 2, &mut random)
    });
}

/// A rule that is broken is found out in some of so many rounds.
#[track_caller]
fn is_found_out(rounds: usize, round: impl FnMut(usize) -> Result<(), Broken>) {
    let found = (0..rounds).map(round).find_map(Result::err);
    println!("{}", found.expect("nothing was found"));
}

#[test]
fn a_guardian_that_is_gone_is_found_out() {
    let mut random = Random::new(fresh_seed());
    let how = Start::of("plain", "guardian-gone");
    is_found_out(1, |_| agent_is_killed(how, &mut random));
}

#[test]
fn a_guardian_that_does_all_again_is_found_out() {
    let moments: Vec<_> = moments_of_death().collect();
    // Whichever call it is: one that was done is done twice, or fails.
    let failing = moments.iter().filter(|(failpoint, kind)| {
        let how = Start {
            failpoint,
            lines: 0,
            ..Start::of(kind, "guardian-does-all-again")
        };
        agent_dies(how).is_err()
    });
    let failing: Vec<_> = failing.map(|(failpoint, _)| failpoint).collect();
    assert!(failing.len() >= moments.len() / 2, "{failing:?}");
}

#[test]
fn a_guardian_that_settles_nothing_is_found_out() {
    let mut random = Random::new(fresh_seed());
    let how = Start {
        failpoint: UNDRAINED,
        ..Start::of("plain", "guardian-no-settle")
    };
    is_found_out(4, |_| agent_is_killed(how, &mut random));
}

#[test]
fn an_agent_that_settles_nothing_is_found_out() {
    let mut random = Random::new(fresh_seed());
    let how = Start {
        failpoint: UNDRAINED,
        ..Start::of("plain", "orphan-no-settle")
    };
    is_found_out(4, |round| {
        supervisor_is_killed(how, 1 + round % 2, &mut random)
    });
}

/// True of an agent, also of one that has died already: that has its name, and no words any more.
fn is_agent(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_dead = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(" (forebay) Z "))
    };
    line.windows(12).any(|part| part == b"notify-agent") || is_dead()
}
