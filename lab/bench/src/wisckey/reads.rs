//! Random gets and range scans of 100 keys, on three data sets: one that fits into the block cache,
//! one that is larger but in the page cache, and the latter from the device.

use super::{
    config::Config,
    meter::{Subject, remove_dir},
    peer::{Database, Read},
    turns::{Contestant, Run, finalists},
};
use crate::{
    BenchError, clock, data, histogram::Latencies, peers::Peer, report::Report,
    scratch::drop_page_cache, threads::share_out,
};
use forebay_store::Store;
use serde_json::json;
use std::{hint::black_box, time::Instant};

/// One scan counts for so many gets when the number of operations is chosen.
const GETS_PER_SCAN: u64 = 20;

/// The row's name, what is read, and whether from the device.
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
fn sized(run: Run<'_>, report: &mut Report, rows: &[(&str, Read, bool)]) -> Result<(), BenchError> {
    let (config, finalists) = (run.config, finalists(run.config));
    let peer = Database::of(run, Peer::RocksDb);
    let seed = data::fresh_seed();
    let subject = Subject::preloaded(run, config.main_variant(), seed)?;
    let mut subject = Some(subject.reopened()?);
    if finalists.len() > 1 {
        peer.load()?;
    }
    for &(workload, read, cold) in rows {
        let ops = match read {
            Read::Get => config.read_ops,
            Read::Scan => (config.read_ops / GETS_PER_SCAN).max(1),
        };
        run.take_turns(report, &finalists, workload, |contestant| {
            if cold {
                // The caches of both: a store that was newly opened has none.
                subject = subject.take().map(Subject::reopened).transpose()?;
                drop_page_cache(run.scratch)?;
            }
            let row = match (contestant, &subject) {
                (Contestant::Ours(_), Some(Subject { store, .. })) => {
                    if !cold {
                        read_all(config, store, seed, read, ops)?;
                    }
                    let start = Instant::now();
                    let (bytes, latencies) = read_all(config, store, seed, read, ops)?;
                    let done = (ops, start.elapsed().as_secs_f64());
                    config.row(workload, done, latencies.percentiles(), bytes)
                }
                _ => peer.read(workload, read, ops, !cold)?,
            };
            Ok(row.with(json!({"data_bytes": config.data_keys() * config.pair_bytes()})))
        })?;
    }
    if let Some(subject) = subject {
        subject.remove()?;
    }
    match finalists.len() {
        1 => Ok(()),
        _ => remove_dir(&peer.dir),
    }
}

/// Reads random keys from all threads. Returns the bytes that came, and the latencies.
fn read_all(
    config: &Config,
    store: &Store,
    seed: u64,
    read: Read,
    ops: u64,
) -> Result<(u64, Latencies), BenchError> {
    share_out(config.threads, ops, |_, share| {
        let mut random = data::Random::new(data::fresh_seed());
        let mut latencies = Latencies::default();
        let mut buffer = Vec::new();
        let mut bytes = 0;
        let mut last = Instant::now();
        for _ in 0..share {
            let key = data::key(seed, random.below(config.data_keys()));
            bytes += match read {
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
    })
}

/// Seeks `key` and goes on 100 times, and copies the beginning of each value, as db_bench does: 101
/// pairs.
fn scan(store: &Store, key: &[u8]) -> Result<u64, BenchError> {
    let mut bytes = 0;
    let mut looked_at = [0; 256];
    for pair in store.range(key..)?.take(Read::SCAN_KEYS as usize + 1) {
        let (key, value) = pair?;
        bytes += (key.len() + value.len()) as u64;
        let part = value.len().min(looked_at.len());
        looked_at[..part].copy_from_slice(&value[..part]);
        black_box(&mut looked_at);
    }
    Ok(bytes)
}
