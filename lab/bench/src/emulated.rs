//! Emulated devices: what a program sees of one, beside what its profile says (P5's Fig. 3 and 4
//! for the memory behind a fabric).
//!
//! fio under `forebay-lab run --device` reads and writes past the cache (`O_DIRECT`), 4 KiB and 1
//! MiB, sequentially and at random. The figure is the median of the calls' latencies: what the
//! machine does to single calls is not the device's.

use crate::{
    BenchError,
    place::on_device,
    processes::{find_program, output, said_by},
    report::{self, Report, Row},
    scratch::{ScratchDir, sync_file_system},
};
use forebay_device::Profile;
use forebay_measure::server::option;
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};

/// Sizes of requests that are measured, as in the paper.
const SIZES: [usize; 2] = [4 << 10, 1 << 20];
/// Seconds after which a kind is over, whatever the number of calls.
const SECONDS_MAX: u32 = 2;

/// Kinds of requests: fio's name, and ours.
const KINDS: [(&str, &str); 4] = [
    ("read", "sequential read"),
    ("randread", "random read"),
    ("write", "sequential write"),
    ("randwrite", "random write"),
];

/// Every kind in every size.
fn requests() -> impl Iterator<Item = (&'static str, &'static str, usize)> {
    KINDS
        .into_iter()
        .flat_map(|(rw, name)| SIZES.map(|bytes| (rw, name, bytes)))
}

/// Measures the devices of these profiles (names, or paths of TOML files) one after the other,
/// saying which to `progress`. Their directories are made in `dir`, which is on something faster
/// than they. `is_quick` shows that it runs, with medians of a few calls.
///
/// # Errors
/// [`BenchError::Config`] for a profile that is none; [`BenchError::Missing`] without fio; I/O
/// errors; [`BenchError::Child`].
pub fn run(
    forebay: &Path,
    names: &[String],
    dir: &Path,
    is_quick: bool,
    progress: &dyn Fn(&str),
) -> Result<Report, BenchError> {
    let named = |name: &String| Profile::named(name).map_err(|e| BenchError::Config(e.to_string()));
    // All of them before the first is measured.
    let profiles: Result<Vec<_>, _> = names.iter().map(named).collect();
    let mut rows = Vec::new();
    for (name, profile) in names.iter().zip(profiles?) {
        progress(&profile.name);
        let scratch = ScratchDir::new_in(dir)?;
        let device = scratch.path().join("device");
        let file_mib = if is_quick { 16 } else { 64 };
        let fio = fio(forebay, &device, name, file_mib << 20)?;
        rows.extend(of_device(fio, &profile, if is_quick { 9 } else { 400 })?);
    }
    Ok(Report {
        rows,
        ..Report::new("device", json!({}))
    })
}

/// Every kind of request to one device, by one fio that does so many of each, or less of what takes
/// long, one after the other.
fn of_device(mut fio: Command, profile: &Profile, calls: usize) -> Result<Vec<Row>, BenchError> {
    fio.arg(format!("--runtime={SECONDS_MAX}"));
    for (rw, _, bytes) in requests() {
        fio.args(["--name=requests", "--stonewall"])
            .arg(format!("--rw={rw}"))
            .arg(format!("--bs={bytes}"))
            .arg(format!("--io_size={}", calls * bytes));
    }
    let report = reported(&mut fio)?;
    let row = |(job, (_, name, bytes))| row(profile, name, bytes, &report["jobs"][job]);
    Ok(requests().enumerate().map(row).collect())
}

/// What fio reports.
pub(crate) fn reported(fio: &mut Command) -> Result<Value, BenchError> {
    let said = said_by("fio", output(fio)?)?;
    let json = said.find('{').map_or("", |at| &said[at..]);
    serde_json::from_str(json)
        .map_err(|e| BenchError::Child(format!("(fio) reported what cannot be read: {e}: {said}")))
}

fn row(profile: &Profile, name: &str, bytes: usize, job: &Value) -> Row {
    let (sequential, write) = (name.starts_with("sequential"), name.ends_with("write"));
    let (cost, done) = match write {
        true => (&profile.write, &job["write"]),
        false => (&profile.read, &job["read"]),
    };
    let (fixed, transfer) = cost.of(bytes as u64, sequential);
    let profile_us = (fixed + transfer) as f64 / 1e3;
    let measured_us = done["clat_ns"]["percentile"]["50.000000"].as_f64();
    let measured_us = measured_us.unwrap_or(f64::NAN) / 1e3;
    Row::of(json!({
        "profile": profile.name,
        "kind": name,
        "bytes": bytes,
        "sequential": sequential,
        "write": write,
        "calls": done["total_ios"],
        "profile_us": profile_us,
        "measured_us": measured_us,
        "deviation_percent": (measured_us / profile_us - 1.0) * 100.0,
        "profile_mb_s": bytes as f64 / profile_us,
        "measured_mb_s": bytes as f64 / measured_us,
    }))
}

/// The report for people.
#[must_use]
pub fn table(report: &Report) -> String {
    report::table("device", &report.rows).render()
}

/// fio in a file of so many bytes in `dir`, which is made, on an emulated device: past the cache, a
/// call at a time. Which calls is to be added.
///
/// # Errors
/// [`BenchError::Missing`] if it is not installed; I/O errors.
pub(crate) fn fio(
    forebay: &Path,
    dir: &Path,
    profile: &str,
    file_bytes: u64,
) -> Result<Command, BenchError> {
    let fio = find_program("fio").ok_or_else(|| {
        BenchError::Missing("fio is not installed: apt-get install fio".to_owned())
    })?;
    fs::create_dir_all(dir).map_err(BenchError::io("creating", dir))?;
    let file = dir.join("file");
    let bytes = vec![1; usize::try_from(file_bytes).unwrap_or(usize::MAX)];
    fs::write(&file, bytes).map_err(BenchError::io("writing", &file))?;
    sync_file_system(dir)?;
    let mut command = on_device(forebay, dir, profile);
    command
        .arg(fio)
        .args([
            "--thread",
            "--direct=1",
            "--ioengine=psync",
            "--overwrite=1",
        ])
        .arg("--output-format=json")
        .arg(format!("--size={file_bytes}"))
        .arg(option("--filename=", &file));
    Ok(command)
}
