//! P1's workload: Puts of new keys in random order.

use super::{
    meter::Subject,
    peer,
    turns::{Contestant, Run, contestants},
    writing::{Keys, write},
};
use crate::{
    BenchError, data,
    device::{self, Speed},
    report::{Report, Row, latency},
    threads::keep_busy,
};
use forebay_store::Durability;
use serde_json::json;
use std::time::{Duration, Instant};

/// How long the floor of several threads is measured.
const FLOOR: Duration = Duration::from_secs(1);

/// Runs the Puts in every variant. The device has a turn in each round too, so that it is measured
/// under the conditions of the rows that are compared with it.
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

fn ours(run: Run<'_>, variant: Durability) -> Result<Row, BenchError> {
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
        let until = Instant::now() + FLOOR;
        // No program whose operations compute as long can have fewer slow ones.
        let floor = keep_busy(config.threads, put, |now| now < until)?;
        row.add(json!({"floor": latency(floor.percentiles())}));
    }
    Ok(row)
}
