//! Running a worker plain and under a library, and comparing what they wrote down and left. The
//! laboratory's test has it too.
#![allow(dead_code, reason = "each program uses a part of it")]

use crate::{aio, cancel, libraries, support::SYMBOLS, threads, world::World};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};
use tempfile::TempDir;

/// Where the worker finds its seed and writes its transcript: it works only if this is set.
pub const SEED: &str = "FOREBAY_DIFFERENTIAL_SEED";
pub const TRANSCRIPT: &str = "FOREBAY_DIFFERENTIAL_TRANSCRIPT";

/// The lines of the transcript that name the functions that were called.
const CALLED: &str = "called ";

/// Random sequences per run of the test.
const SEQUENCES: u64 = 3;

/// With those that are run because a hook was not called yet.
const SEQUENCES_MAX: u64 = 30;

/// Functions that are called and no hooks, at least not of the product.
const OTHERS: [&str; 3] = ["fork", "sigaction", "signal"];

/// A worker that hangs is ended.
pub const SECONDS_MAX: u32 = 300;

/// The program of this name, where cargo puts it, seen from a library beside the tests.
pub fn program(name: &str, library: &Path) -> Option<PathBuf> {
    let dir = library.parent()?.parent()?;
    Some(dir.join(name)).filter(|program| program.exists())
}

/// Makes the pool in `dir` that [`run_with_pool`] runs with.
pub fn make_pool(forebay: &Path, dir: &Path) {
    let on_disk = std::env::var_os("FOREBAY_TEST_POOLS").is_some_and(|kind| kind == "disk");
    let kind = if on_disk { "--disk" } else { "--emulated" };
    let made = Command::new(forebay)
        .args(["pool", "create", kind, "--size", "16MiB"])
        // Small, so that they are drained often.
        .args(["--segment-size", "64KiB"])
        .arg(dir.join("pool"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// `program run` with the pool in `dir`; its other options, `--` and the program are still to come.
pub fn run_with_pool(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(["run", "--profile", "generic"])
        .args(["--absorb", "*.log", "--absorb", "*.aof", "--pool"])
        .arg(dir.join("pool"))
        .env("FOREBAY_RUN_DIR", dir);
    command
}

pub fn plain(worker: &Path, _dir: &Path) -> Command {
    Command::new(worker)
}

/// The seeds of a run of the test: new ones, or the one to be repeated.
pub fn seeds() -> Vec<u64> {
    match env::var("FOREBAY_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            (0..SEQUENCES).map(|n| now.as_nanos() as u64 + n).collect()
        }
    }
}

/// What one run left: its transcript, and its files by name.
pub struct Outcome {
    pub transcript: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
    /// The writes that `--explain` says were absorbed.
    absorbed_writes: u64,
}

pub fn run(seed: u64, command: impl FnOnce(&Path, &Path) -> Command) -> Outcome {
    run_worker("worker", seed, command)
}

/// Runs the test of this name, which works only then.
pub fn run_worker(name: &str, seed: u64, command: impl FnOnce(&Path, &Path) -> Command) -> Outcome {
    // Not in /tmp, which may be in memory.
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let transcript = dir.path().join("transcript");
    let output = command(&env::current_exe().unwrap(), dir.path())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(SEED, seed.to_string())
        .env(TRANSCRIPT, &transcript)
        .current_dir(&work)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "FOREBAY_SEED={seed}: {}\n{said}",
        output.status
    );
    // Of a program that no agent can serve nothing has been shown.
    assert!(!said.contains("runs plainly"), "{said}");
    let transcript = fs::read_to_string(transcript).unwrap();
    let mut files = BTreeMap::new();
    collect(&work, &work, &mut files);
    Outcome {
        transcript: transcript.lines().map(str::to_owned).collect(),
        files,
        absorbed_writes: absorbed_writes(&said),
    }
}

/// Sums the writes of the table of files that `--explain` prints.
fn absorbed_writes(said: &str) -> u64 {
    let is_head = |line: &&str| line.split_whitespace().take(2).eq(["file", "writes"]);
    let rows = said.lines().skip_while(|line| !is_head(line)).skip(1);
    let number =
        |word: Option<&str>| word.and_then(|word| word.replace(',', "").parse::<u64>().ok());
    // Its last row may be `and N more`.
    rows.map_while(|row| {
        let mut words = row.split_whitespace();
        match words.next()? {
            "and" => number(words.nth(2)),
            _ => number(words.next()),
        }
    })
    .sum::<u64>()
}

/// A run that absorbs nothing is the same as without, and shows nothing.
#[track_caller]
pub fn assert_absorbs(seed: u64, forebay: &Outcome) {
    assert!(
        forebay.absorbed_writes > 0,
        "FOREBAY_SEED={seed}: nothing was absorbed"
    );
}

fn collect(root: &Path, dir: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if path.is_dir() {
            collect(root, &path, files);
        } else if path.is_symlink() && !path.exists() {
            files.insert(name, b"a link to nothing".to_vec());
        } else {
            let bytes = fs::read(&path).unwrap();
            files.insert(name.clone(), threads::in_any_order(&name, bytes));
        }
    }
}

