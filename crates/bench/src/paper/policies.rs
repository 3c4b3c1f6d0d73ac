//! P4: redis-benchmark's SETs under each policy, by size of the value, and during rewrites of the append-only file.

use super::{Lab, Measured, Row, SERVER, SIZES, Size};
use crate::{
    BenchError,
    device::Effort,
    place::Place,
    redis::{self, Config, Mode, load, server::Kind},
    units::bytes_name,
};

/// P4's disk, and this one.
const PLACES: [Place; 2] = [Place::Here, Place::Emulated("hdd-7200")];
/// P4's policies, and libeatmydata, which is what not syncing gives at best.
const MODES: [Mode; 5] = [
    Mode::Everysec,
    Mode::Always,
    Mode::Eatmydata,
    Mode::Nvm,
    Mode::Forebay,
];
/// redis-benchmark's default, which P4 does not change.
const CLIENTS: u64 = 50;

pub(super) fn requests(size: Size) -> u64 {
    size.pick(200, 20_000, 100_000)
}

pub(super) fn config(lab: &Lab<'_>) -> Config {
    Config {
        dir: lab.dir.to_owned(),
        servers: vec![SERVER],
        modes: MODES.to_vec(),
        sizes: SIZES.to_vec(),
        clients: vec![CLIENTS],
        requests: requests(lab.size),
        keys: 100_000,
        rounds: lab.rounds(),
        during_rewrite: None,
        pool: lab.pool.clone(),
        buffer_bytes: 8 << 20,
        buffers: 2,
        pool_sizes: Vec::new(),
        slowed: None,
        device: None,
        forebay: lab.forebay.to_owned(),
        effort: Effort::QUICK,
    }
}

/// What is missing, as rows, if the server or the load is not installed.
pub(super) fn not_installed(panels: &[&str], modes: &[&str], x: &str) -> Option<Vec<Row>> {
    let why = SERVER.program().err().or_else(|| load::program().err())?;
    let rows = panels.iter().flat_map(|panel| {
        let why = why.clone();
        modes
            .iter()
            .map(move |mode| Row::missing(panel, Place::Here.name(), mode, x, &why))
    });
    Some(rows.collect())
}

/// Figure 6.
pub(super) fn sizes(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let names = MODES.map(|mode| mode.to_string());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut measured = Measured::default();
    if let Some(rows) = not_installed(&["sets"], &names, &bytes_name(SIZES[0])) {
        measured.rows = rows;
        return Ok(measured);
    }
    for place in PLACES {
        if let Err(why) = lab.has(place) {
            for (size, name) in SIZES
                .iter()
                .flat_map(|size| names.iter().map(move |name| (size, name)))
            {
                measured.rows.push(Row::missing(
                    "sets",
                    place.name(),
                    name,
                    &bytes_name(*size),
                    &why,
                ));
            }
            continue;
        }
        let config = Config {
            device: place.profile().map(str::to_owned),
            // On a disk of some 100 syncs a second a round of `always` would take minutes.
            requests: match place {
                Place::Here => requests(lab.size),
                Place::Emulated(_) => requests(lab.size).min(20_000),
            },
            ..config(lab)
        };
        add(lab, &config, place, "", &mut measured)?;
    }
    // The other server, which Redis's users go to: beside ours at one size, at all sizes where there is time.
    let valkey = Config {
        servers: vec![Kind::Valkey],
        modes: vec![Mode::Everysec, Mode::Always, Mode::Forebay],
        sizes: lab.size.pick(vec![512], vec![512], SIZES.to_vec()),
        ..config(lab)
    };
    add(lab, &valkey, Place::Here, "valkey ", &mut measured)?;
    measured.note(&[], format!(
        "{} SETs of random keys a round, {CLIENTS} connections; always has at most 2,000 a connection",
        crate::report::grouped(requests(lab.size) as i64)
    ));
    measured.note(&[], ALL_IN_NVM);
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
        let series = format!(
            "{prefix}{}{}",
            row.name(),
            if row.during_rewrite {
                ", rewriting"
            } else {
                ""
            }
        );
        let x = bytes_name(row.value_bytes);
        if let Some(span) = row.ops_per_s_span {
            measured.rows.push(Row::spanned(
                "sets",
                place.name(),
                &series,
                &x,
                row.ops_per_s,
                span,
            ));
        }
        if let Some(span) = row.p99_us_span {
            measured.rows.push(Row::spanned(
                "p99",
                place.name(),
                &series,
                &x,
                row.p99_us,
                span,
            ));
        }
    }
    for missing in &report.missing {
        let name = match prefix.trim() {
            "" => &missing.name,
            prefix => prefix,
        };
        let x = bytes_name(config.sizes.first().copied().unwrap_or(0));
        measured
            .rows
            .push(Row::missing("sets", place.name(), name, &x, &missing.error));
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
    let modes = [Mode::Everysec, Mode::Always, Mode::Eatmydata, Mode::Forebay];
    let ours = POOLS.map(|bytes| format!("{} {}", Mode::Forebay, bytes_name(bytes)));
    let others = modes.into_iter().filter(|mode| *mode != Mode::Forebay);
    let names: Vec<String> = others.map(|mode| mode.to_string()).chain(ours).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let panels = ["sets", "p99"];
    let mut measured = Measured::default();
    if let Some(rows) = not_installed(&panels, &names, &bytes_name(VALUE_BYTES)) {
        measured.rows = rows;
        return Ok(measured);
    }
    for place in PLACES {
        if let Err(why) = lab.has(place) {
            for (panel, name) in panels
                .iter()
                .flat_map(|p| names.iter().map(move |n| (p, n)))
            {
                let row = Row::missing(panel, place.name(), name, "alone", &why);
                measured.rows.push(row);
            }
            continue;
        }
        let config = Config {
            modes: modes.to_vec(),
            sizes: vec![VALUE_BYTES],
            during_rewrite: Some(VALUE_BYTES),
            keys: lab.size.pick(1000, 10_000, 100_000),
            pool_sizes: POOLS.to_vec(),
            device: place.profile().map(str::to_owned),
            ..config(lab)
        };
        add(lab, &config, place, "", &mut measured)?;
    }
    // Those that were rewriting become a second x of the same series.
    for row in &mut measured.rows {
        let rewriting = row.series.strip_suffix(", rewriting").map(str::to_owned);
        row.x = if rewriting.is_some() {
            "during rewrites"
        } else {
            "alone"
        }
        .to_owned();
        if let Some(series) = rewriting {
            row.series = series;
        }
    }
    measured.note(
        &[],
        format!(
            "{} SETs of 8 KiB a round; BGREWRITEAOF is sent again as soon as the last one is done; a lane takes what is free of its pool while the \
             disk is behind",
            crate::report::grouped(requests(lab.size) as i64)
        ),
    );
    Ok(measured)
}
