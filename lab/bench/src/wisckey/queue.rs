//! Deletes: a queue of which the first key is taken again and again, and a store of which every key is deleted.
//!
//! Both ask the same of the store: that what was deleted costs nothing any more.

use super::{
    Config, Figures, Report, Watch,
    contest::{ours_alone, take_turns},
    meter::{Meter, Subject, remove_dir},
};
use crate::{BenchError, clock, data, histogram::Latencies, live::Live};
use forebay_store::{ScanRange, Store};
use serde::Serialize;
use std::{
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Keys in the queue.
const QUEUED: u64 = 1000;
/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// How long the index has at most to merge deleted keys away.
const SETTLING: Duration = Duration::from_secs(60);
/// The pops are looked at in so many parts.
const PARTS: u64 = 50;

/// What deleted keys cost.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Deleted {
    /// `queue`: a pop (a scan for the first key, its delete, and a put of another one), mean of the first fiftieth, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_pops_us: Option<f64>,
    /// The same of the slowest fiftieth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_pops_us: Option<f64>,
    /// `delete_all`: a scan of the empty store right behind the last delete, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_scan_us: Option<f64>,
    /// The same once everything is in the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_scan_settled_us: Option<f64>,
    /// What the index has then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_entries: Option<u64>,
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
    for workload in ["queue", "delete_all"] {
        take_turns(config, &ours_alone(config), report, |contestant, _| {
            let live = Arc::new(Live::default());
            watch.begin(&format!("{workload}, {contestant}"), config.limit, &live);
            let subject = Subject::new(config, scratch, config.main_variant())?;
            let meter = Meter::start(&subject)?;
            let ops = config.limit.ops.unwrap_or(0);
            let mut latencies = Latencies::new();
            let store = &subject.store;
            let deleted = match workload {
                "queue" => queue(store, ops, &live, &mut latencies)?,
                _ => delete_all(store, ops, &live, &mut latencies)?,
            };
            let metered = meter.stop(config, workload, store, ops, &latencies)?;
            let dir = subject.dir().to_owned();
            subject.store.close()?;
            let mut figures = Figures {
                deleted: Some(deleted),
                ..metered.finish(&dir)?
            };
            figures.write_amplification = None;
            remove_dir(&dir)?;
            watch.end(&figures);
            Ok(figures)
        })?;
    }
    Ok(())
}

fn queue(
    store: &Store,
    pops: u64,
    live: &Live,
    latencies: &mut Latencies,
) -> Result<Deleted, BenchError> {
    let values = data::Values::new(VALUE_BYTES);
    let push = |number: u64| {
        store.put(
            format!("queue {number:010}").as_bytes(),
            values.value(number),
        )
    };
    (0..QUEUED).try_for_each(push)?;
    let part = (pops / PARTS).max(1);
    let mut means = Vec::new();
    let (mut last, mut begun) = (Instant::now(), Instant::now());
    for pop in 0..pops {
        let first = store.scan(ScanRange::prefix(b"queue "))?.next();
        let Some(first) = first else {
            return Err(BenchError::Config("the queue lost its keys".to_owned()));
        };
        store.delete(&first?.0)?;
        push(QUEUED + pop)?;
        latencies.record(clock::lap_ns(&mut last));
        if (pop + 1) % part == 0 {
            live.add(part);
            means.push(begun.elapsed().as_secs_f64() * 1e6 / part as f64);
            begun = Instant::now();
        }
    }
    Ok(Deleted {
        first_pops_us: means.first().copied(),
        slowest_pops_us: means.iter().copied().reduce(f64::max),
        ..Deleted::default()
    })
}

fn delete_all(
    store: &Store,
    keys: u64,
    live: &Live,
    latencies: &mut Latencies,
) -> Result<Deleted, BenchError> {
    let (seed, values) = (data::fresh_seed(), data::Values::new(VALUE_BYTES));
    for index in 0..keys {
        store.put(&data::key(seed, index), values.value(index))?;
    }
    let mut last = Instant::now();
    for index in 0..keys {
        store.delete(&data::key(seed, index))?;
        latencies.record(clock::lap_ns(&mut last));
        live.add(1);
    }
    let empty_scan_us = empty_scan_us(store)?;
    store.gc()?;
    let settled = Instant::now() + SETTLING;
    while store.stats().index.entries > 0 && Instant::now() < settled {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(Deleted {
        empty_scan_us: Some(empty_scan_us),
        empty_scan_settled_us: Some(self::empty_scan_us(store)?),
        index_entries: Some(store.stats().index.entries),
        ..Deleted::default()
    })
}

fn empty_scan_us(store: &Store) -> Result<f64, BenchError> {
    let begun = Instant::now();
    match store.scan(ScanRange::all())?.next() {
        None => Ok(begun.elapsed().as_secs_f64() * 1e6),
        Some(_) => Err(BenchError::Config("a deleted key is there".to_owned())),
    }
}
