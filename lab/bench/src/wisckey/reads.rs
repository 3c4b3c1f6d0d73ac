//! Random gets and range scans of 100 keys, on three data sets: one that fits into the block cache, one that is larger
//! but in the page cache, and the latter from the device.

use super::{
    Config, Figures, Limit, Report, Watch,
    contest::{Contestant, finalists, take_turns},
    meter::{Subject, remove_dir},
    puts::join,
};
use crate::{
    BenchError, clock, data, histogram::Latencies, live::Live, peers::rocksdb,
    scratch::drop_page_cache,
};
use forebay_store::{ScanRange, Store, Variant};
use std::{hint::black_box, ops::Bound, path::Path, sync::Arc, thread, time::Instant};

/// One scan counts for so many gets when the number of operations is chosen.
const GETS_PER_SCAN: u64 = 20;

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// One key.
    Get,
    /// [`SCAN_KEYS`](Self::SCAN_KEYS) pairs after the one that it starts from.
    Scan,
}

impl Read {
    /// As db_bench's `--seek_nexts`.
    pub(crate) const SCAN_KEYS: u64 = 100;
}

/// The row's name, and from where.
const ROWS: [(&str, Read, bool); 4] = [
    ("get", Read::Get, false),
    ("scan_100", Read::Scan, false),
    ("get_cold", Read::Get, true),
    ("scan_100_cold", Read::Scan, true),
];

/// Runs all of them in our main variant and on the peer.
pub(super) fn run(
    config: &Config,
    scratch: &Path,
    contestants: &[Contestant],
    watch: &dyn Watch,
    report: &mut Report,
) -> Result<(), BenchError> {
    let cached = Config {
        preload_bytes: config.cache_bytes / 2,
        ..config.clone()
    };
    sized(&cached, scratch, contestants, watch, report, &ROWS[..2])?;
    sized(config, scratch, contestants, watch, report, &ROWS)
}

/// Runs `rows` on one size of data set. Both stores are loaded once and then take turns.
fn sized(
    config: &Config,
    scratch: &Path,
    contestants: &[Contestant],
    watch: &dyn Watch,
    report: &mut Report,
    rows: &[(&'static str, Read, bool)],
) -> Result<(), BenchError> {
    let finalists = finalists(config, contestants);
    let variant = config.main_variant();
    let peer_dir = scratch.join("rocksdb");
    let seed = data::fresh_seed();
    watch.note(&format!("loading {} MB", config.preload_bytes / 1_000_000));
    let subject = Subject::preloaded(config, scratch, variant, seed)?;
    let mut subject = Some(subject.reopened(config, variant)?);
    if finalists.len() > 1 {
        rocksdb::load(config, &peer_dir)?;
    }
    for &(workload, read, cold) in rows {
        let ops = match read {
            Read::Get => config.read_ops,
            Read::Scan => (config.read_ops / GETS_PER_SCAN).max(1),
        };
        let limit = Limit {
            ops: Some(ops),
            seconds: None,
        };
        take_turns(config, &finalists, report, |contestant, _| {
            let live = Arc::new(Live::default());
            watch.begin(&format!("{workload}, {contestant}"), limit, &live);
            let mut figures = match (contestant, subject.take()) {
                (Contestant::Ours(_), Some(ready)) => {
                    let ready = if cold {
                        chilled(config, ready, variant)?
                    } else {
                        ready
                    };
                    let outcome = ours(config, &ready.store, seed, read, ops, !cold, &live);
                    subject = Some(ready);
                    outcome?
                }
                (_, kept) => {
                    subject = kept;
                    if cold {
                        drop_page_cache(&peer_dir)?;
                    }
                    rocksdb::read(config, &peer_dir, read, ops, !cold)?
                }
            };
            figures.workload = workload;
            figures.data_bytes = Some(config.data_keys() * config.pair_bytes());
            watch.end(&figures);
            Ok(figures)
        })?;
    }
    if let Some(subject) = subject {
        subject.remove()?;
    }
    if finalists.len() > 1 {
        remove_dir(&peer_dir)?;
    }
    Ok(())
}

/// A newly opened store and an empty page cache.
fn chilled(config: &Config, subject: Subject, variant: Variant) -> Result<Subject, BenchError> {
    let subject = subject.reopened(config, variant)?;
    drop_page_cache(subject.dir())?;
    Ok(subject)
}

fn ours(
    config: &Config,
    store: &Store,
    seed: u64,
    read: Read,
    ops: u64,
    warm_up: bool,
    live: &Live,
) -> Result<Figures, BenchError> {
    if warm_up {
        read_all(config, store, seed, read, ops, &Live::default())?;
    }
    let start = Instant::now();
    let (bytes, latencies) = read_all(config, store, seed, read, ops, live)?;
    let figures = Figures {
        value_bytes: config.value_bytes,
        threads: config.threads,
        ops,
        seconds: start.elapsed().as_secs_f64(),
        latency: latencies.percentiles(),
        ..Figures::default()
    };
    Ok(figures.rates(bytes))
}

/// Reads from all threads. Returns the bytes that came, and the latencies.
fn read_all(
    config: &Config,
    store: &Store,
    seed: u64,
    read: Read,
    ops: u64,
    live: &Live,
) -> Result<(u64, Latencies), BenchError> {
    let threads = config.threads as u64;
    let outcomes: Vec<Result<(u64, Latencies), BenchError>> = thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|thread| {
                let share = ops / threads + u64::from(thread < ops % threads);
                scope.spawn(move || read_share(config, store, seed, read, share, live))
            })
            .collect();
        readers.into_iter().map(join).collect()
    });
    let (mut bytes, mut latencies) = (0, Latencies::new());
    for outcome in outcomes {
        let (came, theirs) = outcome?;
        bytes += came;
        latencies.merge(&theirs);
    }
    Ok((bytes, latencies))
}

fn read_share(
    config: &Config,
    store: &Store,
    seed: u64,
    read: Read,
    ops: u64,
    live: &Live,
) -> Result<(u64, Latencies), BenchError> {
    let mut random = data::Random::new(data::fresh_seed());
    let mut latencies = Latencies::new();
    let mut buffer = Vec::new();
    let mut bytes = 0;
    let mut last = Instant::now();
    for _ in 0..ops {
        let key = data::key(seed, random.below(config.data_keys()));
        bytes += match read {
            Read::Get => {
                let value = store.get_into(&key, &mut buffer)?;
                let wrong =
                    || BenchError::Wrong(format!("the key {key:x?} was written and is not found"));
                value
                    .map(<[u8]>::len)
                    .filter(|&l| l == config.value_bytes)
                    .ok_or_else(wrong)? as u64
                    + 8
            }
            Read::Scan => scan(store, &key)?,
        };
        if config.latencies {
            latencies.record(clock::lap_ns(&mut last));
        }
        live.add(1);
    }
    Ok((bytes, latencies))
}

/// Seeks `key` and goes on 100 times, and copies the beginning of each value, as db_bench does: 101 pairs.
fn scan(store: &Store, key: &[u8]) -> Result<u64, BenchError> {
    let range = ScanRange::new(Bound::Included(key.to_vec()), Bound::Unbounded);
    let mut bytes = 0;
    let mut looked_at = [0; 256];
    for pair in store.scan(range)?.take(Read::SCAN_KEYS as usize + 1) {
        let (key, value) = pair?;
        bytes += (key.len() + value.len()) as u64;
        let part = value.len().min(looked_at.len());
        looked_at[..part].copy_from_slice(&value[..part]);
        black_box(&mut looked_at);
    }
    Ok(bytes)
}
