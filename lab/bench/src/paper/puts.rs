//! P1: Puts of 4 KiB on a loaded store, in every variant and with buffers of several sizes.
//!
//! On this disk the store runs in this process. On an emulated device it runs as `forebay-lab wisckey` under `forebay-lab run --device`.

use super::{Lab, Measured, Row};
use crate::{
    BenchError,
    device::Effort,
    peers::Peer,
    place::{Place, on_device},
    processes::{output, said_by},
    rounds::{Span, in_turn},
    scratch::ScratchDir,
    units::bytes_name,
    wisckey::{self, Config, Limit},
};
use forebay_store::Variant;
use serde_json::Value;

/// Bytes of a value.
const VALUE_BYTES: u64 = 4096;

/// P1 on its SSD: this disk, and the nearest that can be emulated.
const PLACES: [Place; 2] = [Place::Here, Place::Emulated("sata-ssd")];

/// What one round of one contestant gives.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    ops_per_s: f64,
    seconds: f64,
    fsync_percent: Option<f64>,
    us_per_kib: Option<f64>,
}

/// Bytes loaded, and Puts.
pub(super) fn workload(lab_size: super::Size) -> (u64, u64) {
    lab_size.pick((2 << 20, 300), (256 << 20, 16_384), (8 << 30, 262_144))
}

/// Puts of the round that perf samples, at most.
pub(super) fn sampled_puts(size: super::Size) -> u64 {
    size.pick(2_000, 131_072, 1 << 20)
}

