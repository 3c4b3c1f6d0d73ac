//! Each call of a program that an agent serves, broken off in turn: at the n-th call that the agent
//! answers, the agent dies, or the supervisor, or all of them with the program. `programs/steps.c`
//! makes one call of each kind on logs; what it leaves is compared with what it leaves plainly.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox, children,
    cut::put_back,
    databases::{PATIENCE, ProcessGroup, boot_anew, small_pool},
};
use forebay_bench::scratch::ScratchPool;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The status with which `programs/steps.c` ends, whether or not it made all of its steps.
const STATUS: i32 = 42;

/// The moments of a call in the agent, each with how often it comes at least: it is done and nobody
/// else knows; the guardian could answer it; a file is opened and not given; bytes are written and
/// not logged.
const MOMENTS: [(&str, usize); 4] = [
    (DONE, 30),
    (ANSWER, 30),
    ("notify:opened", 3),
    ("files:unlogged", 8),
];
const DONE: &str = "notify:done";
const ANSWER: &str = "notify:answer";

/// Files by name, with their bytes.
type LogFiles = BTreeMap<String, Vec<u8>>;

/// What went otherwise than was promised.
type Broken = String;

/// What becomes of the program's files, step by step.
struct PlainSteps {
    program: Sandbox,
    /// After so many steps: from none to all.
    states: Vec<LogFiles>,
}

impl PlainSteps {
    /// Builds the program, and runs it plainly with each number of steps.
    fn make() -> Self {
        let program = Sandbox::new();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/steps.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-static", "-o"]);
        compiler.arg(program.file("steps")).arg(source);
        assert!(compiler.status().unwrap().success());
        let mut made = Self {
            program,
            states: Vec::new(),
        };
        loop {
            let (sandbox, asked) = (Sandbox::new(), made.states.len());
            let mut steps = Command::new(made.program.file("steps"));
            steps.arg(asked.to_string()).current_dir(sandbox.path());
            let ran = steps.output().unwrap();
            assert_eq!(ran.status.code(), Some(STATUS), "{ran:?}");
            // It has no more than it made last time.
            if ran.stdout.iter().filter(|byte| **byte == b'\n').count() < asked {
                return made;
            }
            made.states.push(logs_in(&sandbox));
        }
    }

    fn count(&self) -> usize {
        self.states.len() - 1
    }
}

/// A run that something happens to.
struct BrokenRun<'a> {
    steps: &'a PlainSteps,
    sandbox: Sandbox,
    pool: ScratchPool,
    group: ProcessGroup,
}

impl<'a> BrokenRun<'a> {
    fn start(steps: &'a PlainSteps, failpoint: &str, fault: &str) -> Self {
        let (sandbox, pool) = (Sandbox::new(), small_pool());
        let mut command = sandbox.command("run --front-end notify --absorb *.log --pool");
        command
            .arg(pool.path())
            .arg("--")
            .arg(steps.program.file("steps"))
            .env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .env("FOREBAY_FAILPOINT", failpoint)
            .env("FOREBAY_BROKEN", fault)
            .env("FOREBAY_TEST_SYNCED", sandbox.file("synced"))
            .envs(boot(1))
            .stdout(File::create(sandbox.file("said")).unwrap())
            .stderr(File::create(sandbox.file("errors")).unwrap())
            .stdin(Stdio::null());
        let group = ProcessGroup::start(&mut command);
        Self {
            steps,
            sandbox,
            pool,
            group,
        }
    }

