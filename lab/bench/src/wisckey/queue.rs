//! Deletes: a queue of which the first key is taken again and again, and a store of which every key
//! is deleted.
//!
//! Both ask the same of the store: that what was deleted costs nothing any more.

use super::{config::SMALL_VALUE_BYTES, meter::Subject, turns::Run};
use crate::{
    BenchError, clock, data,
    histogram::Latencies,
    report::{Report, Row},
};
use forebay_store::{ScanRange, Store};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Keys in the queue.
const QUEUED: u64 = 1000;
/// How long the index has at most to merge deleted keys away.
const SETTLING: Duration = Duration::from_secs(60);
/// The pops are looked at in so many parts.
const PARTS: u64 = 50;

/// Runs both in our main variant.
pub(super) fn run(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    let ops = run.config.limit.ops.unwrap_or(0);
    for (workload, work) in [("queue", queue as Work), ("delete_all", delete_all as Work)] {
        run.alone(report, workload, || {
            let measured = |store: &_, row: &mut Row| {
                let mut latencies = Latencies::default();
                row.add(work(store, ops, &mut latencies)?);
                Ok((ops, latencies))
            };
            let subject = Subject::new(run, run.config.main_variant())?;
            let row = subject.metered(workload, measured)?;
            Ok(row.with(json!({"write_amplification": null})))
        })?;
    }
    Ok(())
}

/// What is done so many times, and what it has to say beside the latencies.
type Work = fn(&Store, u64, &mut Latencies) -> Result<Value, BenchError>;

fn queue(store: &Store, pops: u64, latencies: &mut Latencies) -> Result<Value, BenchError> {
    let values = data::Values::new(SMALL_VALUE_BYTES);
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
        let first = store.prefix("queue ")?.next();
        let Some(first) = first else {
            return Err(BenchError::Config("the queue lost its keys".to_owned()));
        };
        store.delete(&first?.0)?;
        push(QUEUED + pop)?;
        latencies.record(clock::lap_ns(&mut last));
        if (pop + 1) % part == 0 {
            means.push(begun.elapsed().as_secs_f64() * 1e6 / part as f64);
            begun = Instant::now();
        }
    }
    let slowest = means.iter().copied().reduce(f64::max);
    Ok(match (means.first(), slowest) {
        (Some(first), Some(slowest)) => json!({"first_pops_us": first, "slowest_pops_us": slowest}),
        _ => Value::Null,
    })
}

fn delete_all(store: &Store, keys: u64, latencies: &mut Latencies) -> Result<Value, BenchError> {
    let (seed, values) = (data::fresh_seed(), data::Values::new(SMALL_VALUE_BYTES));
    for index in 0..keys {
        store.put(&data::key(seed, index), values.value(index))?;
    }
    let mut last = Instant::now();
    for index in 0..keys {
        store.delete(&data::key(seed, index))?;
        latencies.record(clock::lap_ns(&mut last));
    }
    let empty_scan_us = empty_scan_us(store)?;
    store.gc()?;
    let settled = Instant::now() + SETTLING;
    while store.stats().index.entries > 0 && Instant::now() < settled {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(json!({
        "empty_scan_us": empty_scan_us,
        "empty_scan_settled_us": self::empty_scan_us(store)?,
        "index_entries": store.stats().index.entries,
    }))
}

fn empty_scan_us(store: &Store) -> Result<f64, BenchError> {
    let begun = Instant::now();
    match store.scan(ScanRange::all())?.next() {
        None => Ok(begun.elapsed().as_secs_f64() * 1e6),
        Some(_) => Err(BenchError::Config("a deleted key is there".to_owned())),
    }
}
