//! A program cannot tell whether it runs under Forebay: random file calls have the same results, errno, descriptors and
//! bytes as without.
//!
//! A worker (this program again, [`worker`]) makes the calls that a seed says in an empty directory, and writes down what each did. It runs plain and
//! under Forebay; the transcripts and the directories must be the same. Of what threads do at the same time only what does not depend on
//! their order is compared. `FOREBAY_SEED=n` repeats a run.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "calls the C library, with wrong arguments too"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cancel;
mod data;
mod descriptors;
mod files;
mod foreign;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};
use support::SYMBOLS;
use tempfile::TempDir;
use world::World;

/// Where the worker finds its seed and writes its transcript: it works only if this is set.
const SEED: &str = "FOREBAY_DIFFERENTIAL_SEED";
const TRANSCRIPT: &str = "FOREBAY_DIFFERENTIAL_TRANSCRIPT";

/// The lines of the transcript that name the functions that were called.
const CALLED: &str = "called ";

/// Random sequences per run of the test.
const SEQUENCES: u64 = 10;

/// The command under Forebay, up to the worker's own arguments.
fn under_forebay(worker: &Path) -> Command {
    let mut command = Command::new(worker);
    command.env("LD_PRELOAD", support::library());
    command
}

fn plain(worker: &Path) -> Command {
    Command::new(worker)
}

/// What one run left: its transcript, and its files by name.
struct Outcome {
    transcript: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
}

fn run(seed: u64, command: impl FnOnce(&Path) -> Command) -> Outcome {
    // Not in /tmp, which may be in memory.
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let transcript = dir.path().join("transcript");
    let status = command(&env::current_exe().unwrap())
        .args(["worker", "--exact", "--nocapture", "--test-threads=1"])
        .env(SEED, seed.to_string())
        .env(TRANSCRIPT, &transcript)
        .current_dir(&work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "FOREBAY_SEED={seed}: {status}");
    let transcript = fs::read_to_string(transcript).unwrap();
    let mut files = BTreeMap::new();
    collect(&work, &work, &mut files);
    Outcome {
        transcript: transcript.lines().map(str::to_owned).collect(),
        files,
    }
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

fn assert_same(seed: u64, plain: &Outcome, forebay: &Outcome) {
    for (line, (expected, found)) in plain
        .transcript
        .iter()
        .zip(&forebay.transcript)
        .enumerate()
    {
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

#[test]
fn the_same_calls_do_the_same() {
    let seeds: Vec<u64> = match env::var("FOREBAY_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            (0..SEQUENCES).map(|n| now.as_nanos() as u64 + n).collect()
        }
    };
    let mut called = BTreeSet::new();
    for seed in seeds {
        let (plain, forebay) = (run(seed, plain), run(seed, under_forebay));
        assert_same(seed, &plain, &forebay);
        for line in &plain.transcript {
            let names = line.strip_prefix(CALLED).unwrap_or("").split_whitespace();
            called.extend(names.map(str::to_owned));
        }
    }
    let lost: Vec<_> = SYMBOLS
        .iter()
        .filter(|name| !called.contains(**name) && !foreign::may_be_missing(name))
        .collect();
    assert!(lost.is_empty(), "never called: {lost:?}");
}

/// Not a test: what the other runs, in a process of its own.
#[test]
fn worker() {
    let Ok(seed) = env::var(SEED) else {
        return;
    };
    let mut world = World::new(seed.parse().unwrap());
    world.run_alone();
    threads::run(&mut world);
    cancel::run(&mut world);
    let called: Vec<_> = world.called.iter().copied().collect();
    let transcript = world.transcript + CALLED + &called.join(" ") + "\n";
    fs::write(env::var(TRANSCRIPT).unwrap(), transcript).unwrap();
}