    /// The steps that were acknowledged.
    fn acknowledged(&self) -> usize {
        let said = fs::read_to_string(self.sandbox.file("said")).unwrap();
        said.lines().count()
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.sandbox.file("errors")).unwrap()
    }

    fn broken(&self, what: impl std::fmt::Display) -> Broken {
        let acknowledged = self.acknowledged();
        format!("{what} after {acknowledged} steps: {}", self.errors())
    }

    /// Waits until the agent stands still at the failpoint. False if the program made all of its
    /// steps before.
    fn stands_still(&self) -> Result<bool, Broken> {
        let begun = Instant::now();
        loop {
            let agent = children(self.group.pid()).first().copied();
            if agent.is_some_and(is_serving_asleep) {
                return Ok(true);
            }
            if self.acknowledged() == self.steps.count() {
                return Ok(false);
            }
            if begun.elapsed() > PATIENCE {
                return Err(self.broken("neither a failpoint nor an end"));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The program makes all of its steps.
    fn outlast_steps(&self) -> Result<(), Broken> {
        let begun = Instant::now();
        while self.acknowledged() < self.steps.count() {
            // Its own complaint.
            if self.errors().contains("\nstep ") || begun.elapsed() > PATIENCE {
                return Err(self.broken("the program has not gone on"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The files are as after one of these numbers of steps.
    fn check(&self, least: usize, most: usize) -> Result<(), Broken> {
        let found = logs_in(&self.sandbox);
        let states = &self.steps.states[least..=most.min(self.steps.count())];
        match states.contains(&found) {
            true => Ok(()),
            false => Err(self.broken(format_args!("{least} to {most}: {}", differing(&found)))),
        }
    }

    /// Recovers in the boot with this number. The caller looks at what came of it.
    fn recover(&self, number: usize) -> Result<(), Broken> {
        let mut command = self.sandbox.command("recover --pool");
        let ran = command.arg(self.pool.path()).envs(boot(number)).output();
        let ran = Ran::of(ran.unwrap());
        match ran.code {
            Some(0) => Ok(()),
            _ => Err(self.broken(format_args!("the recovery: {}", ran.stderr))),
        }
    }
}

fn boot(number: usize) -> Vec<(OsString, OsString)> {
    let mut environment = Vec::new();
    boot_anew(&mut environment, number);
    environment
}

fn logs_in(sandbox: &Sandbox) -> LogFiles {
    let entries = fs::read_dir(sandbox.path()).unwrap().map(Result::unwrap);
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names
        .filter(|name| name.ends_with(".log"))
        .map(|name| (name.clone(), fs::read(sandbox.file(&name)).unwrap()))
        .collect()
}

/// Files, each with the bytes that it has and how often.
fn differing(files: &LogFiles) -> String {
    let mut said = String::new();
    for (name, bytes) in files {
        said += &format!("{name}:");
        for part in bytes.chunk_by(|one, other| one == other) {
            said += &format!(" {}x{}", char::from(part[0]).escape_default(), part.len());
        }
        said += "; ";
    }
    said
}

/// The agent dies at its n-th call. False if it has not so many.
fn agent_dies(steps: &PlainSteps, failpoint: &str, fault: &str) -> Result<bool, Broken> {
    let mut run = BrokenRun::start(steps, failpoint, fault);
    run.outlast_steps()?;
    let status = run.group.outlast();
    if status.code() != Some(STATUS) {
        return Err(run.broken(status));
    }
    run.check(steps.count(), steps.count())?;
    run.recover(2)?;
    run.check(steps.count(), steps.count())?;
    Ok(run.errors().contains("agent has died"))
}

/// True if one of an agent's threads that make calls sleeps, which none does by itself.
fn is_serving_asleep(agent: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{agent}/task"));
    let has = |thread: &Path, file: &str, what: &str| {
        fs::read_to_string(thread.join(file)).is_ok_and(|text| text.contains(what))
    };
    let mut threads = threads.into_iter().flatten().flatten();
    threads.any(|thread| {
        let thread = thread.path();
        has(&thread, "comm", "calls") && has(&thread, "wchan", "nanosleep")
    })
}

/// The supervisor is killed while the agent is at its n-th call; a recovery takes place in this
/// boot or another. False if the agent has not so many.
fn supervisor_dies(steps: &PlainSteps, pass: usize) -> Result<bool, Broken> {
    let mut run = BrokenRun::start(steps, &format!("{DONE}={pass}:200ms"), "");
    let is_there = run.stands_still()?;
    let supervisor = rustix::process::Pid::from_raw(run.group.pid()).unwrap();
    if is_there {
        rustix::process::kill_process(supervisor, rustix::process::Signal::KILL).unwrap();
    }
    run.outlast_steps()?;
    run.group.outlast();
    run.group.kill();
    run.check(steps.count(), steps.count())?;
    run.recover(1 + pass % 2)?;
    run.check(steps.count(), steps.count())?;
    Ok(is_there)
}

/// All are killed at the agent's n-th call, and nothing else is lost. False if it has not so many.
fn all_die(steps: &PlainSteps, moment: &str, pass: usize) -> Result<bool, Broken> {
    let mut run = BrokenRun::start(steps, &format!("{moment}={pass}"), "");
    let is_there = run.stands_still()?;
    run.group.kill();
    let done = run.acknowledged();
    run.check(done, done + 1)?;
    run.recover(1 + pass % 2)?;
    run.check(done, done + 1)?;
    Ok(is_there)
}

/// The power is cut at the agent's n-th call: the disk has what was synced. Of `a.log`, which keeps
/// its name, all that was synced by the program is there. False if it has not so many.
fn power_is_cut(steps: &PlainSteps, pass: usize, recovers: bool) -> Result<bool, Broken> {
    let mut run = BrokenRun::start(steps, &format!("{DONE}={pass}"), "");
    let is_there = run.stands_still()?;
    run.group.kill();
    let done = run.acknowledged();
    put_back(&run.sandbox.file("synced"));
    if recovers {
        run.recover(2)?;
    }
    let log = |files: &LogFiles| files.get("a.log").cloned();
    let synced = SYNCED.iter().rev().find(|step| **step <= done);
    let least = synced.copied().unwrap_or_default();
    let found = log(&logs_in(&run.sandbox));
    let states = &steps.states[least..=(done + 1).min(steps.count())];
    match states.iter().any(|state| log(state) == found) {
        true => Ok(is_there),
        false => Err(run.broken(differing(&logs_in(&run.sandbox)))),
    }
}

/// The steps that sync `a.log`.
const SYNCED: [usize; 6] = [0, 3, 6, 12, 14, 37];

/// Has something happen at each call in turn, until there is none any more: not before so many.
fn at_each_call(least: usize, mut happens: impl FnMut(usize) -> Result<bool, Broken>) {
    for pass in 1.. {
        match happens(pass) {
            Ok(true) => {}
            Ok(false) => return assert!(pass > least, "only {pass} calls"),
            Err(what) => panic!("call {pass}: {what}"),
        }
    }
}

/// Promise (programs): At whichever call the agent dies, each call of the program has happened once
/// in the end.
#[test]
fn an_agent_may_die_at_each_call() {
    let steps = &PlainSteps::make();
    thread::scope(|scope| {
        for (moment, least) in MOMENTS {
            let dies = move |pass| agent_dies(steps, &format!("{moment}={pass}:die"), "");
            scope.spawn(move || at_each_call(least, dies));
        }
    });
}

/// Promise (programs): At whichever call the supervisor dies, the program goes on, and a recovery
/// leaves its files as they are.
#[test]
fn a_supervisor_may_die_at_each_call() {
    let steps = &PlainSteps::make();
    at_each_call(30, |pass| supervisor_dies(steps, pass));
}

/// Promise (programs): At whichever call all of them are killed, what was acknowledged is there
/// before and after a recovery.
#[test]
fn all_may_die_at_each_call() {
    let steps = &PlainSteps::make();
    thread::scope(|scope| {
        for moment in [DONE, ANSWER] {
            let die = move |pass| all_die(steps, moment, pass);
            scope.spawn(move || at_each_call(30, die));
        }
    });
}

/// Promise (programs): At whichever call the power is cut, what was synced is recovered.
#[test]
fn the_power_may_be_cut_at_each_call() {
    let steps = &PlainSteps::make();
    at_each_call(30, |pass| power_is_cut(steps, pass, true));
}

#[test]
fn a_guardian_that_does_all_again_is_found_out_at_some_call() {
    let steps = &PlainSteps::make();
    let found = (1..30).find_map(|pass| {
        let failpoint = format!("{DONE}={pass}:die");
        agent_dies(steps, &failpoint, "guardian-does-all-again").err()
    });
    println!("{}", found.expect("nothing was found"));
}

#[test]
fn a_recovery_that_is_left_out_is_found_out_at_some_call() {
    let steps = &PlainSteps::make();
    let found = (1..30).find_map(|pass| power_is_cut(steps, pass, false).err());
    println!("{}", found.expect("nothing was found"));
}
