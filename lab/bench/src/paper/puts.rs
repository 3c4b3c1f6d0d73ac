//! P1: Puts of 4 KiB on a loaded store, in every variant and with buffers of several sizes.
//!
//! On this disk the store runs in this process. On an emulated device it runs as `forebay-lab
//! wisckey` under `forebay-lab run --device`.

use super::{lab::Lab, outcome::Measured, size::Size};
use crate::{
    BenchError,
    device::Effort,
    peers::Peer,
    place::{HERE, on_device},
    processes::{output, said_by},
    report::{Report, Row, grouped},
    scratch::ScratchDir,
    units::bytes_name,
    wisckey::{self, Config, Limit, who},
};
use forebay_store::Durability;
use std::slice;

/// Bytes of a value.
const VALUE_BYTES: u64 = 4096;
/// The same as rows have it.
const X: &str = "4 KiB";

/// P1 on its SSD: this disk, and the nearest that can be emulated.
const PLACES: [&str; 2] = [HERE, "sata-ssd"];

fn config(lab: &Lab<'_>) -> Config {
    let sizes = [(2 << 20, 300), (256 << 20, 16_384), (8 << 30, 262_144)];
    let (preload_bytes, ops) = lab.size.pick(sizes[0], sizes[1], sizes[2]);
    Config {
        dir: lab.dir.to_owned(),
        pool: lab.pool.clone(),
        value_bytes: VALUE_BYTES as usize,
        limit: Limit::of_ops(ops),
        preload_bytes,
        rounds: lab.rounds(),
        effort: lab.size.pick(Effort::QUICK, Effort::SHORT, Effort::FULL),
        ..Config::default()
    }
}

/// Figures 5, 7 and 8: the four variants, and RocksDB.
pub(super) fn variants(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let config = Config {
        peers: vec![Peer::RocksDb],
        ..config(lab)
    };
    let mut measured = Measured::default();
    measured.note(format!(
        "{} of data are loaded before the clock starts, then {} Puts; it stops when all is on the disk",
        bytes_name(config.preload_bytes),
        config.limit.ops.unwrap_or(0)
    ));
    for place in PLACES {
        for row in rows(lab, &config, place, &mut measured)? {
            let name = who(&row);
            let share = row.in_rounds("fsync_cpu_share");
            let latency = row.in_rounds("device_write_us_per_kib");
            add_puts(place, &row, &mut measured);
            if !share.is_empty() {
                measured.add("share", place, &name, X, &in_percent(&share));
            }
            if place == HERE && !latency.is_empty() {
                measured.add("latency", place, &name, X, &latency);
            }
        }
    }
    sampled(lab, &config, &mut measured)?;
    Ok(measured)
}

/// Adds the rates of a contestant, or why there are none.
fn add_puts(place: &str, row: &Row, measured: &mut Measured) {
    match row.text("error") {
        "" => measured.add("puts", place, &who(row), X, &row.in_rounds("ops_per_s")),
        why => measured.missing("puts", place, row.text("name"), X, why),
    }
}

fn in_percent(shares: &[f64]) -> Vec<f64> {
    shares.iter().map(|share| share * 100.0).collect()
}

/// The store and every peer, each from an empty start: what others do in figure 5's place.
pub(super) fn peers(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let mut measured = Measured::default();
    let usual = config(lab);
    let config = Config {
        variants: vec![Durability::Fsync, Durability::DOUBLE],
        preload_bytes: 0,
        // An end to what is slow.
        limit: Limit {
            seconds: Some(lab.size.pick(0.3, 2.0, 5.0)),
            ..usual.limit
        },
        peers: Peer::ALL.to_vec(),
        ..usual
    };
    for row in rows(lab, &config, HERE, &mut measured)? {
        add_puts(HERE, &row, &mut measured);
    }
    measured.note(format!(
        "{} Puts into an empty database, or as many as {} seconds allow; a sync of what was not synced is counted in",
        grouped(config.limit.ops.unwrap_or(0) as i64),
        config.limit.seconds.unwrap_or(0.0)
    ));
    Ok(measured)
}

