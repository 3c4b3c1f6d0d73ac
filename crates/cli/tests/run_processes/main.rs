//! Several processes make random calls on files at the same time, fork, execute themselves and die
//! at any call. Every call returns what it returns without Forebay, the files are as without, and
//! after a power cut everything is there that was synced.
//!
//! What each of them does on its own files is drawn from a seed, so it is compared with the same
//! calls of one process without Forebay (`programs/processes.c`). To the log that all append to
//! each adds records that say whose they are. `FOREBAY_SEED=n` repeats the calls, though not their
//! order nor when which process is killed; `FOREBAY_ROUNDS=n` makes more rounds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod check;
#[path = "../common/mod.rs"]
mod common;
mod lives;

use check::Round;
use common::{
    Sandbox,
    databases::{PATIENCE, boot_anew, moment, small_pool, stop_group},
    disk::Disk,
};
use forebay_bench::data::Random;
use forebay_measure::processes::kill_group;
use lives::{Life, Step, step};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdout, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Lives at the same time, and those that there were before a round ends.
const LIVES: usize = 5;
const LIVES_BEFORE: usize = 30;

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The crew is killed: no new lives are begun, and the run ends when the last one does.
    InOrder,
    /// All are killed, with the supervisor, and this boot goes on.
    Killed,
    /// The same, the supervisor first: its processes go on for a while.
    SupervisorFirst,
    /// The power goes.
    PowerCut,
    /// The supervisor is killed, and then the power goes.
    SupervisorThenPower,
}

impl End {
    fn is_power_cut(self) -> bool {
        matches!(self, Self::PowerCut | Self::SupervisorThenPower)
    }

    /// True if the power goes when every sync is the kernel's: what that takes for durable while
    /// its file system is cut off is not Forebay's to keep.
    fn cuts_off_plain(self) -> bool {
        self == Self::SupervisorThenPower
    }

    fn is_supervisor_first(self) -> bool {
        matches!(self, Self::SupervisorFirst | Self::SupervisorThenPower)
    }
}

/// What the lives say, while they say it.
#[derive(Default)]
struct Listener {
    lives: AtomicUsize,
    /// From now on calls are refused: the file system is cut off.
    is_cut: AtomicBool,
}

