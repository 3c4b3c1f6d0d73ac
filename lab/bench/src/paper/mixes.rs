//! P4, by a client of our own in memtier's place: mixes of SETs and GETs (figure 9), and DRAM and
//! NVM in use by number of pairs (figure 8).

use super::{
    lab::{Lab, SERVER},
    outcome::Measured,
    policies::{self, PLACES, SIZES},
    size::Size,
};
use crate::{
    BenchError,
    contest::Mode,
    mix::{self, Mix},
    place::HERE,
    processes::status_bytes,
    redis::{
        load,
        modes::{ALWAYS, EVERYSEC, FOREBAY, NVM},
        resp::expect_ok,
        stage::Rewrites,
    },
    rounds::take_turns,
};
use std::path::Path;

const MODES: [Mode; 4] = [EVERYSEC, ALWAYS, NVM, FOREBAY];
const CLIENTS: u64 = 50;

/// SETs to GETs: memtier's default, halves, and mostly SETs.
const MIXES: [(u64, u64); 3] = [(1, 10), (1, 1), (10, 1)];

/// Requests a round on the emulated disk: some 100 syncs a second.
fn on_emulated(size: Size) -> u64 {
    size.pick(100, 2_000, 5_000)
}

/// Figure 9.
pub(super) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    lab.server()?;
    let mut measured = Measured::default();
    for place in PLACES {
        let (size, few) = (lab.size, &[32, 8192][..]);
        let (sizes, requests, keys) = match place {
            HERE => (
                size.pick(few, &[32, 512, 8192], &SIZES),
                policies::requests(size),
                size.pick(100, 10_000, 100_000),
            ),
            _ => (few, on_emulated(size), size.pick(100, 10_000, 10_000)),
        };
        let cases = sizes.iter().flat_map(|size| MIXES.map(|mix| (*size, mix)));
        for (value_bytes, (sets, gets)) in cases {
            let panel = format!("mix-{sets}-{gets}");
            let x = crate::units::bytes_name(value_bytes);
            let mix = Mix {
                requests,
                value_bytes,
                clients: CLIENTS,
                keys,
                sets,
                gets,
            };
            take_turns(&MODES, lab.rounds_on(place), |mode| {
                let rate = measure(lab, *mode, place, mix)?;
                lab.note(&format!(
                    "{SERVER} {mode} on {place}, {value_bytes} bytes, {sets}:{gets}: {rate:.0} requests/s"
                ));
                measured.add(&panel, place, mode.name, &x, &[rate]);
                Ok::<_, BenchError>(())
            })?;
        }
    }
    measured.note(format!(
        "{} requests a round ({} on the emulated disk) after every key was SET once, {CLIENTS} connections, one request in flight on each; the append-only file is \
         rewritten by the server's default rule (when it has doubled, from 64 MiB on)",
        crate::report::grouped(policies::requests(lab.size) as i64),
        crate::report::grouped(on_emulated(lab.size) as i64)
    ));
    Ok(measured)
}

/// Requests a second of one mode, on a fresh server.
fn measure(lab: &Lab<'_>, mode: Mode, place: &str, mix: Mix) -> Result<f64, BenchError> {
    let stage = lab.stage(mode, place, Rewrites::Automatic, &lab.pools())?;
    let server = stage.start()?;
    let policy = if mode == EVERYSEC {
        "everysec"
    } else {
        "always"
    };
    server.talk(|connection| {
        // The keys are there before the clock starts: what their syncs take is not asked, and one
        // at the end does for all.
        expect_ok(connection.line("CONFIG SET appendfsync no")?)?;
        mix::load(connection, 0, mix.keys, mix.value_bytes)?;
        expect_ok(connection.line(&format!("CONFIG SET appendfsync {policy}"))?)?;
        expect_ok(connection.line("SET synced now")?)
    })?;
    let failed = BenchError::io("talking to", Path::new("the server"));
    let measured = mix.run(server.port()).map_err(failed)?;
    server.stop()?;
    Ok(measured.ops_per_s)
}

/// Bytes of a pair's value: with its key of 16 bytes it is P4's pair of 32 B and a little more.
const VALUE_BYTES: u64 = 16;

const IN_MEMORY: [Mode; 3] = [EVERYSEC, NVM, FOREBAY];

/// Figure 8.
pub(super) fn memory(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const PAIRS: [u64; 4] = [100_000, 500_000, 1_000_000, 2_000_000];
    let pairs = lab.size.pick(&[1000, 2000][..], &PAIRS, &PAIRS);
    lab.server()?;
    let mut measured = Measured::default();
    for mode in IN_MEMORY {
        let stage = lab.stage(mode, HERE, Rewrites::Automatic, &lab.pools())?;
        let server = stage.start()?;
        let mut from = 0;
        for &pairs in pairs {
            lab.note(&format!("{SERVER} {mode}: {pairs} pairs"));
            let x = format!("{} M", pairs as f64 / 1e6);
            server.talk(|connection| {
                mix::load(connection, from, pairs, VALUE_BYTES)?;
                load::wait_rewritten(connection)
            })?;
            from = pairs;
            let mut processes = vec![server.server().pid(), server.outer().pid()];
            processes.dedup();
            // Memory of a process that is its own: not files that it has mapped, as the pool.
            let own = |pid: i32| status_bytes(&pid.to_string(), "RssAnon");
            let dram: u64 = processes.into_iter().filter_map(own).sum();
            for (panel, bytes) in [("dram", Some(dram)), ("nvm", stage.nvm_bytes())] {
                if let Some(bytes) = bytes {
                    let mib = bytes as f64 / f64::from(1 << 20);
                    measured.add(panel, HERE, mode.name, &x, &[mib]);
                }
            }
        }
        server.stop()?;
    }
    Ok(measured)
}