/// Figure 7 by perf: one more round in which every variant is sampled, so that sampling slows no
/// other figure.
fn sampled(lab: &Lab<'_>, config: &Config, measured: &mut Measured) -> Result<(), BenchError> {
    let config = Config {
        peers: Vec::new(),
        preload_bytes: 0,
        // Long enough for some thousand samples of what is fast, and an end to what is slow.
        limit: Limit {
            ops: Some(lab.size.pick(2_000, 131_072, 1 << 20)),
            seconds: Some(lab.size.pick(1.0, 3.0, 20.0)),
        },
        rounds: 1,
        effort: Effort::QUICK,
        latencies: false,
        is_sampled: true,
        ..config.clone()
    };
    for row in &wisckey::run(slice::from_ref(&config), lab.note)?.rows {
        let shares = row.in_rounds("fsync_sample_share");
        match row.text("fsync_sample_share") {
            "" => measured.add("perf", HERE, &who(row), X, &in_percent(&shares)),
            why => {
                let substitute = format!("{why}; its substitute is the share by accounted time");
                measured.missing("perf", HERE, &who(row), X, &substitute);
            }
        }
    }
    Ok(())
}

/// Figure 6: run time over the size of a buffer, relative to that of the same variant with 1 MiB.
pub(super) fn buffers(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const MIB: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
    let mut measured = Measured::default();
    for place in PLACES {
        for mib in MIB {
            let usual = config(lab);
            let config = Config {
                variants: vec![Durability::SINGLE, Durability::DOUBLE],
                buffer_bytes: mib << 20,
                preload_bytes: usual.preload_bytes.min(1 << 30),
                effort: Effort::QUICK,
                ..usual
            };
            let x = bytes_name(config.buffer_bytes);
            for row in rows(lab, &config, place, &mut measured)? {
                measured.add("time", place, &who(&row), &x, &row.in_rounds("seconds"));
            }
        }
    }
    measured.note(
        "the run time has the drain of what the buffers hold at the end; with few Puts large buffers absorb most of them, and the drain is a \
         larger part",
    );
    if lab.size == Size::Paper {
        measured.note("1 GiB is loaded, not 8 GB, as it is loaded for every bar");
    }
    Ok(measured)
}

/// The rows of all contestants at a place.
fn rows(
    lab: &Lab<'_>,
    config: &Config,
    place: &str,
    measured: &mut Measured,
) -> Result<Vec<Row>, BenchError> {
    if place != HERE {
        return Ok(emulated(lab, config, place)?.rows);
    }
    let Report {
        about, rows, peers, ..
    } = wisckey::run(slice::from_ref(config), lab.note)?;
    let device = about.get("device").cloned().unwrap_or_default();
    measured.devices.extend(serde_json::from_value(device));
    Ok(rows.into_iter().chain(peers).collect())
}

/// One round of our variants by the laboratory's program as a process under `forebay-lab run
/// --device`.
fn emulated(lab: &Lab<'_>, config: &Config, profile: &str) -> Result<Report, BenchError> {
    let scratch = ScratchDir::new_in(lab.dir)?;
    lab.note(&format!("Puts on {profile}"));
    let variants: Vec<String> = config.variants.iter().map(Durability::to_string).collect();
    let mut command = on_device(lab.forebay, scratch.path(), profile);
    command
        .arg(lab.program())
        // Its measurement of the device is not used.
        .args(["wisckey", "--quick", "--json", "--rounds", "1"])
        .args(["--variants", &variants.join(",")])
        .args(["--ops", &config.limit.ops.unwrap_or(1).to_string()])
        .args(["--preload", &config.preload_bytes.to_string()])
        .args(["--buffer-size", &config.buffer_bytes.to_string()])
        .arg("--dir")
        .arg(scratch.path());
    let said = said_by("forebay-lab wisckey", output(&mut command)?)?;
    serde_json::from_str(&said)
        .map_err(|e| BenchError::Child(format!("(forebay-lab wisckey on {profile}) {e}: {said}")))
}
