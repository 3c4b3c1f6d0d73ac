//! P3's and P5's devices by themselves, and stores on P5's memory behind a fabric.

use super::{lab::Lab, outcome::Measured, size::Size};
use crate::{
    BenchError, emulated, fam,
    place::HERE,
    report::Row,
    scratch::{ScratchDir, memory_dir},
    units::bytes_name,
};
use forebay_device::Profile;
use serde_json::Value;

/// P3's setup table: fio's random writes of 4 KiB on each emulated device.
pub(super) fn random_writes(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const DEVICES: [&str; 3] = ["sata-ssd", "nvme", "nvram"];
    let mut measured = Measured::default();
    for device in DEVICES {
        for _ in 0..lab.rounds() {
            let rate = writes_kib_s(lab, device)?;
            lab.note(&format!("{device}: {rate:.0} KB/s"));
            // One place for all, since a claim compares what was measured in one.
            measured.add("random_writes", HERE, device, "4 KiB", &[rate]);
        }
    }
    Ok(measured)
}

/// Kilobytes (1,024) a second.
fn writes_kib_s(lab: &Lab<'_>, device: &str) -> Result<f64, BenchError> {
    let dir = ScratchDir::new_in(&memory_dir())?;
    let mut fio = emulated::fio(lab.forebay, dir.path(), device, 64 << 20)?;
    fio.args(["--name=random", "--rw=randwrite", "--bs=4k", "--time_based"])
        .arg(format!("--runtime={}", lab.size.pick(1, 5, 30)))
        .env("FOREBAY_RUN_DIR", dir.path().join("run"));
    let report = emulated::reported(&mut fio)?;
    let rate = report["jobs"][0]["write"]["bw"].as_f64();
    rate.ok_or_else(|| BenchError::Child("(fio) reported no bandwidth".to_owned()))
}

fn bytes(row: &Row, name: &str) -> String {
    bytes_name(row.get(name).and_then(Value::as_u64).unwrap_or(0))
}

/// P5, figures 3 and 4: each emulated device beside its profile.
pub(super) fn device(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let (names, is_quick) = (Profile::NAMES.map(str::to_owned), lab.size != Size::Paper);
    let report = emulated::run(lab.forebay, &names, &memory_dir(), is_quick, lab.note)?;
    let mut measured = Measured::default();
    for row in &report.rows {
        let (order, access) = row.text("kind").split_once(' ').unwrap_or_default();
        let x = format!("{access} {}, {order}", bytes(row, "bytes"));
        let times = row.in_rounds("measured_us");
        let over = times.iter().zip(row.in_rounds("profile_us"));
        let over: Vec<f64> = over.map(|(time, profile)| time / profile).collect();
        measured.add("time", HERE, row.text("profile"), &x, &times);
        measured.add("deviation", HERE, row.text("profile"), &x, &over);
    }
    Ok(measured)
}

/// P5: latencies by pair size and cache policy.
pub(super) fn fam(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    let config = fam::Config::usual(lab.dir, lab.forebay, lab.size != Size::Paper);
    let report = fam::run(&config, &|note| lab.note(note))?;
    let mut measured = Measured::default();
    for row in &report.rows {
        let series = format!("{} {}", row.text("store"), row.text("policy"));
        let (panel, x) = (row.text("workload"), bytes(row, "pair_bytes"));
        measured.add(panel, HERE, &series, &x, &row.in_rounds("us_per_op"));
    }
    for missing in fam::missing(&report) {
        for workload in fam::WORKLOADS {
            let (store, why) = (missing.text("store"), missing.text("error"));
            measured.missing(workload, HERE, store, "", why);
        }
    }
    for note in report.notes {
        measured.note(note);
    }
    Ok(measured)
}
