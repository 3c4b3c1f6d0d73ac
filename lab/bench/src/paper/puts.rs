//! P1: Puts of 4 KiB on a loaded store, in every variant and with buffers of several sizes.
//!
//! On this disk the store runs in this process. On an emulated device it runs as `forebay-lab wisckey` under `forebay-lab run --device`.

use super::{Lab, Measured, Row};
use crate::{
    BenchError,
    device::Effort,
    live::Live,
    peers::{other::Other, rocksdb},
    perf::Sampler,
    place::{Place, device_argument, lab_program},
    processes,
    rounds::Span,
    scratch::ScratchDir,
    units::bytes_name,
    wisckey::{self, Config, Figures, Limit, Watch},
};
use forebay_store::Variant;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::Path,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
};

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

/// Samples by contestant.
type Samples = BTreeMap<String, Vec<Sample>>;

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
        limit: Limit {
            ops: Some(ops),
            seconds: None,
        },
        preload_bytes,
        rounds: 1,
        effort: lab.size.pick(Effort::QUICK, Effort::SHORT, Effort::FULL),
        ..Config::default()
    }
}

/// Figures 5, 7 and 8: the four variants, and RocksDB.
pub(super) fn variants(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let config = Config {
        peers: true,
        ..config(lab)
    };
    let names: Vec<String> = config.variants.iter().map(Variant::to_string).collect();
    let x = bytes_name(VALUE_BYTES);
    let mut measured = Measured::default();
    measured.note(&[], format!(
        "{} of data are loaded before the clock starts, then {} Puts; it stops when all is on the disk",
        bytes_name(config.preload_bytes),
        config.limit.ops.unwrap_or(0)
    ));
    for place in PLACES {
        let samples = rounds(lab, &config, place, &mut measured)?;
        let peers = samples.keys().filter(|name| !names.contains(name));
        for name in names.iter().chain(peers) {
            let samples = samples.get(name).map_or(&[][..], Vec::as_slice);
            let all = |figure: fn(&Sample) -> Option<f64>| {
                samples.iter().filter_map(figure).collect::<Vec<_>>()
            };
            let mut row = |panel, figures: Vec<f64>| {
                if !figures.is_empty() {
                    measured
                        .rows
                        .push(Row::of(panel, place.name(), name, &x, &figures));
                }
            };
            row("puts", all(|sample| Some(sample.ops_per_s)));
            row("latency", all(|sample| sample.us_per_kib));
            if names.contains(name) {
                row("share", all(|sample| sample.fsync_percent));
            }
        }
    }
    if let Err(missing) = rocksdb::find() {
        measured.rows.push(Row::missing(
            "puts",
            Place::Here.name(),
            rocksdb::NAME,
            &x,
            &missing,
        ));
    }
    sampled(lab, &config, &mut measured)?;
    measured.note(&["latency"],
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
        peers: true,
        others: Other::ALL.to_vec(),
        rounds: lab.rounds(),
        ..config(lab)
    };
    let x = bytes_name(VALUE_BYTES);
    let report = wisckey::run(std::slice::from_ref(&config), lab.watch)?;
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
        let row = Row::missing("puts", Place::Here.name(), name, &x, why);
        measured.rows.push(row);
    }
    measured.devices.push(report.device);
    measured.note(
        &[],
        format!(
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
    let dir = ScratchDir::new_in(lab.dir)?;
    let watch = Sampling {
        inner: lab.watch,
        dir: dir.path(),
        running: Mutex::default(),
        shares: Mutex::default(),
    };
    let config = Config {
        peers: false,
        preload_bytes: 0,
        // Long enough for some thousand samples of what is fast, and an end to what is slow.
        limit: Limit {
            ops: Some(sampled_puts(lab.size)),
            seconds: Some(lab.size.pick(1.0, 3.0, 20.0)),
        },
        effort: Effort::QUICK,
        latencies: false,
        ..config.clone()
    };
    wisckey::run(std::slice::from_ref(&config), &watch)?;
    let shares = watch
        .shares
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let mut failed = None;
    for (variant, share) in config.variants.iter().zip(shares) {
        match share {
            Ok(share) => measured.rows.push(Row::of(
                "perf",
                place,
                &variant.to_string(),
                &bytes_name(VALUE_BYTES),
                &[share * 100.0],
            )),
            Err(why) => {
                measured.rows.push(Row::missing(
                    "perf",
                    place,
                    &variant.to_string(),
                    &bytes_name(VALUE_BYTES),
                    &format!("{why}; its substitute is the share by accounted time"),
                ));
                failed = Some(why);
            }
        }
    }
    measured.note(
        &["perf", "share"],
        format!(
            "shares by perf are of one more round without loaded data, sampled with kernel stacks; accounted shares are those of the rounds of fig. 5: \
             processor time of the threads inside fdatasync over all of the process{}",
            failed.map_or_else(String::new, |why| format!(". Where perf gave none ({why}), they are its substitute"))
        ),
    );
    Ok(())
}

/// Passes everything on, and samples this process while Puts run.
struct Sampling<'a> {
    inner: &'a dyn Watch,
    dir: &'a Path,
    running: Mutex<Option<Result<Sampler, String>>>,
    shares: Mutex<Vec<Result<f64, String>>>,
}

