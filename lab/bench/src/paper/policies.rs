//! P4: redis-benchmark's SETs under each policy, by size of the value, during rewrites of the
//! append-only file, and with slower memories.

use super::{
    lab::{Lab, SERVER},
    outcome::Measured,
    size::Size,
};
use crate::{
    BenchError,
    contest::{Mode, Setup},
    device::Effort,
    place::{HERE, profile},
    redis::{
        self, Config,
        modes::{ALWAYS, EATMYDATA, EVERYSEC, FOREBAY, NVM},
        server::Kind,
    },
    report::grouped,
    rounds::take_turns,
    units::bytes_name,
};

/// P4's disk, and this one.
pub(super) const PLACES: [&str; 2] = [HERE, "hdd-7200"];
/// P4's sizes of values, bytes.
pub(super) const SIZES: [u64; 5] = [32, 128, 512, 2048, 8192];
/// P4's policies, and libeatmydata, which is what not syncing gives at best.
const MODES: [Mode; 5] = [EVERYSEC, ALWAYS, EATMYDATA, NVM, FOREBAY];
/// redis-benchmark's default, which P4 does not change.
const CLIENTS: u64 = 50;

pub(super) fn requests(size: Size) -> u64 {
    size.pick(200, 20_000, 100_000)
}

/// SETs of all sizes in `modes`, at `place`.
fn config(lab: &Lab<'_>, modes: &[Mode], place: &str) -> Config {
    Config {
        setup: Setup {
            dir: lab.dir.to_owned(),
            modes: modes.to_vec(),
            pools: lab.pools(),
            device: profile(place).map(str::to_owned),
            rounds: lab.rounds(),
            forebay: lab.forebay.to_owned(),
            emulator: Some(lab.program()),
            effort: Effort::QUICK,
        },
        servers: vec![SERVER],
        sizes: SIZES.to_vec(),
        clients: vec![CLIENTS],
        requests: requests(lab.size),
        seconds: None,
        keys: 100_000,
        during_rewrite: None,
    }
}

/// Figure 6.
pub(super) fn sizes(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    lab.server()?;
    let mut measured = Measured::default();
    for place in PLACES {
        let mut config = config(lab, &MODES, place);
        if place != HERE {
            // On a disk of some 100 syncs a second a round of `always` would take minutes.
            config.requests = config.requests.min(20_000);
        }
        add(lab, &config, place, "", &mut measured)?;
    }
    // The other server, which Redis's users go to: beside ours at one size, at all sizes where
    // there is time.
    let valkey = Config {
        servers: vec![Kind::Valkey],
        sizes: lab.size.pick(vec![512], vec![512], SIZES.to_vec()),
        ..config(lab, &[EVERYSEC, ALWAYS, FOREBAY], HERE)
    };
    add(lab, &valkey, HERE, "valkey ", &mut measured)?;
    measured.note(format!(
        "{} SETs of random keys a round, {CLIENTS} connections; always has at most 2,000 a connection",
        grouped(requests(lab.size) as i64)
    ));
    Ok(measured)
}

/// Runs `config` and adds the rounds of each of its rows; those during rewrites are another x.
fn add(
    lab: &Lab<'_>,
    config: &Config,
    place: &str,
    prefix: &str,
    measured: &mut Measured,
) -> Result<(), BenchError> {
    let report = redis::run(config, &|note| lab.note(note))?;
    for row in &report.rows {
        let series = match config.setup.pools.slowed {
            Some(memory) => memory.to_owned(),
            None => format!("{prefix}{}", row.name()),
        };
        let x = match (config.during_rewrite, row.cell.is("during_rewrite")) {
            (None, _) => bytes_name(row.cell.number("value_bytes").unwrap_or(0)),
            (_, true) => "during rewrites".to_owned(),
            (_, false) => "alone".to_owned(),
        };
        let rates: Vec<f64> = row.rounds.iter().map(|round| round.ops_per_s).collect();
        let p99 = row.rounds.iter().filter_map(|round| round.latency.p99_us);
        measured.add("sets", place, &series, &x, &rates);
        measured.add("p99", place, &series, &x, &p99.collect::<Vec<f64>>());
    }
    for missing in &report.missing {
        let name = match prefix.trim() {
            "" => &missing.name,
            prefix => prefix,
        };
        measured.missing("sets", place, name, "", &missing.error);
    }
    if place == HERE {
        measured.devices.push(report.device);
    }
    Ok(())
}

/// P4's open problem: 8 KiB values, alone and while the append-only file is rewritten again and
/// again.
pub(super) fn during_rewrite(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const VALUE_BYTES: u64 = 8192;
    /// Bytes of the pools: the smallest holds two segments, as PB-Redis' buffer has two halves.
    const POOLS: [u64; 3] = [16 << 20, 256 << 20, 1 << 30];
    lab.server()?;
    let mut measured = Measured::default();
    for place in PLACES {
        let mut config = Config {
            sizes: vec![VALUE_BYTES],
            during_rewrite: Some(VALUE_BYTES),
            keys: lab.size.pick(1000, 10_000, 100_000),
            ..config(lab, &[EVERYSEC, ALWAYS, EATMYDATA, FOREBAY], place)
        };
        config.setup.pools.sizes = POOLS.to_vec();
        add(lab, &config, place, "", &mut measured)?;
    }
    measured.note(format!(
        "{} SETs of 8 KiB a round; BGREWRITEAOF is sent again as soon as the last one is done; a lane takes what is free of its pool while the \
         disk is behind",
        grouped(requests(lab.size) as i64)
    ));
    Ok(measured)
}

/// Figure 10: SETs under `forebay run` with a pool as slow as other memories.
pub(super) fn slower_memories(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const MEMORIES: [&str; 4] = ["dram", "pcm", "xpoint-mm", "xpoint-sm"];
    lab.server()?;
    let mut measured = Measured::default();
    take_turns(&MEMORIES, lab.rounds(), |memory| {
        let mut config = Config {
            sizes: vec![32, 512, 8192],
            ..config(lab, &[FOREBAY], HERE)
        };
        // Of each memory after the other.
        config.setup.rounds = 1;
        config.setup.pools.slowed = Some(memory);
        add(lab, &config, HERE, "", &mut measured)
    })?;
    Ok(measured)
}
