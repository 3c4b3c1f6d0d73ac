//! P4, figure 9: mixes of SETs and GETs, by a client of our own in memtier's place.

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
    redis::{
        modes::{ALWAYS, EVERYSEC, FOREBAY, NVM},
        resp::expect_ok,
        stage::Rewrites,
    },
    rounds::take_turns,
};

const MODES: [Mode; 4] = [EVERYSEC, ALWAYS, NVM, FOREBAY];
const CLIENTS: u64 = 50;

/// SETs to GETs: memtier's default, halves, and mostly SETs.
const MIXES: [(u64, u64); 3] = [(1, 10), (1, 1), (10, 1)];

/// Requests a round on the emulated disk: some 100 syncs a second.
fn on_emulated(size: Size) -> u64 {
    size.pick(100, 2_000, 5_000)
}

pub(super) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    lab.server()?;
    let mut measured = Measured::default();
    for place in PLACES {
        let all = (vec![32, 512, 8192], SIZES.to_vec());
        let (sizes, requests, keys) = match (place, lab.size) {
            (HERE, Size::Toy) => (vec![32, 8192], policies::requests(lab.size), 100),
            (HERE, Size::Quick) => (all.0, policies::requests(lab.size), 10_000),
            (HERE, Size::Paper) => (all.1, policies::requests(lab.size), 100_000),
            (_, size) => (
                vec![32, 8192],
                on_emulated(size),
                size.pick(100, 10_000, 10_000),
            ),
        };
        for (value_bytes, (sets, gets)) in sizes
            .iter()
            .flat_map(|&size| MIXES.map(|sets_and_gets| (size, sets_and_gets)))
        {
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
    let policy = match mode == EVERYSEC {
        true => "CONFIG SET appendfsync everysec",
        false => "CONFIG SET appendfsync always",
    };
    server.talk(|connection| {
        // The keys are there before the clock starts: what their syncs take is not asked, and one at
        // the end does for all.
        expect_ok(connection.line("CONFIG SET appendfsync no")?)?;
        mix::load(connection, 0, mix.keys, mix.value_bytes)?;
        expect_ok(connection.line(policy)?)?;
        expect_ok(connection.line("SET synced now")?)
    })?;
    let measured = mix.run(server.port())?;
    server.stop()?;
    Ok(measured.ops_per_s)
}
