//! `forebay-peers`: embedded stores of others under P1's workload, for `forebay-lab wisckey
//! --peers`, and under YCSB's, for `forebay-lab ycsb`.
//!
//! A process of its own, so that no build of forebay needs what these stores need. One run is one
//! row:
//!
//! ```text
//! forebay-peers STORE DIR put OPS SECONDS VALUE_BYTES SEED SYNC CACHE_BYTES
//! forebay-peers ycsb ORDER
//! ```
//! ORDER is JSON: see [`forebay_bench::ycsb::driver`], which says what is done then.
//!
//! Puts of new 8-byte keys in random order, a transaction each, until OPS are done or SECONDS have
//! passed (0: no such limit); then a sync of what was not synced. With SYNC 1 each Put is. Prints
//! one JSON object: name, mode, ops, seconds, and latencies in microseconds. The C programs in
//! lab/bench/programs take the same arguments and print the same.

mod fjall;
mod native;
mod redb;

use forebay_bench::{
    clock::lap_ns,
    data::{self, Values},
    histogram::{Latencies, Percentiles},
    ycsb::{
        SyncMode,
        driver::{self, DrivenStore, StoreFailure},
    },
};
use serde::Serialize;
use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

const USAGE: &str =
    "usage: forebay-peers STORE DIR put OPS SECONDS VALUE_BYTES SEED SYNC CACHE_BYTES
       forebay-peers ycsb ORDER

  STORE        fjall or redb
  OPS          Puts at most, 0 for no limit
  SECONDS      seconds at most, 0 for no limit
  SYNC         1: each Put is synced; 0: only the end is";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Order {
    ops_max: Option<u64>,
    seconds_max: Option<f64>,
    value_bytes: usize,
    seed: u64,
    sync: bool,
    cache_bytes: u64,
}

/// How a store is opened.
#[derive(Clone, Copy)]
struct Opening {
    /// Each put is durable when it returns.
    sync: bool,
    cache_bytes: u64,
    value_bytes: usize,
}

/// What is printed.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    mode: &'static str,
    ops: u64,
    seconds: f64,
    #[serde(flatten)]
    latency: Percentiles,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (store, done) = if let [ycsb, order] = &arguments[..]
        && ycsb == "ycsb"
    {
        (ycsb.clone(), run_order(order))
    } else if let Some((store, dir, order)) = parse(&arguments) {
        let printed = run(&store, Path::new(&dir), order);
        (store, printed.map(|line| println!("{line}")))
    } else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{store}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Opens a store of one of these names.
fn open(store: &str, dir: &Path, opening: Opening) -> Result<Box<dyn DrivenStore>, StoreFailure> {
    Ok(match store {
        "fjall" => Box::new(fjall::Fjall::open(dir, opening)?),
        "redb" => Box::new(redb::Redb::open(dir, opening)?),
        _ => return Err("there is no such store; there are fjall and redb".into()),
    })
}

/// Drives the store that `order` names as it says.
fn run_order(order: &str) -> Result<(), StoreFailure> {
    let order = driver::DriverOrder::received(order)?;
    let opening = Opening {
        sync: order.mode == SyncMode::Synced,
        cache_bytes: order.cache_bytes,
        value_bytes: order.value_bytes,
    };
    let store = match &order.library {
        Some(library) => {
            let apart = order.store == "rocksdb_blob";
            Box::new(native::NativeStore::open(
                library, &order.dir, opening, apart,
            )?)
        }
        None => open(&order.store, &order.dir, opening)?,
    };
    Ok(driver::drive(store.as_ref(), &order)?)
}

fn parse(arguments: &[String]) -> Option<(String, String, Order)> {
    let [
        store,
        dir,
        put,
        ops,
        seconds,
        value_bytes,
        seed,
        sync,
        cache_bytes,
    ] = arguments
    else {
        return None;
    };
    let (ops, seconds): (u64, f64) = (ops.parse().ok()?, seconds.parse().ok()?);
    let order = Order {
        ops_max: (ops > 0).then_some(ops),
        seconds_max: (seconds > 0.0).then_some(seconds),
        value_bytes: value_bytes.parse().ok()?,
        seed: seed.parse().ok()?,
        sync: match sync.as_str() {
            "0" => false,
            "1" => true,
            _ => return None,
        },
        cache_bytes: cache_bytes.parse().ok()?,
    };
    let limited = order.ops_max.is_some() || order.seconds_max.is_some();
    (put == "put" && limited).then(|| (store.clone(), dir.clone(), order))
}

fn run(store: &str, dir: &Path, order: Order) -> Result<String, StoreFailure> {
    let opening = Opening {
        sync: order.sync,
        cache_bytes: order.cache_bytes,
        value_bytes: order.value_bytes,
    };
    let peer = open(store, dir, opening)?;
    let values = Values::new(order.value_bytes);
    let mut latencies = Latencies::default();
    let start = Instant::now();
    let deadline = order
        .seconds_max
        .map(|seconds| start + Duration::from_secs_f64(seconds));
    let (mut last, mut ops) = (start, 0);
    while order.ops_max.is_none_or(|max| ops < max)
        && deadline.is_none_or(|deadline| last < deadline)
    {
        peer.put(&data::key(order.seed, ops), values.value(ops))?;
        ops += 1;
        latencies.record(lap_ns(&mut last));
    }
    peer.sync()?;
    let seconds = start.elapsed().as_secs_f64();
    // The last pair, so that a store that took nothing is found out.
    let at = ops.saturating_sub(1);
    let mut last = Vec::new();
    if peer.get(&data::key(order.seed, at), &mut last)? != Some(values.value(at)) {
        return Err("the last pair that was put is not there".into());
    }
    Ok(serde_json::to_string(&Line {
        name: store,
        mode: if order.sync { "sync" } else { "nosync" },
        ops,
        seconds,
        latency: latencies.percentiles(),
    })?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn every_store_takes_synced_and_other_puts_and_prints_a_line() {
        for store in ["fjall", "redb"] {
            for sync in ["0", "1"] {
                let dir = tempfile::tempdir().unwrap();
                let line = format!("{store} DIR put 50 0 1000 7 {sync} 1048576");
                let (_, _, order) = parse(&words(&line)).unwrap();
                let printed = run(store, dir.path(), order).unwrap();
                let line: serde_json::Value = serde_json::from_str(&printed).unwrap();
                assert_eq!((&line["name"], &line["ops"]), (&store.into(), &50.into()));
                assert_eq!(line["mode"], ["nosync", "sync"][usize::from(order.sync)]);
                for field in ["seconds", "p50_us", "p99_us", "p999_us", "max_us"] {
                    assert!(line[field].as_f64().unwrap() > 0.0, "{field} in {line}");
                }
            }
        }
    }

    #[test]
    fn a_run_ends_when_its_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let (_, _, order) = parse(&words("fjall DIR put 0 0.05 10 7 0 1048576")).unwrap();
        let printed = run("fjall", dir.path(), order).unwrap();
        let line: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert!(line["seconds"].as_f64().unwrap() >= 0.05);
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for line in [
            "fjall DIR put 0 0 10 7 0 100",
            "fjall DIR put 5 0 10 7 2 100",
            "fjall DIR get 5 0 10 7 0 100",
            "fjall",
        ] {
            assert_eq!(parse(&words(line)), None, "{line}");
        }
        let dir = tempfile::tempdir().unwrap();
        let (store, _, order) = parse(&words("other DIR put 5 0 10 7 0 100")).unwrap();
        assert!(run(&store, dir.path(), order).is_err());
    }
}
