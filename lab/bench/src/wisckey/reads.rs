//! Random gets and range scans of 100 keys, on three data sets: one that fits into the block cache,
//! one that is larger but in the page cache, and the latter from the device.
//!
//! All stores are loaded, and then take turns; or each is loaded, read and removed before the next
//! one, where there is no room for several.

use super::{
    config::Config,
    meter::{Subject, remove_dir},
    peer::{Database, Read},
    turns::{Contestant, Run, readers},
};
use crate::{
    BenchError, clock, data,
    histogram::Latencies,
    report::{Report, Row},
    scratch::{disk_bytes, drop_page_cache},
    threads::share_out,
};
use forebay_store::Store;
use serde_json::json;
use std::{hint::black_box, time::Instant};

/// One scan counts for so many gets when the number of operations is chosen.
const GETS_PER_SCAN: u64 = 20;

/// The row's name, what is read, and whether from the device.
type ReadRow = (&'static str, Read, bool);

const ROWS: [ReadRow; 4] = [
    ("get", Read::Get, false),
    ("scan_100", Read::Scan, false),
    ("get_cold", Read::Get, true),
    ("scan_100_cold", Read::Scan, true),
];

/// Runs all of them in our main variant and on the peers.
pub(super) fn run(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    let config = &Config {
        preload_bytes: run.config.cache_bytes / 2,
        ..run.config.clone()
    };
    sized(Run { config, ..run }, report, &ROWS[..2])?;
    sized(run, report, &ROWS)
}

/// Runs `rows` on one size of data set.
fn sized(run: Run<'_>, report: &mut Report, rows: &[ReadRow]) -> Result<(), BenchError> {
    let readers = readers(run.config);
    let at_once = match run.config.is_one_by_one {
        true => 1,
        false => readers.len(),
    };
    let mut groups = readers.chunks(at_once);
    groups.try_for_each(|group| loaded(run, report, rows, group))
}

/// Runs `rows` on some stores, which are loaded once, take turns, and are removed.
fn loaded(
    run: Run<'_>,
    report: &mut Report,
    rows: &[ReadRow],
    readers: &[Contestant],
) -> Result<(), BenchError> {
    let (config, seed) = (run.config, data::fresh_seed());
    let mut subject = None;
    for reader in readers {
        match *reader {
            Contestant::Ours(variant) => {
                subject = Some(Subject::preloaded(run, variant, seed)?.reopened()?);
            }
            Contestant::Peer(peer, _) => {
                let megabytes = config.preload_bytes / 1_000_000;
                (run.note)(&format!("loading {megabytes} MB, {peer}"));
                Database::of(run, peer).load()?;
            }
        }
    }
    for &(workload, read, is_cold) in rows {
        let ops = match read {
            Read::Get => config.read_ops,
            Read::Scan => (config.read_ops / GETS_PER_SCAN).max(1),
        };
        run.take_turns(report, readers, workload, |contestant| {
            if is_cold {
                // The caches of all: a store that was newly opened has none.
                subject = subject.take().map(Subject::reopened).transpose()?;
                drop_page_cache(run.scratch)?;
            }
            let (row, dir) = match (contestant, &subject) {
                (Contestant::Peer(peer, _), _) => {
                    let database = Database::of(run, peer);
                    let row = database.read(workload, read, ops, !is_cold)?;
                    (row, database.dir)
                }
                (Contestant::Ours(_), Some(subject)) => {
                    let row = ours(run, subject, seed, (workload, read, is_cold), ops)?;
                    (row, subject.dir().to_owned())
                }
                (Contestant::Ours(_), None) => unreachable!("it was loaded above"),
            };
            let live_bytes = config.data_keys() * config.pair_bytes();
            Ok(row.with(json!({
                "data_bytes": live_bytes,
                "space_amplification_final": disk_bytes(&dir) as f64 / live_bytes as f64,
            })))
        })?;
    }
    if let Some(subject) = subject {
        subject.remove()?;
    }
    let peers = readers.iter().filter_map(|reader| match reader {
        Contestant::Peer(peer, _) => Some(*peer),
        Contestant::Ours(_) => None,
    });
    let mut dirs = peers.map(|peer| Database::of(run, peer).dir);
    dirs.try_for_each(|dir| remove_dir(&dir))
}

/// A row of our store.
fn ours(
    run: Run<'_>,
    subject: &Subject<'_>,
    seed: u64,
    (workload, read, is_cold): ReadRow,
    ops: u64,
) -> Result<Row, BenchError> {
    let (config, store) = (run.config, &subject.store);
    if !is_cold {
        read_all(config, store, seed, read, ops)?;
    }
    let start = Instant::now();
    let (bytes, latencies) = read_all(config, store, seed, read, ops)?;
    let done = (ops, start.elapsed().as_secs_f64());
    Ok(config.row(workload, done, latencies.percentiles(), bytes))
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
