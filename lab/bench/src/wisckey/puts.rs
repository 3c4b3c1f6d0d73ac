//! P1's workload: Puts of new keys in random order.

use super::{
    Config, Figures, Limit, Report, Watch,
    contest::{Contestant, take_turns},
    meter::{Meter, Subject, remove_dir},
};
use crate::{BenchError, clock, data, device, histogram::Latencies, live::Live, peers::rocksdb};
use forebay_store::{Store, Variant};
use std::{
    hint,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Operations between two looks at the clock and the counter.
const STEP: u64 = 64;
/// How long the floor of several threads is measured.
const FLOOR: Duration = Duration::from_secs(1);

/// Which key a Put has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keys {
    /// Keys that no other Put has, from this index on.
    New(u64),
    /// One of the first so many, at random.
    Among(u64),
}

/// Runs the Puts in every variant. The device has a turn in each round too, so that it is measured under the
/// conditions of the rows that are compared with it.
pub(super) fn run(
    config: &Config,
    scratch: &Path,
    contestants: &[Contestant],
    watch: &dyn Watch,
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut device = Vec::new();
    take_turns(config, contestants, report, |contestant, _| {
        if Some(&contestant) == contestants.first() {
            watch.note("measuring the device");
            device.push(device::measure(scratch, config.effort)?);
        }
        let live = Arc::new(Live::default());
        let figures = match contestant {
            Contestant::Ours(variant) => ours(config, scratch, variant, watch, &live)?,
            Contestant::RocksDb(mode) => {
                watch.begin(&format!("put, {contestant}"), config.limit, &live);
                rocksdb::put(config, &scratch.join("rocksdb"), mode)?
            }
            Contestant::Other(other, mode) => {
                watch.begin(&format!("put, {contestant}"), config.limit, &live);
                other.put(config, &scratch.join(other.name()), mode)?
            }
        };
        watch.end(&figures);
        Ok(figures)
    })?;
    report.device_rounds.extend(device);
    Ok(())
}

fn ours(
    config: &Config,
    scratch: &Path,
    variant: Variant,
    watch: &dyn Watch,
    live: &Arc<Live>,
) -> Result<Figures, BenchError> {
    let seed = data::fresh_seed();
    let subject = if config.preload_bytes > 0 {
        watch.note(&format!("loading, {variant}"));
        Subject::preloaded(config, scratch, variant, seed)?
    } else {
        Subject::new(config, scratch, variant)?
    };
    watch.begin(&format!("put, {variant}"), config.limit, live);
    let meter = Meter::start(&subject)?;
    let keys = match config.preload_bytes {
        0 => Keys::New(0),
        _ => Keys::New(config.data_keys()),
    };
    let (ops, latencies) = write(config, &subject.store, seed, keys, config.limit, live)?;
    let metered = meter.stop(config, "put", &subject.store, ops, &latencies)?;
    let dir = subject.dir().to_owned();
    subject.store.close()?;
    let mut figures = metered.finish(&dir)?;
    remove_dir(&dir)?;
    if let (2.., Some(put_us)) = (config.threads, figures.latency.p50_us) {
        let put = Duration::from_secs_f64(put_us / 1e6);
        figures.floor = Some(floor(config.threads, put).percentiles());
    }
    Ok(figures)
}

/// How long an operation takes each of so many threads that computes for `each`, and neither waits nor shares anything: longer than that
/// only if the thread has no processor. No program whose operations compute as long can have fewer slow ones.
fn floor(threads: usize, each: Duration) -> Latencies {
    let until = Instant::now() + FLOOR;
    thread::scope(|scope| {
        let computing: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let (mut latencies, mut last) = (Latencies::new(), Instant::now());
                    while last < until {
                        let begun = last;
                        while begun.elapsed() < each {
                            hint::spin_loop();
                        }
                        latencies.record(clock::lap_ns(&mut last));
                    }
                    latencies
                })
            })
            .collect();
        let mut all = Latencies::new();
        for thread in computing {
            all.merge(&join(thread));
        }
        all
    })
}

/// Fills the data set: every key once, in random order.
pub(super) fn load(config: &Config, store: &Store, seed: u64) -> Result<(), BenchError> {
    let config = Config {
        latencies: false,
        ..config.clone()
    };
    let limit = Limit {
        ops: Some(config.data_keys()),
        seconds: None,
    };
    write(&config, store, seed, Keys::New(0), limit, &Live::default())?;
    Ok(())
}

/// Puts from all threads up to `limit`. Returns how many, and their latencies.
pub(super) fn write(
    config: &Config,
    store: &Store,
    seed: u64,
    keys: Keys,
    limit: Limit,
    live: &Live,
) -> Result<(u64, Latencies), BenchError> {
    let values = data::Values::new(config.value_bytes);
    let threads = config.threads as u64;
    let deadline = limit
        .seconds
        .map(|s| Instant::now() + Duration::from_secs_f64(s));
    let outcomes: Vec<Result<(u64, Latencies), BenchError>> = thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                let values = &values;
                scope.spawn(move || {
                    let writer = Writer {
                        store,
                        values,
                        seed,
                        keys,
                        thread,
                        threads,
                        // The first threads do what does not divide.
                        ops_max: limit.ops.map_or(u64::MAX, |ops| {
                            ops / threads + u64::from(thread < ops % threads)
                        }),
                        deadline,
                        live,
                    };
                    if config.latencies {
                        writer.run::<true>()
                    } else {
                        writer.run::<false>()
                    }
                })
            })
            .collect();
        writers.into_iter().map(join).collect()
    });
    let (mut ops, mut latencies) = (0, Latencies::new());
    for outcome in outcomes {
        let (done, theirs) = outcome?;
        ops += done;
        latencies.merge(&theirs);
    }
    Ok((ops, latencies))
}

/// Joins a thread; its panic is ours.
pub(super) fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// One writing thread.
struct Writer<'a> {
    store: &'a Store,
    values: &'a data::Values,
    seed: u64,
    keys: Keys,
    thread: u64,
    threads: u64,
    ops_max: u64,
    deadline: Option<Instant>,
    live: &'a Live,
}

impl Writer<'_> {
    fn run<const LATENCIES: bool>(&self) -> Result<(u64, Latencies), BenchError> {
        let mut latencies = Latencies::new();
        let mut random = data::Random::new(data::fresh_seed());
        let mut done = 0;
        let mut last = Instant::now();
        while done < self.ops_max {
            let index = match self.keys {
                Keys::New(first) => first + done * self.threads + self.thread,
                Keys::Among(keys) => random.below(keys),
            };
            self.store
                .put(&data::key(self.seed, index), self.values.value(done))?;
            done += 1;
            if LATENCIES {
                latencies.record(clock::lap_ns(&mut last));
            }
            if done.is_multiple_of(STEP) {
                self.live.add(STEP);
                if !LATENCIES {
                    last = Instant::now();
                }
            }
            if (LATENCIES || done.is_multiple_of(STEP))
                && self.deadline.is_some_and(|deadline| last >= deadline)
            {
                break;
            }
        }
        Ok((done, latencies))
    }
}