fn config(lab: &Lab<'_>) -> Config {
    let (preload_bytes, ops) = workload(lab.size);
    Config {
        dir: lab.dir.to_owned(),
        pool: lab.pool.clone(),
        value_bytes: VALUE_BYTES as usize,
        limit: Limit::of_ops(ops),
        preload_bytes,
        rounds: 1,
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
    let names: Vec<String> = config.variants.iter().map(Variant::to_string).collect();
    let x = bytes_name(VALUE_BYTES);
    let mut measured = Measured::default();
    measured.note(format!(
        "{} of data are loaded before the clock starts, then {} Puts; it stops when all is on the disk",
        bytes_name(config.preload_bytes),
        config.limit.ops.unwrap_or(0)
    ));
    for place in PLACES {
        for (name, sample) in rounds(lab, &config, place, &mut measured)? {
            let mut round = |panel, figure: Option<f64>| {
                if let Some(figure) = figure {
                    measured.round(panel, place.name(), &name, &x, figure);
                }
            };
            round("puts", Some(sample.ops_per_s));
            round("latency", sample.us_per_kib);
            if names.contains(&name) {
                round("share", sample.fsync_percent);
            }
        }
    }
    if let Err(missing) = Peer::RocksDb.check() {
        measured.missing(
            "puts",
            Place::Here.name(),
            Peer::RocksDb.name(),
            &x,
            &missing,
        );
    }
    sampled(lab, &config, &mut measured)?;
    measured.note_of(&["latency"],
        "device latency is of the whole machine's writes to the device, waiting in the queue included (/proc/diskstats); an emulated \
         device has none",
    );
    Ok(measured)
}

/// The store and every peer, each from an empty start: what others do in figure 5's place.
pub(super) fn peers(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let mut measured = Measured::default();
    let config = Config {
        variants: vec![Variant::Fsync, Variant::DOUBLE],
        preload_bytes: 0,
        // An end to what is slow.
        limit: Limit {
            seconds: Some(lab.size.pick(0.3, 2.0, 5.0)),
            ..config(lab).limit
        },
        peers: Peer::ALL.to_vec(),
        rounds: lab.rounds(),
        ..config(lab)
    };
    let x = bytes_name(VALUE_BYTES);
    let report = wisckey::run(std::slice::from_ref(&config), lab.note)?;
    for (name, figures) in report.all_rows() {
        let rate = figures.ops_per_s;
        let span = figures.ops_per_s_span.unwrap_or(Span {
            min: rate,
            max: rate,
        });
        measured.rows.push(Row::spanned(
            "puts",
            Place::Here.name(),
            &name,
            &x,
            rate,
            span,
        ));
    }
    for (name, why) in report.missing_peers() {
        measured.missing("puts", Place::Here.name(), name, &x, why);
    }
    measured.devices.push(report.device);
    measured.note(format!(
            "{} Puts into an empty database, or as many as {} seconds allow; a sync of what was not synced is counted in",
            crate::report::grouped(config.limit.ops.unwrap_or(0) as i64),
            config.limit.seconds.unwrap_or(0.0)
        ),
    );
    Ok(measured)
}

/// Figure 7 by perf: one more round in which every variant is sampled, so that sampling slows no other figure.
fn sampled(lab: &Lab<'_>, config: &Config, measured: &mut Measured) -> Result<(), BenchError> {
    let place = Place::Here.name();
    let config = Config {
        peers: Vec::new(),
        preload_bytes: 0,
        // Long enough for some thousand samples of what is fast, and an end to what is slow.
        limit: Limit {
            ops: Some(sampled_puts(lab.size)),
            seconds: Some(lab.size.pick(1.0, 3.0, 20.0)),
        },
        effort: Effort::QUICK,
        latencies: false,
        is_sampled: true,
        ..config.clone()
    };
    let report = wisckey::run(std::slice::from_ref(&config), lab.note)?;
    let x = bytes_name(VALUE_BYTES);
    let mut failed = None;
    for wisckey::Row { variant, figures } in &report.rows {
        match &figures.fsync_sample_share {
            Some(Ok(share)) => measured.round("perf", place, variant, &x, share * 100.0),
            Some(Err(why)) => {
                let why_missing = format!("{why}; its substitute is the share by accounted time");
                measured.missing("perf", place, variant, &x, &why_missing);
                failed = Some(why.clone());
            }
            None => {}
        }
    }
    measured.note_of(
        &["perf", "share"],
        format!(
            "shares by perf are of one more round without loaded data, sampled with kernel stacks; accounted shares are those of the rounds of fig. 5: \
             processor time of the threads inside fdatasync over all of the process{}",
            failed.map_or_else(String::new, |why| format!(". Where perf gave none ({why}), they are its substitute"))
        ),
    );
    Ok(())
}

/// Figure 6: run time over the size of a buffer, relative to that of the same variant with 1 MiB.
pub(super) fn buffers(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const MIB: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
    let mut measured = Measured::default();
    for place in PLACES {
        for mib in MIB {
            let x = bytes_name(mib << 20);
            let config = Config {
                variants: vec![Variant::SINGLE, Variant::DOUBLE],
                buffer_bytes: mib << 20,
                preload_bytes: config(lab).preload_bytes.min(1 << 30),
                effort: Effort::QUICK,
                ..config(lab)
            };
            for (name, sample) in rounds(lab, &config, place, &mut measured)? {
                measured.round("time", place.name(), &name, &x, sample.seconds);
            }
        }
    }
    measured.note(
        "the run time has the drain of what the buffers hold at the end; with few Puts large buffers absorb most of them, and the drain is a \
         larger part",
    );
    if lab.size == super::Size::Paper {
        measured.note("1 GiB is loaded, not 8 GB, as it is loaded for every bar");
    }
    Ok(measured)
}

/// All rounds of all contestants, in turn; every other round backwards.
fn rounds(
    lab: &Lab<'_>,
    config: &Config,
    place: Place,
    measured: &mut Measured,
) -> Result<Vec<(String, Sample)>, BenchError> {
    let mut samples = Vec::new();
    for round in 0..lab.rounds_on(place) {
        let config = Config {
            variants: in_turn(config.variants.iter().copied(), round),
            ..config.clone()
        };
        if let Some(profile) = place.profile() {
            samples.extend(emulated(lab, &config, profile)?);
            continue;
        }
        let report = wisckey::run(std::slice::from_ref(&config), lab.note)?;
        samples.extend(report.all_rows().map(|(name, figures)| {
            let sample = Sample {
                ops_per_s: figures.ops_per_s,
                seconds: figures.seconds,
                fsync_percent: figures.fsync_cpu_share.map(|share| share * 100.0),
                us_per_kib: figures.number("device_write_us_per_kib"),
            };
            (name, sample)
        }));
        measured.devices.push(report.device);
    }
    Ok(samples)
}

/// One round by this program as a process under `forebay-lab run --device`.
fn emulated(
    lab: &Lab<'_>,
    config: &Config,
    profile: &str,
) -> Result<Vec<(String, Sample)>, BenchError> {
    let scratch = ScratchDir::new_in(lab.dir)?;
    lab.note(&format!("Puts on {profile}"));
    let variants: Vec<String> = config.variants.iter().map(Variant::to_string).collect();
    let mut command = on_device(lab.forebay, scratch.path(), profile);
    command
        .arg(lab.program)
        .args([
            "wisckey",
            // Its measurement of the device is not used.
            "--quick",
            "--json",
            "--rounds",
            "1",
            "--variants",
            &variants.join(","),
        ])
        .args(["--ops", &config.limit.ops.unwrap_or(1).to_string()])
        .args(["--preload", &config.preload_bytes.to_string()])
        .args(["--buffer-size", &config.buffer_bytes.to_string()])
        .arg("--dir")
        .arg(scratch.path());
    let said = said_by("forebay-lab wisckey", output(&mut command)?)?;
    let report: Value = serde_json::from_str(&said).unwrap_or_default();
    let rows = report["rows"].as_array().ok_or_else(|| {
        BenchError::Child(format!("forebay-lab wisckey on {profile} said: {said}"))
    })?;
    let sample = |row: &Value| Sample {
        ops_per_s: row["ops_per_s"].as_f64().unwrap_or(0.0),
        seconds: row["seconds"].as_f64().unwrap_or(0.0),
        fsync_percent: row["fsync_cpu_share"].as_f64().map(|share| share * 100.0),
        us_per_kib: None,
    };
    let name = |row: &Value| row["variant"].as_str().unwrap_or_default().to_owned();
    Ok(rows.iter().map(|row| (name(row), sample(row))).collect())
}
