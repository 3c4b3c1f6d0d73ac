//! P1's workload: Puts of new keys in random order.

use super::{
    meter::Subject,
    peer,
    turns::{Contestant, Run, contestants},
    writing::{Keys, write},
};
use crate::{
    BenchError, clock, data,
    device::{self, Speed},
    histogram::Latencies,
    report::{Report, Row, latency},
    threads::share_out,
};
use forebay_store::Variant;
use serde_json::json;
use std::{
    hint,
    time::{Duration, Instant},
};

/// How long the floor of several threads is measured.
const FLOOR: Duration = Duration::from_secs(1);

/// Runs the Puts in every variant. The device has a turn in each round too, so that it is measured under the
/// conditions of the rows that are compared with it.
pub(super) fn run(run: Run<'_>, report: &mut Report) -> Result<Vec<Speed>, BenchError> {
    let contestants = contestants(run.config);
    let mut device = Vec::new();
    run.take_turns(report, &contestants, "put", |contestant| {
        if Some(&contestant) == contestants.first() {
            (run.note)("measuring the device");
            device.push(device::measure(run.scratch, run.config.effort)?);
        }
        match contestant {
            Contestant::Ours(variant) => ours(run, variant),
            Contestant::Peer(peer, mode) => peer::Database::of(run, peer).put(mode),
        }
    })?;
    Ok(device)
}

fn ours(run: Run<'_>, variant: Variant) -> Result<Row, BenchError> {
    let (config, seed) = (run.config, data::fresh_seed());
    let (subject, keys) = match config.preload_bytes {
        0 => (Subject::new(run, variant)?, Keys::New(0)),
        _ => {
            let subject = Subject::preloaded(run, variant, seed)?;
            (subject, Keys::New(config.data_keys()))
        }
    };
    let puts = |store: &_, _: &mut _| write(config, store, seed, keys, config.limit);
    let mut row = subject.metered("put", puts)?;
    if let (2.., Some(put_us)) = (config.threads, row.number("p50_us")) {
        let put = Duration::from_secs_f64(put_us / 1e6);
        let floor = floor(config.threads, put)?.percentiles();
        row.add(json!({"floor": latency(floor)}));
    }
    Ok(row)
}

/// How long an operation takes each of so many threads that computes for `each`, and neither waits nor shares anything: longer than that
/// only if the thread has no processor. No program whose operations compute as long can have fewer slow ones.
fn floor(threads: usize, each: Duration) -> Result<Latencies, BenchError> {
    let until = Instant::now() + FLOOR;
    let (_, latencies) = share_out(threads, 0, |_, _| {
        let (mut latencies, mut last) = (Latencies::new(), Instant::now());
        while last < until {
            let begun = last;
            while begun.elapsed() < each {
                hint::spin_loop();
            }
            latencies.record(clock::lap_ns(&mut last));
        }
        Ok((0, latencies))
    })?;
    Ok(latencies)
}
