//! A run of many processes that write to the same logs: they fork, execute themselves, and are
//! killed by the hundred at any moment. The others go on, and after a power cut everything that any
//! of them was promised is there.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    cut::put_back,
    databases::{boot_anew, moment, random, small_pool},
};
use forebay_bench::data::Random;
use forebay_measure::processes::kill_group;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::Stdio,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/members.py");
const SLOT: usize = 64;
/// Fewer would prove nothing.
const WRITES_MIN: usize = 20;

/// Who is killed at the end of a round, and what is left of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All, and the files are as they were synced last: a power cut.
    PowerCut,
    /// The supervisor, and a moment later the others; the files are as the kernel has them, and
    /// this boot goes on.
    SupervisorFirst,
}

/// The environment of a boot with a number of its own.
fn boot(number: usize) -> Vec<(OsString, OsString)> {
    let mut environment = Vec::new();
    boot_anew(&mut environment, number);
    environment
}

/// What a writer was promised: its number, the number of its write.
type Write = (u64, u64);

fn round(end: End, random: &mut Random) {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let synced = sandbox.file("synced");
    let mut command = sandbox.command("run --absorb *.log --pool");
    command
        .arg(pool.path())
        .args(["--", "python3", PROGRAM])
        .arg(random.below(1 << 30).to_string())
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .envs(boot(1))
        .stdout(Stdio::piped())
        .stderr(File::create(sandbox.file("said")).unwrap())
        .process_group(0);
    if end == End::PowerCut {
        command.env("FOREBAY_TEST_SYNCED", &synced);
    }
    let mut forebay = command.spawn().unwrap();
    let pid = Pid::from_child(&forebay);
    let lines = BufReader::new(forebay.stdout.take().unwrap()).lines();
    let (writing, are_writing) = mpsc::channel();
    let promised = thread::spawn(move || {
        let begun = Instant::now();
        let mut last = begun;
        let mut promised: BTreeSet<Write> = BTreeSet::new();
        let mut longest = Duration::ZERO;
        for line in lines.map_while(Result::ok) {
            let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
            promised.insert((numbers.next().unwrap(), numbers.next().unwrap()));
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if promised.len() == WRITES_MIN {
                let _ = writing.send(());
            }
        }
        (promised, longest)
    });
    // On a busy machine they begin late. If they never do, what they said is shown below.
    let _ = are_writing.recv_timeout(Duration::from_secs(60));
    thread::sleep(Duration::from_secs(2) + moment(random, 1000));
    if end == End::SupervisorFirst {
        kill_process(pid, Signal::KILL).unwrap();
        thread::sleep(moment(random, 500));
    }
    assert!(kill_group(pid));
    forebay.wait().unwrap();
    let (promised, longest) = promised.join().unwrap();

    let said = fs::read_to_string(sandbox.file("said")).unwrap();
    assert!(!said.contains("is plain from now on"), "{said}");
    if end == End::PowerCut {
        put_back(&synced);
    }
    let next = if end == End::PowerCut { 2 } else { 1 };
    let recover = |options: &[&str]| {
        let mut command = sandbox.command("recover --pool");
        command.arg(pool.path()).args(options).envs(boot(next));
        Ran::of(command.output().unwrap())
    };
    let recovered = recover(&[]);
    // Killed while they write a file again, since the supervisor's sync of it may have failed: then
    // a write that was under way is told from one of another program by the user only.
    let wants_decision = recovered.text().contains("a sync of");
    match end == End::SupervisorFirst && recovered.code == Some(1) && wants_decision {
        true => recover(&["--force"]).ok(),
        false => recovered.ok(),
    };

    let appended = appended(&fs::read(sandbox.file("shared.log")).unwrap());
    let slots = slots(&fs::read(sandbox.file("slots.log")).unwrap());
    println!(
        "{end:?}: {} writes promised, by {} writers, none for {longest:?} at most; {} there",
        promised.len(),
        promised.last().unwrap().0,
        appended.len()
    );
    let missing: Vec<_> = promised.difference(&appended).collect();
    assert!(missing.is_empty(), "{end:?}: {missing:?}");
    for (who, seq) in promised {
        let found = slots.get(&who).copied();
        assert!(
            found.is_some_and(|found| found >= seq),
            "{end:?}: {seq} of {who}, {found:?} there"
        );
    }
    assert!(appended.len() >= WRITES_MIN, "the writers hardly wrote");
}

