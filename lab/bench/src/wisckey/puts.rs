//! P1's workload: Puts of new keys in random order.

use super::{
    contest::{Contestant, Run, contestants},
    meter::{Subject, metered},
    peer,
    rows::{Figures, Report},
    writing::{Keys, write},
};
use crate::{BenchError, clock, data, device, histogram::Latencies, threads::share_out};
use forebay_store::Variant;
use std::{
    hint,
    time::{Duration, Instant},
};

/// How long the floor of several threads is measured.
const FLOOR: Duration = Duration::from_secs(1);

/// Runs the Puts in every variant. The device has a turn in each round too, so that it is measured under the
/// conditions of the rows that are compared with it.
pub(super) fn run(run: Run<'_>, report: &mut Report) -> Result<(), BenchError> {
    let (config, contestants) = (run.config, contestants(run.config));
    let mut device = Vec::new();
    run.take_turns(report, &contestants, "put", |contestant| {
        if Some(&contestant) == contestants.first() {
            (run.note)("measuring the device");
            device.push(device::measure(run.scratch, config.effort)?);
        }
        match contestant {
            Contestant::Ours(variant) => ours(run, variant),
            Contestant::Peer(peer, mode) => {
                let dir = &run.scratch.join(peer.name());
                peer::Database { config, dir }.put(peer, mode)
            }
        }
    })?;
    report.device_rounds.extend(device);
    Ok(())
}

fn ours(run: Run<'_>, variant: Variant) -> Result<Figures, BenchError> {
    let (config, scratch) = (run.config, run.scratch);
    let seed = data::fresh_seed();
    let (subject, keys) = match config.preload_bytes {
        0 => (Subject::new(config, scratch, variant)?, Keys::New(0)),
        _ => {
            (run.note)(&format!("loading, {variant}"));
            let subject = Subject::preloaded(config, scratch, variant, seed)?;
            (subject, Keys::New(config.data_keys()))
        }
    };
    let puts = |store: &_, _: &mut _| write(config, store, seed, keys, config.limit);
    let mut figures = metered(config, subject, "put", puts, |_| ())?;
    if let (2.., Some(put_us)) = (config.threads, figures.latency.p50_us) {
        let put = Duration::from_secs_f64(put_us / 1e6);
        figures.floor = Some(floor(config.threads, put)?.percentiles());
    }
    Ok(figures)
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
