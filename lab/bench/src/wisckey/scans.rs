//! What short scans beside puts cost: new keys as fast as they go, alone, and beside a thread that scans a few keys twenty times a second.

use super::{
    contest::Run,
    meter::{Subject, metered},
    rows::{Figures, Report},
    writing::{Keys, write},
};
use crate::{BenchError, clock, data, threads::beside};
use forebay_store::{ScanRange, Store};
use serde_json::{Value, json};
use std::{
    ops::Bound,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Time from one scan's beginning to the next.
const EVERY: Duration = Duration::from_millis(50);
/// Keys of a scan.
const KEYS: usize = 10;

/// Runs both in our main variant.
pub(super) fn run(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    let (config, scratch) = (run.config, run.scratch);
    for (what, is_scanned) in [("puts beside no scans", false), ("puts beside scans", true)] {
        run.alone(report, what, || {
            let subject = Subject::new(config, scratch, config.main_variant())?;
            let measured = |store: &_, figures: &mut Figures| {
                let scan = |done: &AtomicBool| match is_scanned {
                    true => scan_until(store, done),
                    false => Ok(told(0, None, None, None)),
                };
                let seed = data::fresh_seed();
                let puts = || write(config, store, seed, Keys::New(0), config.limit);
                let (scanned, put) = beside(scan, puts);
                figures.add(scanned?);
                put
            };
            metered(config, subject, "scans", measured, |_| ())
        })?;
    }
    Ok(())
}

fn scan_until(store: &Store, done: &AtomicBool) -> Result<Value, BenchError> {
    let (begun, cpu) = (Instant::now(), clock::thread_cpu_seconds());
    let mut random = data::Random::new(data::fresh_seed());
    let (mut scans, mut seconds, mut longest) = (0, 0.0, 0.0_f64);
    while !done.load(Relaxed) {
        let from = random.number().to_be_bytes().to_vec();
        let one = Instant::now();
        for found in store
            .scan(ScanRange::new(Bound::Included(from), Bound::Unbounded))?
            .take(KEYS)
        {
            found?;
        }
        let took = one.elapsed();
        scans += 1;
        seconds += took.as_secs_f64();
        longest = longest.max(took.as_secs_f64());
        thread::sleep(EVERY.saturating_sub(took));
    }
    let cpu = clock::thread_cpu_seconds() - cpu;
    let share = (scans > 0).then(|| cpu / begun.elapsed().as_secs_f64());
    let mean = (scans > 0).then(|| seconds * 1e6 / scans as f64);
    Ok(told(
        scans,
        share,
        mean,
        (scans > 0).then_some(longest * 1e6),
    ))
}

/// What so many scans cost: the thread's share of a core, and the mean and the longest of them; none
/// of none.
fn told(scans: u64, share: Option<f64>, mean_us: Option<f64>, max_us: Option<f64>) -> Value {
    json!({
        "scans": scans,
        "scan_core_share": share,
        "scan_mean_us": mean_us,
        "scan_max_us": max_us,
    })
}
