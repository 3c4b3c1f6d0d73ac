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
mod closed;
mod data;
mod descriptors;
mod files;
mod foreign;
mod numbers;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
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
const SEQUENCES: u64 = 3;

/// A worker that hangs is ended.
const SECONDS_MAX: u32 = 60;

/// The command that runs `worker` under Forebay, up to the worker's own arguments, with a pool of its own in `dir`. Without the `forebay`
/// program (cargo builds it for `cargo test --workspace`) the library alone: nothing is absorbed, but everything goes through the hooks.
fn under_forebay(worker: &Path, dir: &Path) -> Command {
    let Some(forebay) = forebay() else {
        let mut command = Command::new(worker);
        command.env("LD_PRELOAD", support::library());
        return command;
    };
    let pool = dir.join("pool");
    let on_disk = std::env::var_os("FOREBAY_TEST_POOLS").is_some_and(|kind| kind == "disk");
    let kind = if on_disk { "--disk" } else { "--emulated" };
    let made = Command::new(&forebay)
        .args(["pool", "create", kind, "--size", "16MiB"])
        // Small, so that they are drained often.
        .args(["--segment-size", "64KiB"])
        .arg(&pool)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut command = Command::new(forebay);
    command
        .args(["run", "--profile", "generic"])
        .args(["--absorb", "*.log", "--absorb", "*.aof", "--pool"])
        .arg(pool)
        .arg("--")
        .arg(worker)
        .env("FOREBAY_RUN_DIR", dir)
        .env("FOREBAY_LIBRARY", support::library());
    command
}

/// As [`under_forebay`], with everything on an emulated device that keeps nothing in memory, but is fast.
fn on_a_device(worker: &Path, dir: &Path) -> Command {
    let profile = dir.join("device.toml");
    let cost = "{ random_us = 1, mb_s = 10000 }";
    let text = format!("read = {cost}\nwrite = {cost}\n[cache]\nreads = false\nwrites = false\n");
    fs::write(&profile, text).unwrap();
    let plain = under_forebay(worker, dir);
    if forebay().is_none() {
        return plain;
    }
    let mut placed = dir.join("work").into_os_string();
    placed.push("=");
    placed.push(profile);
    let mut arguments = plain.get_args();
    let mut command = Command::new(plain.get_program());
    command
        .args(arguments.next())
        .arg("--device")
        .arg(placed)
        .args(arguments);
    command.envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command
}

/// The program, where cargo puts it.
fn forebay() -> Option<PathBuf> {
    let dir = support::library().parent()?.parent()?.to_owned();
    Some(dir.join("forebay")).filter(|forebay| forebay.exists())
}

fn plain(worker: &Path, _dir: &Path) -> Command {
    Command::new(worker)
}

/// What one run left: its transcript, and its files by name.
struct Outcome {
    transcript: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
}

fn run(seed: u64, command: impl FnOnce(&Path, &Path) -> Command) -> Outcome {
    run_worker("worker", seed, command)
}

/// Runs the test of this name, which works only then.
fn run_worker(name: &str, seed: u64, command: impl FnOnce(&Path, &Path) -> Command) -> Outcome {
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

fn without_rings(mut command: Command) -> Command {
    command.env(foreign::NO_RINGS, "1");
    command
}

/// Two runs at the same time.
fn side_by_side(
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

#[test]
fn the_same_calls_do_the_same() {
    let repeated = env::var("FOREBAY_SEED").ok();
    let seeds: Vec<u64> = match &repeated {
        Some(seed) => vec![seed.parse().unwrap()],
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            (0..SEQUENCES).map(|n| now.as_nanos() as u64 + n).collect()
        }
    };
    let mut called = BTreeSet::new();
    for seed in seeds {
        let (plain, forebay) = side_by_side(seed, plain, under_forebay);
        assert_same(seed, &plain, &forebay);
        let (ringless, device) = side_by_side(
            seed,
            |worker, dir| without_rings(self::plain(worker, dir)),
            |worker, dir| without_rings(on_a_device(worker, dir)),
        );
        assert_same(seed, &ringless, &device);
        for line in &plain.transcript {
            let names = line.strip_prefix(CALLED).unwrap_or("").split_whitespace();
            called.extend(names.map(str::to_owned));
        }
    }
    let lost: Vec<_> = SYMBOLS
        .iter()
        .filter(|name| !called.contains(**name) && !foreign::may_be_missing(name))
        .collect();
    // One sequence need not have all of them.
    assert!(
        lost.is_empty() || repeated.is_some(),
        "never called: {lost:?}"
    );
}

/// Not a test: what the other runs, in a process of its own.
#[test]
fn worker() {
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
    foreign::ring(&mut world);
    world.run_alone(40);
    let called: Vec<_> = world.called.iter().copied().collect();
    let transcript = world.transcript + CALLED + &called.join(" ") + "\n";
    fs::write(env::var(TRANSCRIPT).unwrap(), transcript).unwrap();
}
