//! How long the longest put takes: many new keys of 16 bytes whose first eight are the same, as fast as they go, beside two threads
//! that keep processors busy. Such keys cost an ingestion more than P1's keys of eight random bytes, and busy processors give
//! it less; together they show whether writers wait for it.
//!
//! The threads that keep processors busy look at the clock all the time: the longest they miss is what the scheduler alone keeps a thread
//! that always wants a processor from having one, and stands beside the longest put as its floor.

use super::{
    Config, Figures, Report, Watch,
    contest::{ours_alone, take_turns},
    meter::{Meter, Subject, remove_dir},
    puts::join,
};
use crate::{BenchError, clock, data, histogram::Latencies, live::Live};
use forebay_store::Variant;
use serde::Serialize;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// Threads that keep processors busy.
const BUSY: usize = 2;
/// Operations between two notes of progress.
const STEP: u64 = 1024;
/// Upper bounds of the histogram's steps, microseconds.
const STEPS_US: [u64; 10] = [
    10, 100, 250, 500, 1000, 5000, 10_000, 20_000, 50_000, 100_000,
];

/// A step of the histogram.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Step {
    /// Operations that took at most this long, and longer than the step before; `null` for any longer.
    pub up_to_us: Option<u64>,
    /// How many.
    pub ops: u64,
}

/// Runs it in our main variant.
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
    take_turns(config, &ours_alone(config), report, |contestant, _| {
        let live = Arc::new(Live::default());
        watch.begin(&format!("stalls, {contestant}"), config.limit, &live);
        let (figures, floor) =
            beside_busy_threads(|| one(config, scratch, config.main_variant(), &live));
        let figures = Figures {
            floor: Some(floor.percentiles()),
            ..figures?
        };
        watch.end(&figures);
        Ok(figures)
    })
}

/// Does `work` beside threads that never rest; how long each look at the clock took them meanwhile.
fn beside_busy_threads<T>(work: impl FnOnce() -> T) -> (T, Latencies) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let busy: Vec<_> = (0..BUSY)
            .map(|_| {
                scope.spawn(|| {
                    let (mut gaps, mut last) = (Latencies::new(), Instant::now());
                    while !done.load(Relaxed) {
                        gaps.record(clock::lap_ns(&mut last));
                    }
                    gaps
                })
            })
            .collect();
        let outcome = work();
        done.store(true, Relaxed);
        let mut gaps = Latencies::new();
        for thread in busy {
            gaps.merge(&join(thread));
        }
        (outcome, gaps)
    })
}

fn one(
    config: &Config,
    scratch: &Path,
    variant: Variant,
    live: &Live,
) -> Result<Figures, BenchError> {
    let subject = Subject::new(config, scratch, variant)?;
    let meter = Meter::start(&subject)?;
    let (seed, values) = (data::fresh_seed(), data::Values::new(VALUE_BYTES));
    let ops = config.limit.ops.unwrap_or(u64::MAX);
    let mut latencies = Latencies::new();
    let mut key = *b"the key 12345678";
    let mut last = Instant::now();
    for index in 0..ops {
        key[8..].copy_from_slice(&data::key(seed, index));
        subject.store.put(&key, values.value(index))?;
        latencies.record(clock::lap_ns(&mut last));
        if index % STEP == 0 {
            live.add(STEP);
        }
    }
    let metered = meter.stop(config, "stalls", &subject.store, ops, &latencies)?;
    let dir = subject.dir().to_owned();
    subject.store.close()?;
    let mut figures = metered.finish(&dir)?;
    figures.histogram = histogram(&latencies);
    remove_dir(&dir)?;
    Ok(figures)
}

fn histogram(latencies: &Latencies) -> Vec<Step> {
    let mut below = 0;
    let bounds = STEPS_US.into_iter().map(Some).chain([None]);
    bounds
        .map(|up_to_us| {
            let up_to = latencies.at_most(up_to_us.map_or(u64::MAX, |us| us * 1000));
            let ops = up_to - below;
            below = up_to;
            Step { up_to_us, ops }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_in_one_step_of_the_histogram() {
        let mut latencies = Latencies::new();
        for us in [1, 9, 90, 900, 40_000, 3_000_000] {
            latencies.record(us * 1000);
        }
        let steps = histogram(&latencies);
        let ops: Vec<u64> = steps.iter().map(|step| step.ops).collect();
        assert_eq!(ops, [2, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1]);
    }
}