/// The whole records of the log.
fn appended(bytes: &[u8]) -> BTreeSet<Write> {
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
    let record = |at: usize| {
        let head = bytes.get(at..at + 25)?;
        let length = usize::try_from(number(&head[19..24])?).ok()?;
        let rest = bytes.get(at + 25..at + 25 + length + 1)?;
        let is_whole = rest[..length].iter().all(|byte| *byte == b'x') && rest[length] == b'>';
        is_whole.then_some((number(&head[1..9])?, number(&head[10..18])?))
    };
    let starts = (0..bytes.len()).filter(|at| bytes[*at] == b'<');
    starts.filter_map(record).collect()
}

/// The last write of each writer in its slot.
fn slots(bytes: &[u8]) -> BTreeMap<u64, u64> {
    let slot = |slot: &[u8]| {
        let text = std::str::from_utf8(slot).ok()?.trim_end_matches('.');
        let (who, seq) = text.split_once(' ')?;
        Some((who.parse().ok()?, seq.parse().ok()?))
    };
    bytes.chunks(SLOT).filter_map(slot).collect()
}

/// So many rounds, or those of `FOREBAY_ROUNDS`.
fn rounds(end: End, rounds: usize) {
    let more = std::env::var("FOREBAY_ROUNDS").ok();
    let rounds = more.map_or(rounds, |rounds| rounds.parse().unwrap());
    let mut random = random("members");
    for _ in 0..rounds {
        round(end, &mut random);
    }
}

/// Promise (processes): All processes of a run append to one lane, and every byte acknowledged to
/// any of them survives a power cut, whichever of them is killed at any moment.
/// Promise: as `shortened_records_of_any_writes_replay_to_the_kernels_file`.
#[test]
fn every_processs_synced_bytes_survive_a_power_cut_after_kills() {
    rounds(End::PowerCut, 2);
}

/// Promise (processes): The other processes go on when one of a run's processes or the supervisor
/// is killed, whatever they fork, execute and write to the same files.
#[test]
fn a_killed_supervisors_processes_go_on_and_lose_nothing() {
    rounds(End::SupervisorFirst, 2);
}

/// A process that writes over the memory of the run that it is a member of, where its library has
/// it, between acknowledged writes; then it goes on.
const SCRIBBLING: &str = r#"
import ctypes, os, sys
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
for n in range(50):
    os.pwrite(fd, b"a" * 100, n * 100)
    os.fsync(fd)
at, length, byte = (int(word, 0) for word in sys.argv[1:4])
maps = [line for line in open("/proc/self/maps") if f"memfd:{sys.argv[5]} " in line]
assert len(maps) == 1, maps
start, end = (int(word, 16) for word in maps[0].split()[0].split("-"))
ctypes.memset(start + at, byte, length or end - start - at)
for n in range(50):
    os.pwrite(fd, b"b" * 100, n * 100)
    os.fsync(fd)
