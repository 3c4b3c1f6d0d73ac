//! P4, figure 8: DRAM and NVM in use by number of pairs.

use super::{
    lab::{Lab, SERVER},
    outcome::Measured,
};
use crate::{
    BenchError,
    contest::Mode,
    mix,
    place::HERE,
    processes::status_bytes,
    redis::{
        load,
        modes::{EVERYSEC, FOREBAY, NVM},
        stage::Rewrites,
    },
};

/// Bytes of a pair's value: with its key of 16 bytes it is P4's pair of 32 B and a little more.
const VALUE_BYTES: u64 = 16;

const MODES: [Mode; 3] = [EVERYSEC, NVM, FOREBAY];

pub(super) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const PAIRS: [u64; 4] = [100_000, 500_000, 1_000_000, 2_000_000];
    let pairs = lab.size.pick(&[1000, 2000][..], &PAIRS, &PAIRS);
    lab.server()?;
    let mut measured = Measured::default();
    for mode in MODES {
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
            let mut processes = vec![server.server().pid()];
            if server.outer().pid() != server.server().pid() {
                processes.push(server.outer().pid());
            }
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