impl Watch for Sampling<'_> {
    fn note(&self, what: &str) {
        self.inner.note(what);
    }

    fn begin(&self, what: &str, limit: Limit, live: &Arc<Live>) {
        self.inner.begin(&format!("{what}, sampled"), limit, live);
        let sampler = Sampler::start(std::process::id(), self.dir);
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(sampler);
    }

    fn end(&self, figures: &Figures) {
        let sampler = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(sampler) = sampler {
            let share = sampler.and_then(Sampler::share);
            self.shares
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(share);
        }
        self.inner.end(figures);
    }
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
            let samples = rounds(lab, &config, place, &mut measured)?;
            for name in config.variants.iter().map(Variant::to_string) {
                let samples = samples.get(&name).map_or(&[][..], Vec::as_slice);
                let seconds: Vec<f64> = samples.iter().map(|sample| sample.seconds).collect();
                measured
                    .rows
                    .push(Row::of("time", place.name(), &name, &x, &seconds));
            }
        }
    }
    measured.note(&[],
        "the run time has the drain of what the buffers hold at the end; with few Puts large buffers absorb most of them, and the drain is a \
         larger part",
    );
    if lab.size == super::Size::Paper {
        measured.note(
            &[],
            "1 GiB is loaded, not 8 GB, as it is loaded for every bar",
        );
    }
    Ok(measured)
}

/// All rounds of all contestants, in turn; every other round backwards.
fn rounds(
    lab: &Lab<'_>,
    config: &Config,
    place: Place,
    measured: &mut Measured,
) -> Result<Samples, BenchError> {
    let mut samples = Samples::new();
    for round in 0..lab.rounds_on(place) {
        let mut config = config.clone();
        if round % 2 == 1 {
            config.variants.reverse();
        }
        match place.profile() {
            None => here(lab, &config, &mut samples, measured)?,
            Some(profile) => emulated(lab, &config, profile, &mut samples)?,
        }
    }
    Ok(samples)
}

fn here(
    lab: &Lab<'_>,
    config: &Config,
    samples: &mut Samples,
    measured: &mut Measured,
) -> Result<(), BenchError> {
    let report = wisckey::run(std::slice::from_ref(config), lab.watch)?;
    for (name, figures) in report.all_rows() {
        samples.entry(name).or_default().push(Sample {
            ops_per_s: figures.ops_per_s,
            seconds: figures.seconds,
            fsync_percent: figures.fsync_cpu_share.map(|share| share * 100.0),
            us_per_kib: figures.device_write_us_per_kib,
        });
    }
    measured.devices.push(report.device);
    Ok(())
}

/// One round by this program as a process under `forebay-lab run --device`.
fn emulated(
    lab: &Lab<'_>,
    config: &Config,
    profile: &str,
    samples: &mut Samples,
) -> Result<(), BenchError> {
    let scratch = ScratchDir::new_in(lab.dir)?;
    lab.note(&format!("Puts on {profile}"));
    let variants: Vec<String> = config.variants.iter().map(Variant::to_string).collect();
    let program = lab_program(lab.forebay);
    let mut command = Command::new(&program);
    command
        .args(["run", "--no-pool", "--device"])
        .arg(device_argument(scratch.path(), profile))
        .arg("--")
        .arg(&program)
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
    let said = processes::output(&mut command)?;
    let report: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
    let Some(rows) = report["rows"].as_array().filter(|_| said.status.success()) else {
        return Err(BenchError::Child(format!(
            "forebay-lab wisckey on {profile} ended with {}: {}",
            said.status,
            String::from_utf8_lossy(&said.stderr).trim()
        )));
    };
    for row in rows {
        samples
            .entry(row["variant"].as_str().unwrap_or_default().to_owned())
            .or_default()
            .push(Sample {
                ops_per_s: row["ops_per_s"].as_f64().unwrap_or(0.0),
                seconds: row["seconds"].as_f64().unwrap_or(0.0),
                fsync_percent: row["fsync_cpu_share"].as_f64().map(|share| share * 100.0),
                us_per_kib: None,
            });
    }
    Ok(())
}
