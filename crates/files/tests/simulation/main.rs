//! The files tier on simulated machines: hours of deaths and power cuts in minutes, and each of
//! them again by the number of its seed.
//!
//! Processes are real ones, `lab run`, its database and `lab recover`, all of the product's code.
//! A tracer ([`ptrace`]) has one of their threads go on at a time, from system call to system call;
//! it gives them time and random numbers, and knows from their calls what the kernel's page cache
//! has and the disk lacks ([`machine`], [`disk`]). A seed chooses what the program does
//! ([`program`]), who dies when, and which pages survive ([`round`]). [`oracle`] judges what a
//! recovery leaves. docs/files-replay.md says what is not simulated.
//!
//! `FOREBAY_SEED=n FOREBAY_TRACE=1` shows every step of a seed; `FOREBAY_SEEDS=n` runs as many
//! from there on (`make simulate`).
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod disk;
mod machine;
mod oracle;
mod program;
mod ptrace;
mod round;

use round::{Outcome, Tally, Wishes};
use std::{
    sync::{
        Mutex, Once,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

/// Seeds of a run of the tests.
const SEEDS: u64 = 24;
/// A broken program is found out by so many.
const SEEDS_OF_BROKEN: u64 = 200;
/// A seed takes a fraction of a second, and on a busy machine not so long.
const STILL: Duration = Duration::from_secs(300);
/// The steps before a failure that are shown.
const SHOWN: usize = 80;

fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// The seeds that run, each in a thread, and since when.
static RUNNING: Mutex<Vec<(ThreadId, u64, Instant)>> = Mutex::new(Vec::new());

/// Runs a seed, and ends the tests if that stands still: a thread waits in the kernel for another
/// one, in a call that the machine takes for none that waits.
fn run(seed: u64, wishes: Wishes) -> Outcome {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_secs(1));
                let running = RUNNING.lock().unwrap();
                let mut still = running.iter().filter(|(.., since)| since.elapsed() > STILL);
                if let Some((_, seed, _)) = still.next() {
                    eprintln!("FOREBAY_SEED={seed}: it stands still");
                    std::process::abort();
                }
            }
        });
    });
    let me = thread::current().id();
    RUNNING.lock().unwrap().push((me, seed, Instant::now()));
    let done = round::run(seed, wishes);
    RUNNING.lock().unwrap().retain(|(thread, ..)| *thread != me);
    done
}

/// Of the processes that this thread starts one goes on at a time.
fn on_one_processor() {
    use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    let _ = sched_setaffinity(None, &one);
}

/// What a seed did: all of it if that was asked for, otherwise the last steps before a failure.
fn in_words(seed: u64, outcome: &Outcome) -> Option<String> {
    let is_wanted = std::env::var_os("FOREBAY_TRACE").is_some();
    let why = match &outcome.done {
        Err(why) => why,
        Ok(_) if is_wanted => "nothing is lost",
        Ok(_) => return None,
    };
    let shown = if is_wanted { usize::MAX } else { SHOWN };
    let from = outcome.story.len().saturating_sub(shown);
    let story = outcome.story[from..].join("\n");
    Some(format!("{story}\nFOREBAY_SEED={seed}: {why}"))
}

/// Runs seeds from `first` on, some at a time: what was done, and the failures.
fn run_all(first: u64, count: u64) -> (Tally, Vec<String>) {
    let next = AtomicU64::new(first);
    let done = Mutex::new((Tally::default(), Vec::new()));
    let work = || {
        on_one_processor();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + count {
                return;
            }
            let outcome = run(seed, Wishes::default());
            let mut done = done.lock().unwrap();
            let told = in_words(seed, &outcome);
            match outcome.done {
                Ok(tally) => {
                    done.0.add(&tally);
                    told.inspect(|told| println!("{told}"));
                }
                Err(_) => done.1.extend(told),
            }
        }
    };
    let at_a_time = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    thread::scope(|scope| {
        for _ in 0..at_a_time.min(count) {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap()
}

/// Promise: as `whatever_dies_at_any_moment_what_was_synced_is_there`.
/// Promise: as `a_replay_that_is_cut_anywhere_is_repeated_and_ends_the_same`.
#[test]
fn what_was_synced_survives_any_death_of_a_simulated_machine() {
    let first = given("FOREBAY_SEED").unwrap_or(1);
    let is_one = given("FOREBAY_SEED").is_some();
    let count = given("FOREBAY_SEEDS").unwrap_or(if is_one { 1 } else { SEEDS });
    let begun = Instant::now();
    let (all, failures) = run_all(first, count);
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{} runs, {} power cuts and {} kills in {seconds:.1} s ({:.0} cuts a second): {} steps, {:.1} s of the machine's time, \
         {} syncs acknowledged, {} lanes replayed, {} refused without --force",
        all.runs,
        all.cuts,
        all.kills,
        all.cuts as f64 / seconds,
        all.steps,
        all.time as f64 / 1e9,
        all.acknowledged,
        all.replayed,
        all.refused,
    );
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn a_seed_does_the_same_again() {
    on_one_processor();
    for seed in [3, 11] {
        let [one, other] = [(); 2].map(|()| run(seed, Wishes::default()));
        let differs = one
            .story
            .iter()
            .zip(&other.story)
            .find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.done, other.done, "seed {seed}");
    }
}

/// Seeds find out what is broken.
#[track_caller]
fn loses(wishes: Wishes) {
    on_one_processor();
    let found = (1..=SEEDS_OF_BROKEN).find_map(|seed| run(seed, wishes).done.err());
    let found = found.expect("no seed finds it out");
    println!("{found}");
}

#[test]
fn a_drain_that_releases_before_it_syncs_is_found_out() {
    loses(Wishes {
        broken: "release-early",
        ..Wishes::default()
    });
}

#[test]
fn a_sync_that_commits_nothing_is_found_out() {
    loses(Wishes {
        broken: "no-commit",
        ..Wishes::default()
    });
}

#[test]
fn a_log_without_a_first_sync_is_found_out() {
    loses(Wishes {
        broken: "no-registration-sync",
        ..Wishes::default()
    });
}

#[test]
fn changes_of_names_that_nobody_counts_are_found_out() {
    loses(Wishes {
        is_uncounted: true,
        ..Wishes::default()
    });
}