other = os.open("other.log", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(other, b"c" * 100)
os.fsync(other)
print("done", flush=True)
if sys.argv[4] == "killed":
    os.kill(os.getppid(), 9)
    os.kill(os.getpid(), 9)
"#;

/// Promise (processes): A process that overwrites the memory which its run shares costs no
/// acknowledged byte and hangs no process: the lane ends, the files are synced, the supervisor says
/// so.
#[test]
fn a_process_that_overwrites_its_runs_memory_loses_nothing() {
    // Mark, tail, the next segment, where segments lie, all of it but the version and who owns it.
    // docs/pool-format.md, "Shared lanes".
    let places = [(256, 8), (128, 8), (384, 8), (400, 1024), (128, 70_000)];
    for ((at, length), byte) in places.into_iter().flat_map(|p| [(p, 0xFF), (p, 0)]) {
        nothing_is_lost_by_writing("forebay-lane", (at, length), byte);
    }
}

/// Promise: as `a_process_that_overwrites_its_runs_memory_loses_nothing`.
#[test]
fn a_process_that_overwrites_a_shared_file_entry_loses_nothing() {
    // The first file's state, its lock, both and its error, all of the file, the page but its head,
    // all of the page. docs/files-membership.md, "The shared page".
    const FILE: usize = 8_482_240;
    const LOCK: usize = FILE + 8;
    for place in [(FILE, 8), (FILE, 16), (FILE, 8192), (FILE, 0), (0, 0)] {
        nothing_is_lost_by_writing("forebay", place, 0xFF);
        nothing_is_lost_by_writing("forebay", place, 0);
    }
    // A lock of zeros is a free one.
    nothing_is_lost_by_writing("forebay", (LOCK, 4), 0xFF);
    nothing_is_lost_by_writing("forebay", (LOCK, 4), 1);
}

/// Has a process write bytes to a place of that memory; a length of 0 is as far as it goes.
fn nothing_is_lost_by_writing(memory: &str, (at, length): (usize, usize), byte: u8) {
    for end in ["orderly", "killed"] {
        let sandbox = Sandbox::new();
        let pool = small_pool();
        let mut command = sandbox.command("run --absorb *.log --pool");
        let ran = command
            .arg(pool.path())
            .args(["--", "timeout", "300", "python3", "-c", SCRIBBLING])
            .args([at.to_string(), length.to_string(), byte.to_string()])
            .args([end, memory])
            .env("FOREBAY_RUN_DIR", sandbox.file("run"))
            .envs(boot(1))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        let what = format!("{byte:#x} at {at} of {memory}, {end}: {said}");
        assert_eq!(ran.stdout, b"done\n", "{what}");
        assert!(ran.status.success() || end == "killed", "{what}");
        assert!(said.contains("has damaged the memory"), "{what}");
        let content = || fs::read(sandbox.file("a.log")).unwrap();
        let expected = [b'b'; 5000];
        assert!(content() == expected, "{what}");
        let recovered = sandbox
            .command("recover --force --pool")
            .arg(pool.path())
            .envs(boot(2))
            .output()
            .unwrap();
        let recovered = String::from_utf8_lossy(&recovered.stderr).into_owned();
        assert!(content() == expected, "{what}{recovered}");
    }
}

/// A process writes to a log; others that write to none give it other names, as PostgreSQL's
/// checkpointer does, and remove another one.
const NAMING: &str = r#"
import os, subprocess, sys
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
gone = os.open("gone.log", os.O_WRONLY | os.O_CREAT, 0o600)
for each in (fd, gone):
    os.write(each, b"a" * 100)
    os.fsync(each)
names = "import os; os.link('a.log', 'b.log'); os.unlink('a.log')"
subprocess.run([sys.executable, "-c", names], check=True)
names = "import os; os.link('b.log', 'c.log'); os.unlink('b.log'); os.rename('c.log', 'd.log'); os.unlink('gone.log')"
subprocess.run([sys.executable, "-c", names], check=True)
os.write(fd, b"b" * 100)
os.fsync(fd)
os.kill(os.getppid(), 9)
os.kill(os.getpid(), 9)
"#;

#[test]
fn names_given_by_a_process_that_writes_no_log_are_followed() {
    let sandbox = Sandbox::new();
    let pool = small_pool();
    let synced = sandbox.file("synced");
    let ran = sandbox
        .command("run --explain --absorb *.log --pool")
        .arg(pool.path())
        .args(["--", "python3", "-c", NAMING])
        .env("FOREBAY_RUN_DIR", sandbox.file("run"))
        .env("FOREBAY_TEST_SYNCED", &synced)
        .envs(boot(1))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    // What had not reached the disk is gone: all of it, unless the supervisor had time.
    let reached = ["a.log", "b.log", "c.log", "d.log"].map(|name| {
        let path = sandbox.file(name);
        let copy = synced.join(path.strip_prefix("/").unwrap());
        fs::metadata(copy).map_or(0, |copy| copy.len())
    });
    let file = File::options().write(true).open(sandbox.file("d.log"));
    let file = file.unwrap_or_else(|e| panic!("{e}: {said}"));
    let before = file.metadata().unwrap().modified().unwrap();
    file.set_len(reached.into_iter().max().unwrap()).unwrap();
    file.set_modified(before).unwrap();
    let recovered = sandbox
        .command("recover --json --pool")
        .arg(pool.path())
        .envs(boot(2))
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&recovered.stdout);
    assert!(recovered.status.success(), "{report}{said}");
    assert!(report.contains("/d.log\""), "{report}{said}");
    let content = fs::read(sandbox.file("d.log")).unwrap();
    assert!(
        content == [[b'a'; 100], [b'b'; 100]].concat(),
        "{report}{said}"
    );
}
