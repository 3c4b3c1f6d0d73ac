//! Puts beside threads that do something else, and what each costs the other.
//!
//! * `stalls`, the longest put: many new keys of 16 bytes whose first eight are the same, as fast
//!   as they go, beside two threads that keep processors busy. Such keys cost an ingestion more
//!   than P1's keys of eight random bytes, and busy processors give it less; together they show
//!   whether writers wait for it. The busy threads look at the clock all the time: the longest they
//!   miss is what the scheduler alone keeps a thread that always wants a processor from having one,
//!   and stands beside the longest put as its floor.
//! * `scans`: new keys as fast as they go, alone, and beside a thread that scans a few keys twenty
//!   times a second.

use super::{
    meter::Subject,
    turns::Run,
    writing::{Keys, write},
};
use crate::{
    BenchError,
    clock::{ClockId, cpu_seconds},
    data,
    report::{Report, Row, latency},
    threads::{beside, keep_busy},
};
use forebay_store::Store;
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Threads that keep processors busy.
const BUSY: usize = 2;
/// Runs `stalls` in our main variant.
pub(super) fn stalls(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    let config = run.config;
    run.alone(report, "stalls", || {
        let never_rest =
            |done: &AtomicBool| keep_busy(BUSY, Duration::ZERO, |_| !done.load(Relaxed));
        let (floor, row) = beside(never_rest, || {
            let measured = |store: &_, row: &mut Row| {
                let (keys, seed) = (Keys::Long, data::fresh_seed());
                let (ops, latencies) = write(config, store, seed, keys, config.limit)?;
                row.add(json!({"histogram": latencies.steps()}));
                Ok((ops, latencies))
            };
            Subject::new(run, config.main_variant())?.metered("stalls", measured)
        });
        Ok(row?.with(json!({"floor": latency(floor?.percentiles())})))
    })
}

/// Time from one scan's beginning to the next.
const EVERY: Duration = Duration::from_millis(50);
/// Keys of a scan.
const KEYS: usize = 10;

/// Runs `scans` in our main variant, without any and with them.
pub(super) fn scans(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    let config = run.config;
    for (what, is_scanned) in [("puts beside no scans", false), ("puts beside scans", true)] {
        run.alone(report, what, || {
            let measured = |store: &_, row: &mut Row| {
                let scan = |done: &AtomicBool| match is_scanned {
                    true => scan_until(store, done),
                    false => Ok(json!({"scans": 0})),
                };
                let seed = data::fresh_seed();
                let puts = || write(config, store, seed, Keys::New(0), config.limit);
                let (scanned, put) = beside(scan, puts);
                row.add(scanned?);
                put
            };
            Subject::new(run, config.main_variant())?.metered("scans", measured)
        })?;
    }
    Ok(())
}

/// What the scans cost: the thread's share of a core, and the mean and the longest of them.
fn scan_until(store: &Store, done: &AtomicBool) -> Result<Value, BenchError> {
    let (begun, cpu) = (Instant::now(), cpu_seconds(ClockId::ThreadCPUTime));
    let mut random = data::Random::new(data::fresh_seed());
    let (mut scans, mut seconds, mut longest) = (0, 0.0, 0.0_f64);
    while !done.load(Relaxed) {
        let from = random.number().to_be_bytes();
        let one = Instant::now();
        let mut found = store.range(from..)?;
        found
            .by_ref()
            .take(KEYS)
            .try_for_each(|pair| pair.map(drop))?;
        let took = one.elapsed();
        scans += 1;
        seconds += took.as_secs_f64();
        longest = longest.max(took.as_secs_f64());
        thread::sleep(EVERY.saturating_sub(took));
    }
    let cpu = cpu_seconds(ClockId::ThreadCPUTime) - cpu;
    // Of no scan 0 / 0, which is written as `null`.
    Ok(json!({
        "scans": scans,
        "scan_core_share": cpu / begun.elapsed().as_secs_f64(),
        "scan_mean_us": seconds * 1e6 / f64::from(scans),
        "scan_max_us": longest * 1e6,
    }))
}