impl Listener {
    /// Everything, up to what was refused.
    fn listen(&self, output: ChildStdout) -> BTreeMap<Life, Vec<Step>> {
        let mut said: BTreeMap<Life, Vec<Step>> = BTreeMap::new();
        let mut over = BTreeSet::new();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let (life, number, step) = step(&line);
            if over.contains(&life) || step.returned < 0 && self.is_cut.load(Relaxed) {
                over.insert(life);
                continue;
            }
            let steps = said.entry(life).or_default();
            assert_eq!(steps.len() as u64, number, "{line}");
            steps.push(step);
            self.lives.store(said.len(), Relaxed);
        }
        said
    }

    fn wait_for_lives(&self) {
        let begun = Instant::now();
        while self.lives.load(Relaxed) < LIVES_BEFORE && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn round(end: End, seed: u64) {
    let sandbox = Sandbox::new();
    common::build("processes", sandbox.path());
    let program = sandbox.file("processes");
    let disk = end
        .is_power_cut()
        .then(|| Disk::make(sandbox.path(), "ext4"));
    let mut disk = match disk {
        Some(None) => return,
        disk => disk.flatten(),
    };
    let dir = disk
        .as_ref()
        .map_or(sandbox.file("files"), |disk| disk.at.clone());
    fs::create_dir_all(&dir).unwrap();
    let pool = small_pool();
    let mut environment: Vec<(OsString, OsString)> = Vec::new();
    boot_anew(&mut environment, 1);
    let mut forebay = sandbox
        .command("run --absorb *.log --pool")
        .arg(pool.path())
        .arg("--")
        .arg(&program)
        .args(["crew", &seed.to_string()])
        .current_dir(&dir)
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .envs(environment.clone())
        .envs(end.cuts_off_plain().then_some(("CUT_OFF_PLAIN", "1")))
        .stdout(Stdio::piped())
        .stderr(File::create(sandbox.file("said")).unwrap())
        .process_group(0)
        .spawn()
        .unwrap();
    let said = run_until(end, seed, &mut forebay, disk.as_ref());
    if let Some(disk) = &mut disk {
        disk.mount_again();
        boot_anew(&mut environment, 2);
    }
    let recovered = sandbox.recover(pool.path(), &environment);
    println!(
        "{end:?}: {} lives, {} steps; {}{}",
        said.len(),
        said.values().map(Vec::len).sum::<usize>(),
        fs::read_to_string(sandbox.file("said")).unwrap(),
        String::from_utf8_lossy(&[recovered.stderr, recovered.stdout].concat())
    );
    assert!(said.len() >= LIVES_BEFORE, "hardly any process lived");
    let dir: &Path = &dir;
    let round = Round {
        end,
        seed,
        dir,
        said,
    };
    round.check(&program);
}

/// Lets the lives live for a while, and ends the round: what they said.
fn run_until(
    end: End,
    seed: u64,
    forebay: &mut Child,
    disk: Option<&Disk>,
) -> BTreeMap<Life, Vec<Step>> {
    let mut random = Random::new(seed);
    let pid = Pid::from_child(forebay);
    let output = forebay.stdout.take().unwrap();
    let listener = Arc::new(Listener::default());
    let listening = Arc::clone(&listener);
    let said = thread::spawn(move || listening.listen(output));
    listener.wait_for_lives();
    thread::sleep(moment(&mut random, 500));
    if end.is_supervisor_first() {
        kill_process(pid, Signal::KILL).unwrap();
        thread::sleep(moment(&mut random, 500));
    }
    if let Some(disk) = disk {
        listener.is_cut.store(true, Relaxed);
        // While it is being cut off the kernel refuses one call and does the next: a life that goes
        // on then does what none without Forebay does.
        if end == End::PowerCut {
            stop_group(pid.as_raw_nonzero().get());
        }
        disk.cut();
    }
    match end {
        End::InOrder => kill_process(crew(pid), Signal::KILL).unwrap(),
        _ => assert!(kill_group(pid)),
    }
    forebay.wait().unwrap();
    said.join().unwrap()
}

/// The process that `forebay run` began.
fn crew(forebay: Pid) -> Pid {
    let pid = forebay.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let child = children.split_whitespace().next().unwrap();
    Pid::from_raw(child.parse().unwrap()).unwrap()
}

/// So many rounds, or those of `FOREBAY_ROUNDS`, with seeds that are the same each time.
fn rounds(end: End, rounds: u64) {
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().unwrap());
    let rounds = number("FOREBAY_ROUNDS").unwrap_or(rounds);
    let first = number("FOREBAY_SEED").unwrap_or(2711);
    for seed in first..first + rounds {
        round(end, seed);
    }
}

/// Promise (processes): Processes that fork, execute themselves, write, truncate, rename and
/// unlink, and die at any call, return and leave the same as without Forebay.
#[test]
fn processes_that_die_at_any_call_leave_the_same_as_plain_ones() {
    rounds(End::InOrder, 1);
    rounds(End::Killed, 1);
}

/// Promise: as `processes_that_die_at_any_call_leave_the_same_as_plain_ones`.
/// Promise: as `a_cut_after_supervisor_and_backend_die_costs_nothing_on_ext4`.
#[test]
fn nor_does_it_matter_when_their_supervisor_dies_first() {
    rounds(End::SupervisorFirst, 1);
    rounds(End::SupervisorThenPower, 1);
}

/// Promise (processes): A log that several processes append to has each synced record once after a
/// power cut, whole, in its process's order.
/// Promise (processes): A process that died with a write not logged leaves no hole before the bytes
/// that others synced.
/// Promise (processes): After a power cut each file is as it was after its last sync or later, also
/// with the supervisor dead before.
#[test]
fn everything_any_process_synced_is_there_after_a_power_cut() {
    rounds(End::PowerCut, 2);
}
