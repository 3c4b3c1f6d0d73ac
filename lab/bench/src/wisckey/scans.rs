//! What short scans beside puts cost: new keys as fast as they go, alone, and beside a thread that scans a few keys twenty times a second.

use super::{
    meter::Subject,
    turns::Run,
    writing::{Keys, write},
};
use crate::{
    BenchError, clock, data,
    report::{Report, Row},
    threads::beside,
};
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
    let (begun, cpu) = (Instant::now(), clock::thread_cpu_seconds());
    let mut random = data::Random::new(data::fresh_seed());
    let (mut scans, mut seconds, mut longest) = (0, 0.0, 0.0_f64);
    while !done.load(Relaxed) {
        let from = Bound::Included(random.number().to_be_bytes().to_vec());
        let one = Instant::now();
        let mut found = store.scan(ScanRange::new(from, Bound::Unbounded))?;
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
    let cpu = clock::thread_cpu_seconds() - cpu;
    // Of no scan 0 / 0, which is written as `null`.
    Ok(json!({
        "scans": scans,
        "scan_core_share": cpu / begun.elapsed().as_secs_f64(),
        "scan_mean_us": seconds * 1e6 / f64::from(scans),
        "scan_max_us": longest * 1e6,
    }))
}
