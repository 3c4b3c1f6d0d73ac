//! `forebay-peers`: embedded stores of others under P1's workload, for `forebay-lab wisckey
//! --peers`.
//!
//! A process of its own, so that no build of forebay needs what these stores need. One run is one
//! row:
//!
//! ```text
//! forebay-peers STORE DIR put OPS SECONDS VALUE_BYTES SEED SYNC CACHE_BYTES
//! ```
//! Puts of new 8-byte keys in random order, a transaction each, until OPS are done or SECONDS have
//! passed (0: no such limit); then a sync of what was not synced. With SYNC 1 each Put is. Prints
//! one JSON object: name, mode, ops, seconds, and latencies in microseconds. The C programs in
//! lab/bench/programs take the same arguments and print the same.

mod fjall;
mod redb;

use forebay_bench::{
    clock::lap_ns,
    data::{self, Values},
    histogram::{Latencies, Percentiles},
};
use serde::Serialize;
use std::{
    error::Error,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str =
    "usage: forebay-peers STORE DIR put OPS SECONDS VALUE_BYTES SEED SYNC CACHE_BYTES

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

/// A store under test.
trait Peer {
    /// Puts a pair; durable on return if that was asked for.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure>;

    /// Makes everything durable.
    fn sync(&mut self) -> Result<(), Failure>;

    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure>;
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
    let Some((store, dir, order)) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&store, Path::new(&dir), order) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{store}: {error}");
            ExitCode::FAILURE
        }
    }
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

fn run(store: &str, dir: &Path, order: Order) -> Result<String, Failure> {
    let mut peer: Box<dyn Peer> = match store {
        "fjall" => Box::new(fjall::Fjall::open(dir, order)?),
        "redb" => Box::new(redb::Redb::open(dir, order)?),
        _ => return Err("there is no such store; there are fjall and redb".into()),
    };
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
    if peer.get(&data::key(order.seed, at))?.as_deref() != Some(values.value(at)) {
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
