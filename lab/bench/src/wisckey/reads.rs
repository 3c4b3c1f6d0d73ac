//! Random gets and range scans of 100 keys, on three data sets: one that fits into the block cache, one that is larger
//! but in the page cache, and the latter from the device.

use super::{
    config::Config,
    contest::{Contestant, Run, finalists},
    meter::{Subject, remove_dir},
    peer::{self, Read},
    rows::{Figures, Report},
};
use crate::{
    BenchError, clock, data, histogram::Latencies, scratch::drop_page_cache, threads::share_out,
};
use forebay_store::{ScanRange, Store, Variant};
use std::{hint::black_box, ops::Bound, time::Instant};

/// One scan counts for so many gets when the number of operations is chosen.
const GETS_PER_SCAN: u64 = 20;

/// The row's name, and from where.
const ROWS: [(&str, Read, bool); 4] = [
    ("get", Read::Get, false),
    ("scan_100", Read::Scan, false),
    ("get_cold", Read::Get, true),
    ("scan_100_cold", Read::Scan, true),
];

/// Runs all of them in our main variant and on the peer.
pub(super) fn run(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    let config = &Config {
        preload_bytes: run.config.cache_bytes / 2,
        ..run.config.clone()
    };
    sized(Run { config, ..run }, report, &ROWS[..2])?;
    sized(run, report, &ROWS)
}

/// Runs `rows` on one size of data set. Both stores are loaded once and then take turns.
fn sized(
    run: Run<'_>,
    report: &mut Report,
    rows: &[(&'static str, Read, bool)],
) -> Result<(), BenchError> {
    let (config, scratch) = (run.config, run.scratch);
    let finalists = finalists(config);
    let variant = config.main_variant();
    let peer_dir = scratch.join("rocksdb");
    let peer = peer::Database {
        config,
        dir: &peer_dir,
    };
    let seed = data::fresh_seed();
    (run.note)(&format!("loading {} MB", config.preload_bytes / 1_000_000));
    let subject = Subject::preloaded(config, scratch, variant, seed)?;
    let mut subject = Some(subject.reopened(config, variant)?);
    if finalists.len() > 1 {
        peer.load()?;
    }
    for &(workload, read, cold) in rows {
        let ops = match read {
            Read::Get => config.read_ops,
            Read::Scan => (config.read_ops / GETS_PER_SCAN).max(1),
        };
        run.take_turns(report, &finalists, workload, |contestant| {
            let mut figures = match (contestant, subject.take()) {
                (Contestant::Ours(_), Some(ready)) => {
                    let ready = if cold {
                        chilled(config, ready, variant)?
                    } else {
                        ready
                    };
                    let store = &ready.store;
                    let reads = Reads {
                        config,
                        store,
                        seed,
                        read,
                    };
                    let outcome = reads.measure(ops, !cold);
                    subject = Some(ready);
                    outcome?
                }
                (_, kept) => {
                    subject = kept;
                    if cold {
                        drop_page_cache(&peer_dir)?;
                    }
                    peer.read(read, ops, !cold)?
                }
            };
            figures.workload = workload;
            figures.data_bytes = Some(config.data_keys() * config.pair_bytes());
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

/// Reads of one kind of a store.
struct Reads<'a> {
    config: &'a Config,
    store: &'a Store,
    seed: u64,
    read: Read,
}

impl Reads<'_> {
    fn measure(&self, ops: u64, warm_up: bool) -> Result<Figures, BenchError> {
        if warm_up {
            self.all(ops)?;
        }
        let start = Instant::now();
        let (bytes, latencies) = self.all(ops)?;
        let seconds = start.elapsed().as_secs_f64();
        let figures = Figures::of(self.config, ops, seconds, latencies.percentiles());
        Ok(figures.rates(bytes))
    }

    /// Reads from all threads. Returns the bytes that came, and the latencies.
    fn all(&self, ops: u64) -> Result<(u64, Latencies), BenchError> {
        share_out(self.config.threads, ops, |_, share| self.share(share))
    }

    fn share(&self, ops: u64) -> Result<(u64, Latencies), BenchError> {
        let Self { config, store, .. } = self;
        let mut random = data::Random::new(data::fresh_seed());
        let mut latencies = Latencies::new();
        let mut buffer = Vec::new();
        let mut bytes = 0;
        let mut last = Instant::now();
        for _ in 0..ops {
            let key = data::key(self.seed, random.below(config.data_keys()));
            bytes += match self.read {
                Read::Get => {
                    let value = store.get_into(&key, &mut buffer)?.map(<[u8]>::len);
                    let value = value.filter(|&bytes| bytes == config.value_bytes);
                    let wrong = || format!("the key {key:x?} was written and is not found");
                    value.ok_or_else(|| BenchError::Wrong(wrong()))? as u64 + 8
                }
                Read::Scan => scan(store, &key)?,
            };
            if config.latencies {
                latencies.record(clock::lap_ns(&mut last));
            }
        }
        Ok((bytes, latencies))
    }
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