pub fn assert_same(seed: u64, plain: &Outcome, forebay: &Outcome) {
    for (line, (expected, found)) in plain.transcript.iter().zip(&forebay.transcript).enumerate() {
        let before = plain.transcript[line.saturating_sub(8)..line].join("\n");
        assert!(
            expected == found,
            "FOREBAY_SEED={seed}, line {line}, after\n{before}\nplain:   {expected}\nforebay: {found}"
        );
    }
    assert_eq!(
        plain.transcript.len(),
        forebay.transcript.len(),
        "FOREBAY_SEED={seed}"
    );
    let names = |outcome: &Outcome| outcome.files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(plain), names(forebay), "FOREBAY_SEED={seed}");
    for (name, expected) in &plain.files {
        let found = &forebay.files[name];
        let at = expected.iter().zip(found).position(|(a, b)| a != b);
        assert!(
            expected == found,
            "FOREBAY_SEED={seed}: {name}: {} bytes plain, {} under Forebay, different at {at:?}",
            expected.len(),
            found.len()
        );
    }
}

pub fn without_rings(mut command: Command) -> Command {
    command.env(aio::NO_RINGS, "1");
    command
}

/// Two runs at the same time.
pub fn side_by_side(
    seed: u64,
    one: impl FnOnce(&Path, &Path) -> Command + Send,
    other: impl FnOnce(&Path, &Path) -> Command,
) -> (Outcome, Outcome) {
    thread::scope(|scope| {
        let one = scope.spawn(|| run(seed, one));
        let other = run(seed, other);
        (one.join().unwrap(), other)
    })
}

/// Compares random sequences, and further ones until every hook was called: a call may depend on
/// what the calls before it left, so that no number of sequences is sure to have all.
pub fn compare_until_all_are_called(compare: impl Fn(u64) -> Outcome) {
    let seeds = seeds();
    let further = seeds[0] + SEQUENCES..seeds[0] + SEQUENCES_MAX;
    let mut outcomes: Vec<_> = seeds.into_iter().map(&compare).collect();
    let lost = not_hooked(&outcomes);
    assert!(lost.is_empty(), "not in the table: {lost:?}");
    if env::var_os("FOREBAY_SEED").is_some() {
        return;
    }
    for seed in further {
        if never_called(&outcomes).is_empty() {
            return;
        }
        outcomes.push(compare(seed));
    }
    let lost = never_called(&outcomes);
    assert!(lost.is_empty(), "never called: {lost:?}");
}

/// The functions that these runs called.
fn called(outcomes: &[Outcome]) -> BTreeSet<&str> {
    let lines = outcomes.iter().flat_map(|outcome| &outcome.transcript);
    lines
        .filter_map(|line| line.strip_prefix(CALLED))
        .flat_map(str::split_whitespace)
        .collect()
}

/// Those of them that the library's table has lost: the worker calls hooks.
fn not_hooked(outcomes: &[Outcome]) -> Vec<&str> {
    let called = called(outcomes).into_iter();
    called
        .filter(|name| !SYMBOLS.contains(name) && !OTHERS.contains(name))
        .collect()
}

/// The hooks that none of these runs called.
fn never_called(outcomes: &[Outcome]) -> Vec<&'static str> {
    let called = called(outcomes);
    SYMBOLS
        .iter()
        .copied()
        .filter(|name| !called.contains(*name))
        .filter(|name| !libraries::is_of_the_linker(name) && !libraries::executes(name))
        .filter(|name| !libraries::may_be_missing(name))
        .collect()
}

/// What the worker does, in a process of its own.
pub fn work() {
    let Ok(seed) = env::var(SEED) else {
        return;
    };
    unsafe { libc::alarm(SECONDS_MAX) };
    let mut world = World::new(seed.parse().unwrap());
    world.run_in_turn();
    for _ in 0..4 {
        world.run_alone(80);
    }
    threads::run(&mut world);
    cancel::run(&mut world);
    world.forget_threads();
    aio::ring(&mut world);
    world.run_alone(40);
    let called: Vec<_> = world.called.iter().copied().collect();
    let transcript = world.transcript + CALLED + &called.join(" ") + "\n";
    fs::write(env::var(TRANSCRIPT).unwrap(), transcript).unwrap();
}
