//! P3's setup table: random writes on the emulated devices by themselves.

use super::{Lab, Measured, Row, Size};
use crate::{
    BenchError,
    place::{Place, device_argument, lab_program},
    processes::{find_program, output},
    rounds::median,
    scratch::{ScratchDir, memory_dir, sync_file_system},
};
use serde_json::Value;
use std::{path::Path, process::Command};

/// Devices of the paper's setup table.
const DEVICES: [&str; 3] = ["sata-ssd", "nvme", "nvram"];

/// The paper's setup table: fio's random writes of 4 KiB on each emulated device.
pub(super) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const PANEL: &str = "random_writes";
    // One place for all, since a claim compares what was measured in one.
    const HERE: &str = Place::Here.name();
    let Some(fio) = find_program("fio") else {
        let why = "fio is not installed: apt-get install fio";
        return Err(BenchError::Missing(why.to_owned()));
    };
    let mut measured = Measured::default();
    for device in DEVICES {
        let mut figures = Vec::new();
        for _ in 0..lab.rounds() {
            figures.push(random_writes(lab, &fio, device)?);
        }
        lab.note(&format!("{device}: {:.0} KB/s", median(&figures)));
        measured
            .rows
            .push(Row::of(PANEL, HERE, device, "4 KiB", &figures));
    }
    measured.note(
        &[],
        "fio --rw=randwrite --bs=4k --direct=1 --ioengine=psync, one job, in a file of 64 MiB that is there already",
    );
    Ok(measured)
}

/// Kilobytes (1,024) a second.
fn random_writes(lab: &Lab<'_>, fio: &Path, device: &str) -> Result<f64, BenchError> {
    let dir = ScratchDir::new_in(&memory_dir())?;
    let file = dir.path().join("file");
    std::fs::write(&file, vec![1; 64 << 20]).map_err(BenchError::io("writing", &file))?;
    sync_file_system(dir.path())?;
    let mut command = Command::new(lab_program(lab.forebay));
    command
        .args(["run", "--no-pool", "--device"])
        .arg(device_argument(dir.path(), device))
        .arg("--")
        .arg(fio)
        .args(["--name=random", "--thread", "--rw=randwrite"])
        .args(["--bs=4k", "--direct=1", "--ioengine=psync", "--size=64m"])
        .args(["--overwrite=1", "--time_based", "--output-format=json"])
        .arg(format!("--runtime={}", seconds(lab.size)))
        .arg(format!("--filename={}", file.display()))
        .env("FOREBAY_RUN_DIR", dir.path().join("run"));
    let done = output(&mut command)?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let json = text.find('{').map(|at| &text[at..]).unwrap_or_default();
    let report: Value = serde_json::from_str(json).unwrap_or_default();
    report["jobs"][0]["write"]["bw"].as_f64().ok_or_else(|| {
        BenchError::Child(format!(
            "(fio) ended with {} and said: {}",
            done.status,
            String::from_utf8_lossy(&done.stderr).trim()
        ))
    })
}

fn seconds(size: Size) -> u64 {
    size.pick(1, 5, 30)
}
