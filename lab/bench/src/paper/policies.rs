//! P4: redis-benchmark's SETs under each policy, by size of the value, and during rewrites of the append-only file.

use super::{Lab, Measured, Row, SERVER, SIZES, Size};
use crate::{
    BenchError,
    contest::{Mode, Setup},
    device::Effort,
    place::Place,
    redis::{
        self, Config,
        modes::{ALWAYS, EATMYDATA, EVERYSEC, FOREBAY, NVM},
        server::Kind,
    },
    report::grouped,
    units::bytes_name,
};

/// P4's disk, and this one.
const PLACES: [Place; 2] = [Place::Here, Place::Emulated("hdd-7200")];
/// P4's policies, and libeatmydata, which is what not syncing gives at best.
const MODES: [Mode; 5] = [EVERYSEC, ALWAYS, EATMYDATA, NVM, FOREBAY];
/// redis-benchmark's default, which P4 does not change.
const CLIENTS: u64 = 50;

pub(super) fn requests(size: Size) -> u64 {
    size.pick(200, 20_000, 100_000)
}

/// SETs of all sizes in `modes`, at `place`.
pub(super) fn config(lab: &Lab<'_>, modes: &[Mode], place: Place) -> Config {
    Config {
        setup: Setup {
            dir: lab.dir.to_owned(),
            modes: modes.to_vec(),
            pools: lab.pools(),
            device: place.profile().map(str::to_owned),
            rounds: lab.rounds(),
            forebay: lab.forebay.to_owned(),
            emulator: Some(lab.program.to_owned()),
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
        let all = config(lab, &MODES, place);
        let config = Config {
            // On a disk of some 100 syncs a second a round of `always` would take minutes.
            requests: match place {
                Place::Here => all.requests,
                Place::Emulated(_) => all.requests.min(20_000),
            },
            ..all
        };
        add(lab, &config, place, "", &mut measured)?;
    }
    // The other server, which Redis's users go to: beside ours at one size, at all sizes where there is time.
    let valkey = Config {
        servers: vec![Kind::Valkey],
        sizes: lab.size.pick(vec![512], vec![512], SIZES.to_vec()),
        ..config(lab, &[EVERYSEC, ALWAYS, FOREBAY], Place::Here)
    };
    add(lab, &valkey, Place::Here, "valkey ", &mut measured)?;
    measured.note(format!(
        "{} SETs of random keys a round, {CLIENTS} connections; always has at most 2,000 a connection",
        grouped(requests(lab.size) as i64)
    ));
    measured.note(ALL_IN_NVM);
    Ok(measured)
}

/// What stands in for PMDK-Redis, and why.
pub(super) const ALL_IN_NVM: &str = "the mode nvm stands in for PMDK-Redis, which is no longer kept up and has no package: the same server with appendfsync \
     always and its whole directory in memory, as on a DAX file system, so that every pair is in NVM. The embedded store with its log in the \
     pool would be nearer in layout, but it is a library, and would be compared without the network";

/// Runs `config` and adds a row for each of its rows.
pub(super) fn add(
    lab: &Lab<'_>,
    config: &Config,
    place: Place,
    prefix: &str,
    measured: &mut Measured,
) -> Result<(), BenchError> {
    let report = redis::run(config, &|note| lab.note(note))?;
    for row in &report.rows {
        let series = match row.cell.is("during_rewrite") {
            true => format!("{prefix}{}, rewriting", row.name()),
            false => format!("{prefix}{}", row.name()),
        };
        let x = bytes_name(row.cell.number("value_bytes").unwrap_or(0));
        let p99_us = row.latency.p99_us.unwrap_or(0.0);
        for (panel, value, span) in [
            ("sets", row.ops_per_s, row.ops_per_s_span),
            ("p99", p99_us, row.p99_us_span),
        ] {
            let row = Row::spanned(panel, place.name(), &series, &x, value, span);
            measured.rows.push(row);
        }
    }
    for missing in &report.missing {
        let name = match prefix.trim() {
            "" => &missing.name,
            prefix => prefix,
        };
        measured.missing("sets", place.name(), name, "", &missing.error);
    }
    if place == Place::Here {
        measured.devices.push(report.device);
    }
    Ok(())
}

/// Bytes of the pools with which that is measured: the smallest holds two segments, as PB-Redis' buffer has two halves.
pub(super) const POOLS: [u64; 3] = [16 << 20, 256 << 20, 1 << 30];

/// P4's open problem: 8 KiB values, alone and while the append-only file is rewritten again and again.
pub(super) fn during_rewrite(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const VALUE_BYTES: u64 = 8192;
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
    // Those that were rewriting become a second x of the same series.
    for row in &mut measured.rows {
        let rewriting = row.series.strip_suffix(", rewriting").map(str::to_owned);
        row.x = match rewriting {
            Some(_) => "during rewrites".to_owned(),
            None => "alone".to_owned(),
        };
        row.series = rewriting.unwrap_or_else(|| row.series.clone());
    }
    measured.note(format!(
            "{} SETs of 8 KiB a round; BGREWRITEAOF is sent again as soon as the last one is done; a lane takes what is free of its pool while the \
             disk is behind",
            grouped(requests(lab.size) as i64)
        ),
    );
    Ok(measured)
}
