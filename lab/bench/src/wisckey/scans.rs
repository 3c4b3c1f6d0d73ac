//! What short scans beside puts cost: new keys as fast as they go, alone, and beside a thread that scans a few keys twenty times a second.

use super::{
    Config, Figures, Report, Watch,
    contest::{ours_alone, take_turns},
    meter::{Meter, Subject, remove_dir},
    puts::join,
};
use crate::{BenchError, clock, data, histogram::Latencies, live::Live};
use forebay_store::{ScanRange, Store};
use serde::Serialize;
use std::{
    ops::Bound,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// Time from one scan's beginning to the next.
const EVERY: Duration = Duration::from_millis(50);
/// Keys of a scan.
const KEYS: usize = 10;
/// Operations between two notes of progress.
const STEP: u64 = 1024;

/// What the scans cost.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Scanned {
    /// Scans that were done beside the puts.
    pub scans: u64,
    /// Processor time of the thread that scanned, over wall time: its share of a core; `null` without any.
    pub scan_core_share: Option<f64>,
    /// A scan, mean, microseconds; `null` without any.
    pub scan_mean_us: Option<f64>,
    /// The longest, microseconds.
    pub scan_max_us: Option<f64>,
}

/// Runs both in our main variant.
pub(super) fn run(
    config: &Config,
    scratch: &Path,
    watch: &dyn Watch,
    report: &mut Report,
) -> Result<(), BenchError> {
    let config = &Config {
        value_bytes: VALUE_BYTES,
        threads: 1,
        ..config.clone()
    };
    for scanned in [false, true] {
        take_turns(config, &ours_alone(config), report, |contestant, _| {
            let live = Arc::new(Live::default());
            let beside = if scanned { "scans" } else { "no scans" };
            let what = format!("puts beside {beside}, {contestant}");
            watch.begin(&what, config.limit, &live);
            let subject = Subject::new(config, scratch, config.main_variant())?;
            let meter = Meter::start(&subject)?;
            let ops = config.limit.ops.unwrap_or(0);
            let (latencies, scanned) =
                beside_scans(&subject.store, scanned, || puts(&subject.store, ops, &live))?;
            let metered = meter.stop(config, "scans", &subject.store, ops, &latencies?)?;
            let dir = subject.dir().to_owned();
            subject.store.close()?;
            let figures = Figures {
                scanned: Some(scanned),
                ..metered.finish(&dir)?
            };
            remove_dir(&dir)?;
            watch.end(&figures);
            Ok(figures)
        })?;
    }
    Ok(())
}

fn puts(store: &Store, ops: u64, live: &Live) -> Result<Latencies, BenchError> {
    let (seed, values) = (data::fresh_seed(), data::Values::new(VALUE_BYTES));
    let (mut latencies, mut last) = (Latencies::new(), Instant::now());
    for index in 0..ops {
        store.put(&data::key(seed, index), values.value(index))?;
        latencies.record(clock::lap_ns(&mut last));
        if index % STEP == 0 {
            live.add(STEP);
        }
    }
    Ok(latencies)
}

/// Does `work`, beside scans if `scanned`.
fn beside_scans<T>(
    store: &Store,
    scanned: bool,
    work: impl FnOnce() -> T,
) -> Result<(T, Scanned), BenchError> {
    let done = AtomicBool::new(!scanned);
    thread::scope(|scope| {
        let scanner = scope.spawn(|| scan_until(store, &done));
        let outcome = work();
        done.store(true, Relaxed);
        Ok((outcome, join(scanner)?))
    })
}

fn scan_until(store: &Store, done: &AtomicBool) -> Result<Scanned, BenchError> {
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
    Ok(Scanned {
        scans,
        scan_core_share: (scans > 0).then(|| cpu / begun.elapsed().as_secs_f64()),
        scan_mean_us: (scans > 0).then(|| seconds * 1e6 / scans as f64),
        scan_max_us: (scans > 0).then_some(longest * 1e6),
    })
}
