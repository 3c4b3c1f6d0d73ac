//! P3's setup table: random writes on the emulated devices by themselves.

use super::{Lab, Measured, Size};
use crate::{
    BenchError,
    emulated::fio,
    place::Place,
    processes::{output, said_by},
    scratch::{ScratchDir, memory_dir},
};
use serde_json::Value;

/// Devices of the paper's setup table.
const DEVICES: [&str; 3] = ["sata-ssd", "nvme", "nvram"];

/// The paper's setup table: fio's random writes of 4 KiB on each emulated device.
pub(super) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const PANEL: &str = "random_writes";
    // One place for all, since a claim compares what was measured in one.
    const HERE: &str = Place::Here.name();
    let mut measured = Measured::default();
    for device in DEVICES {
        for _ in 0..lab.rounds() {
            let rate = random_writes(lab, device)?;
            lab.note(&format!("{device}: {rate:.0} KB/s"));
            measured.round(PANEL, HERE, device, "4 KiB", rate);
        }
    }
    measured.note(
        "fio --rw=randwrite --bs=4k --direct=1 --ioengine=psync, one job, in a file of 64 MiB that is there already",
    );
    Ok(measured)
}

/// Kilobytes (1,024) a second.
fn random_writes(lab: &Lab<'_>, device: &str) -> Result<f64, BenchError> {
    let dir = ScratchDir::new_in(&memory_dir())?;
    let mut fio = fio(lab.forebay, dir.path(), device, 64 << 20)?;
    fio.args(["--name=random", "--rw=randwrite", "--bs=4k", "--time_based"])
        .arg(format!("--runtime={}", seconds(lab.size)))
        .env("FOREBAY_RUN_DIR", dir.path().join("run"));
    let said = said_by("fio", output(&mut fio)?)?;
    let json = said.find('{').map_or("", |at| &said[at..]);
    let report: Value = serde_json::from_str(json).unwrap_or_default();
    let rate = report["jobs"][0]["write"]["bw"].as_f64();
    rate.ok_or_else(|| BenchError::Child(format!("(fio) reported what cannot be read: {said}")))
}

fn seconds(size: Size) -> u64 {
    size.pick(1, 5, 30)
}
